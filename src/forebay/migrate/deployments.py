"""Predecessors that were configured by a Deployment: machines in environment variables, and a controller's flags.

k8s-gpu-autoprovision has a group of variables for each machine; the RunPod Job controller has flags, and the key of its
account in a Secret.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from forebay.api.names import API_VERSION
from forebay.api.values import NotADuration, duration
from forebay.migrate.notes import Document, Migration, Notes, described, items, mapping
from forebay.migrate.target import MigrationTarget
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Delivery

_GROUP_SUFFIX: Final = "_GPU_COUNT"
#: Name of the class and pool that machines of environment variables become.
_OWNED: Final = "owned"
#: In image, command or name of the controller.
_CONTROLLERS: Final = ("runpod-controller", "runpod_controller", "k8s-runpod")
_KEYS: Final = ("RUNPOD_KEY", "RUNPOD_API_KEY")
#: Flags of the controller: the setting of Forebay's chart, and what the value is.
_FLAGS: Final[Mapping[str, tuple[str, str]]] = {
    "reconcile-interval": ("reconcileInterval", "number of seconds"),
    "pending-job-threshold": ("pendingJobThreshold", "count"),
    "max-pending-time": ("maxPendingTime", "number of seconds"),
    "max-gpu-price": ("maxGpuPrice", "price"),
}


def is_predecessor(document: Document) -> bool:
    """Whether a Deployment is that of one of the two."""
    return any(_is_controller(document, each) or _groups(each) for each in _containers(document))


def migrate(documents: Sequence[Document], target: MigrationTarget) -> Migration:
    """What the Deployments become: classes and pools, and values of Forebay's chart."""
    done = [_migrated(each, target) for each in documents]
    values: Document = {}
    for each in done:
        values = {
            **values,
            **each.values,
            "settings": {**values.get("settings", {}), **each.values.get("settings", {})},
        }
    return Migration(
        manifests=tuple(manifest for each in done for manifest in each.manifests),
        notes=tuple(note for each in done for note in each.notes),
        values={key: value for key, value in values.items() if value != {}},
    )


def migrate_environment(variables: Mapping[str, str], target: MigrationTarget, about: str) -> Migration:
    """The class and the pool of the machines that environment variables name."""
    said = Notes(about)
    groups = target.machine_groups(variables)
    for problem in groups.problems:
        said.needed(problem)
    if not groups.machines:
        said.needed("No machine is described completely: each needs _NAME, _GPU_COUNT and two endpoints.")
        return Migration(notes=tuple(said.found))
    said.changed(
        "The machines are in a GPUNodeClass now. The variables work as well, as they are, as environment variables of "
        "Forebay's operator; do not use both."
    )
    provider = _provider(target, Delivery.POWER)
    node_class = _object("GPUNodeClass", _OWNED, None, {"providers": [{"name": provider, "machines": groups.machines}]})
    pool = _object("GPUNodePool", _OWNED, target.namespace, {"nodeClassRef": {"name": _OWNED}})
    return Migration(manifests=(node_class, pool), notes=tuple(said.found))


def _migrated(document: Document, target: MigrationTarget) -> Migration:
    parts = []
    for container in _containers(document):
        if _is_controller(document, container):
            parts.append(_controller(document, container, target))
        elif groups := _groups(container):
            parts.append(migrate_environment(groups, target, described(document)))
    values = next((each.values for each in parts if each.values), {})
    said = Notes(described(document))
    said.needed("Delete it before Forebay's operator starts: two controllers would act on the same machines.")
    return Migration(
        manifests=tuple(manifest for each in parts for manifest in each.manifests),
        notes=(*(note for each in parts for note in each.notes), *said.found),
        values=values,
    )


def _controller(document: Document, container: Document, target: MigrationTarget) -> Migration:
    """The class and pool of the account whose key the controller had, and its flags as settings."""
    said = Notes(described(document))
    settings: dict[str, str] = {}
    values: Document = {"settings": settings, "offload": {"enabled": True}}
    for flag, value in _flags(container):
        if flag in _FLAGS:
            setting, noun = _FLAGS[flag]
            if (read := _READ[noun](value)) is None:
                said.needed(f"--{flag} is {value!r}, which is no {noun}: left out, so Forebay's default applies.")
            else:
                settings[setting] = read
        elif flag == "health-server-address" and value.rpartition(":")[2].isdecimal():
            values["port"] = int(value.rpartition(":")[2])
        elif flag in {"kubeconfig", "namespace"}:
            said.changed(f"--{flag} is left out: Forebay runs in the cluster, in a namespace of its own.")
        else:
            said.needed(f"--{flag} is no flag that Forebay knows of this predecessor: see docs/providers/runpod.md.")
    name = _provider(target, Delivery.CONTAINER)
    entry: Document = {"name": name}
    secret = _key(container)
    if secret is None:
        said.needed(
            f"No container has {' or '.join(_KEYS)} from a Secret: put the key into a Secret {name} in "
            f"{target.namespace}, under {_KEYS[0]}."
        )
        secret = {"name": name, "key": _KEYS[0]}
        former = target.namespace
    else:
        former = str(mapping(document, "metadata").get("namespace") or "default")
    entry["credentialsRef"] = secret
    values["secrets"] = [secret["name"]]
    if former != target.namespace:
        said.needed(
            f"Copy the Secret {secret['name']} from the namespace {former} to {target.namespace}: Forebay reads "
            "Secrets of its own namespace."
        )
    if any(each.get("name") == "SENTRY_URL" for each in items(container, "env") if isinstance(each, dict)):
        said.changed("SENTRY_URL is left out. To have crashes reported there, set SENTRY_DSN (docs/telemetry.md).")
    said.changed(
        "A Job's own pod runs remotely and ends with its command's exit code; there is no second pod. Waiting is the "
        "default of 0s and a threshold of 1, as its README said; its code had 5 for both."
    )
    node_class = _object("GPUNodeClass", name, None, {"providers": [entry]})
    pool = _object("GPUNodePool", name, target.namespace, {"nodeClassRef": {"name": name}})
    said.changed("Its pool has no limits: set limits.maxNodes and limits.maxHourlyCost as you like.")
    return Migration(manifests=(node_class, pool), notes=tuple(said.found), values=values)


def _seconds(text: str) -> str | None:
    """A duration as Forebay writes it; the controller took bare seconds."""
    written = f"{text}s" if text.isdecimal() else text
    try:
        duration(written)
    except NotADuration:
        return None
    return written


def _count(text: str) -> str | None:
    return text if text.isdecimal() else None


def _price(text: str) -> str | None:
    try:
        price = UsdPerHour(text)
    except ValueError:
        return None
    return text if price > UsdPerHour("0") else None


_READ: Final[Mapping[str, Callable[[str], str | None]]] = {
    "number of seconds": _seconds,
    "count": _count,
    "price": _price,
}


def _containers(document: Document) -> list[Document]:
    template = mapping(mapping(document, "spec"), "template")
    return [each for each in items(mapping(template, "spec"), "containers") if isinstance(each, dict)]


def _groups(container: Document) -> dict[str, str]:
    """The variables of a container that names machines; empty where it names none."""
    found = {
        str(each["name"]): str(each["value"])
        for each in items(container, "env")
        if isinstance(each, dict) and "name" in each and "value" in each
    }
    return found if any(name.endswith(_GROUP_SUFFIX) for name in found) else {}


def _is_controller(document: Document, container: Document) -> bool:
    words = (mapping(document, "metadata").get("name"), container.get("image"), *items(container, "command"))
    return any(name in str(word) for name in _CONTROLLERS for word in words)


def _flags(container: Document) -> Iterator[tuple[str, str]]:
    """Flags with their values, in the forms of Go: -flag=value, --flag value."""
    words = [str(each) for each in (*items(container, "command"), *items(container, "args"))]
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            continue
        flag, equals, value = word.lstrip("-").partition("=")
        yield flag, value if equals else next(rest, "")


def _key(container: Document) -> dict[str, str] | None:
    for each in items(container, "env"):
        reference = mapping(mapping(each, "valueFrom"), "secretKeyRef") if isinstance(each, dict) else {}
        if reference and each.get("name") in _KEYS:
            return {"name": str(reference.get("name", "")), "key": str(reference.get("key", ""))}
    for each in items(container, "envFrom"):
        reference = mapping(each, "secretRef") if isinstance(each, dict) else {}
        if reference:
            return {"name": str(reference.get("name", "")), "key": _KEYS[0]}
    return None


def _provider(target: MigrationTarget, delivery: Delivery) -> str:
    """The provider of this release that delivers so."""
    found = sorted(name for name, each in target.capabilities.items() if delivery in each.deliveries)
    # A provider of simulations may deliver in every way.
    return min(found, key=lambda name: (len(target.capabilities[name].deliveries), name), default="")


def _object(kind: str, name: str, namespace: str | None, spec: Document) -> Document:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
