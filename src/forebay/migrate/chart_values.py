"""Helm values of predecessors' charts as values of Forebay's: k8s-gpu-autoprovision, gpu-k8s-operator, tgp-operator.

Values that Forebay's chart has under the same name stay. Images are left out, as they are of another program.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from forebay.api.values import NotADuration, duration
from forebay.migrate.notes import Document, Migration, Notes, items, listed, mapping
from forebay.migrate.notes import without_nothing as filled

#: Values with the same meaning in Forebay's chart. A test holds them against its schema.
SAME: Final = (
    "nodeGroups",
    "replicaCount",
    "terminationGracePeriodSeconds",
    "nodeSelector",
    "tolerations",
    "affinity",
    "podAnnotations",
    "podLabels",
    "serviceAccount",
    "rbac",
    "imagePullSecrets",
    "priorityClassName",
    "topologySpreadConstraints",
    "healthProbe",
    "metrics",
)
_LISTS: Final = ("nodeGroups", "tolerations", "imagePullSecrets", "topologySpreadConstraints")
_MAPPINGS: Final = (
    "nodeSelector",
    "affinity",
    "podAnnotations",
    "podLabels",
    "serviceAccount",
    "rbac",
    "healthProbe",
    "metrics",
)
_NUMBERS: Final = (
    "replicaCount",
    "terminationGracePeriodSeconds",
    "healthProbe.port",
    "health.port",
    "metrics.port",
    "metrics.service.port",
)
#: What Forebay's chart has in mappings of the same name. A test holds it against its schema.
KEYS: Final[Mapping[str, frozenset[str]]] = {
    "metrics": frozenset({"port", "secure", "certSecret", "service", "serviceMonitor"}),
    "healthProbe": frozenset({"port"}),
    "serviceAccount": frozenset({"create", "name", "annotations"}),
    "rbac": frozenset({"create"}),
}
#: What every item of nodeGroups needs.
_OF_A_MACHINE: Final = ("name", "gpuCount", "scaleUpEndpoint", "scaleDownEndpoint")
#: Values of a webhook server, which Forebay has none of.
_LEFT_OUT: Final = ("webhook", "certManager")
#: By which a document without a kind is recognized as the values of a predecessor's chart.
_MARKS: Final = (
    "nodeGroups",
    "webhook",
    "leaderElection",
    "healthProbe",
    "controller",
    "config",
    "replicaCount",
    "image",
)
#: Memory limits below this, in MiB, are too little for the informers of a cluster.
_LEAST_MEMORY: Final = 256
#: How often and for how long Prometheus scrapes, where the values do not say so.
_SCRAPES: Final = {"interval": "30s", "scrapeTimeout": "10s"}
#: How much alike two names must be for one to be taken for the other: 1 is equal.
_LIKE: Final = 0.8
_UNITS: Final = {"Mi": 1, "Gi": 1024, "M": 1, "G": 1000}


def is_values(document: Document) -> bool:
    """Whether the document looks like values of a chart: no object, and with a value that predecessors had, or a name
    that is written almost like one.
    """
    if "apiVersion" in document or "kind" in document:
        return False
    return any(get_close_matches(str(name), _MARKS, 1, _LIKE) for name in document)


def migrate_values(document: Document) -> Migration:
    """The values for Forebay's chart, and what to know about the others."""
    said = Notes("Helm values")
    values: Document = {name: document[name] for name in SAME if document.get(name) not in (None, {}, [])}
    _types(document, said)
    _machines(items(document, "nodeGroups"), said)
    if mapping(document, "image"):
        said.needed("image is left out: set image.repository to the repository that you pushed Forebay's image to.")
    _election(document, said)
    if any(name in document for name in _LEFT_OUT):
        said.changed("webhook is left out, with cert-manager: the API server validates budgets itself.")
    values |= _controller(mapping(document, "controller"), values, said)
    if port := mapping(document, "health").get("port"):
        values["healthProbe"] = {"port": port}
    resources = _resources(mapping(document, "resources") or mapping(values, "resources"), said)
    values.pop("resources", None)
    if resources:
        values["resources"] = resources
    _metrics(document, values, said)
    _config(mapping(document, "config"), said)
    known = {*SAME, *_LEFT_OUT, "image", "leaderElection", "controller", "health", "resources", "config", "global"}
    names = {str(name) for name in document}
    unknown = {name: get_close_matches(name, known - names, 1, _LIKE) for name in sorted(names - known)}
    for name, near in unknown.items():
        if near:
            said.needed(f"{name} is left out; did you mean {near[0]}?")
    if strange := [name for name, near in unknown.items() if not near]:
        said.needed(
            f"{listed(strange)}: no value of a predecessor's chart that Forebay knows; see docs/reference/helm.md."
        )
    return Migration(notes=tuple(said.found), values=filled(values))


def _types(document: Document, notes: Notes) -> None:
    for names, kind, noun in ((_LISTS, list, "list"), (_MAPPINGS, Mapping, "mapping")):
        for name in names:
            if document.get(name) is not None and not isinstance(document[name], kind):
                notes.needed(f"{name} is no {noun}, which Forebay's chart refuses; see docs/reference/helm.md.")
    for path in _NUMBERS:
        *within, name = path.split(".")
        found: Mapping[str, Any] = document
        for each in within:
            found = mapping(found, each)
        if (value := found.get(name)) is not None and (not isinstance(value, int) or isinstance(value, bool)):
            notes.needed(f"{path} is {value!r}, which is no whole number: Forebay's chart refuses it.")
    for name, known in KEYS.items():
        if strange := sorted(str(each) for each in mapping(document, name).keys() - known):
            notes.needed(f"{name}: Forebay's chart has no {listed(strange)} there, and refuses it: remove it.")


def _machines(groups: list[Any], notes: Notes) -> None:
    """Says which machines Forebay's chart would refuse; the predecessor left them out, with a line in its log."""
    for number, group in enumerate(groups):
        found = group if isinstance(group, Mapping) else {}
        for key in _OF_A_MACHINE:
            if found.get(key) in (None, ""):
                near = get_close_matches(key, [str(each) for each in found if each not in _OF_A_MACHINE], 1, _LIKE)
                said = f" ({near[0]} is no key of a machine)" if near else ""
                notes.needed(f"nodeGroups[{number}].{key} is missing{said}: Forebay's chart refuses such a machine.")


def _election(document: Document, notes: Notes) -> None:
    if mapping(document, "leaderElection").get("enabled") is False:
        notes.changed("leaderElection is left out: Forebay always holds a Lease while it acts.")


def _controller(controller: Document, values: Mapping[str, Any], notes: Notes) -> Document:
    """tgp-operator's values of its pod."""
    renamed = {"replicas": "replicaCount", "securityContext": "securityContext", "resources": "resources"}
    same = ("nodeSelector", "tolerations", "affinity")
    found = {new: controller[old] for old, new in renamed.items() if controller.get(old)}
    found |= {name: controller[name] for name in same if controller.get(name) and name not in values}
    if rest := sorted(controller.keys() - renamed.keys() - set(same)):
        notes.needed(f"controller.{listed(rest)}: no value that Forebay knows; see docs/reference/helm.md.")
    return found


def _resources(resources: Document, notes: Notes) -> Document:
    limits = mapping(resources, "limits")
    if "cpu" in limits:
        notes.changed("resources.limits.cpu is left out: a throttled leader loses its Lease.")
    memory = str(limits.get("memory", ""))
    unit = next((each for each in _UNITS if memory.endswith(each)), "")
    amount = memory.removesuffix(unit)
    if unit and amount.isdecimal() and int(amount) * _UNITS[unit] < _LEAST_MEMORY:
        notes.changed(f"resources are left out: a limit of {memory} is too little to watch the pods of a cluster.")
        return {}
    kept = {key: value for key, value in limits.items() if key != "cpu"}
    return filled({**resources, "limits": kept})


def _metrics(document: Document, values: Document, notes: Notes) -> None:
    if "port" in mapping(document, "metrics"):
        notes.changed(
            "metrics are served by HTTPS now, for tokens that may get /metrics; metrics.secure: false keeps plain HTTP."
        )
    monitor = mapping(mapping(values, "metrics"), "serviceMonitor")
    if monitor.get("enabled"):
        notes.changed("The ServiceMonitor reads with its own token: bind the ClusterRole RELEASE-metrics-reader to it.")
        _scrapes(monitor, notes)


def _scrapes(monitor: Document, notes: Notes) -> None:
    interval, timeout = (str(monitor.get(name, usual)) for name, usual in _SCRAPES.items())
    try:
        too_long = duration(timeout) > duration(interval)
    except NotADuration as error:
        notes.needed(f"metrics.serviceMonitor: {error}.")
    else:
        if too_long:
            notes.needed(
                f"metrics.serviceMonitor: scrapeTimeout ({timeout}) is longer than interval ({interval}), which "
                "Prometheus refuses: lower scrapeTimeout or raise interval."
            )


def _config(config: Document, notes: Notes) -> None:
    """tgp-operator's `config`, which its operator never read."""
    for name, each in mapping(config, "providers").items():
        if isinstance(each, Mapping) and each.get("enabled"):
            notes.needed(f"config.providers.{name} is left out: name the provider in a GPUNodeClass.")
    for name in ("talos", "tailscale"):
        if mapping(config, name):
            notes.changed(f"config.{name} is left out: a GPUNodeClass has {name}Config.")
