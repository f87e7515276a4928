"""The values of the Helm chart: each with its default, its rule and its meaning, once.

From this one table come `values.yaml`, `values.schema.json` and the reference page (`docs/helm_chart.py`). What the
operator itself declares elsewhere is taken from there: its settings, the fields of a machine, the defaults of its pod.
"""

from typing import Any, Final

from forebay.api.crd import custom_resource_definitions
from forebay.install import manifests
from forebay.providers.webhook.groups import VARIABLES
from forebay.settings import Setting, all_settings

Schema = dict[str, Any]

_URL: Final = {"type": "string", "pattern": "^https?://[^ ]+$", "maxLength": 2048}
_DURATION: Final = {"type": "string", "pattern": "^([0-9]{1,7}([.][0-9]{1,6})?(ms|s|m|h))+$"}
_QUANTITY: Final = {
    "type": ["number", "string"],
    "pattern": "^[0-9]+([.][0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$",
    "exclusiveMinimum": 0,
}
_DOLLARS: Final = {"type": ["number", "string"], "pattern": "^[0-9]{1,9}([.][0-9]{1,6})?$", "minimum": 0}
_NAME: Final = {
    "type": "string",
    "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    "maxLength": 253,
}

_SECRET_KEY: Final = {"type": "string", "pattern": "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[-._a-zA-Z0-9]+$"}

#: What the API server judges by rules, JSON Schema judges by patterns. Secrets are of the release's namespace, for no
#: other may be read.
_RULES: Final[dict[str, Schema]] = {
    "gpuCount": {"type": ["integer", "string"], "pattern": "^[1-9][0-9]{0,8}$", "minimum": 1},
    "scaleUpEndpoint": _URL,
    "scaleDownEndpoint": _URL,
    "statusEndpoint": _URL,
    "headersSecret": _NAME,
    "hmacSecret": _SECRET_KEY,
    "timeout": _DURATION,
    "bootTimeout": _DURATION,
    "tlsCaSecret": _SECRET_KEY,
    "tlsClientCertificateSecret": _NAME,
    "cpu": _QUANTITY,
    "memory": _QUANTITY,
    "hourlyPrice": _DOLLARS,
}

#: These the chart sets itself, or they have no meaning in a pod.
_NOT_OFFERED: Final = {"kubeconfig", "context", "namespace", "health_server_address"}


def _map(description: str, **schema: Any) -> Schema:
    """Kubernetes' own types: the API server judges what is inside."""
    return {"type": "object", "default": {}, "description": description} | schema


def _list(description: str, items: Schema | None = None) -> Schema:
    return {"type": "array", "default": [], "items": items or {"type": "object"}, "description": description}


def _text(description: str, **schema: Any) -> Schema:
    return {"type": "string", "default": "", "description": description} | schema


def _parts(description: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "properties": properties,
    }


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def offered_settings() -> tuple[Setting, ...]:
    return tuple(each for each in all_settings() if each.command in {None, "run"} and each.name not in _NOT_OFFERED)


def _setting(setting: Setting) -> Schema:
    rule: Schema = {"type": "string", "enum": list(setting.choices)}
    if not setting.choices:
        rule = {"type": ["string", "number", "boolean"]}
    default = "" if setting.default is None else f" Default: `{setting.default}`."
    return rule | {"description": f"{setting.description}{default}"}


def _machine_field(path: tuple[str, ...]) -> Schema:
    (node_class,) = (each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == "GPUNodeClass")
    spec = node_class["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found: Schema = spec["properties"]["providers"]["items"]["properties"]["machines"]["items"]
    for name in path:
        found = found["properties"][name]
    return found


def _plain(schema: Schema) -> Schema:
    """Without what only Kubernetes understands."""
    kept = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "format"}
    if "items" in kept:
        kept["items"] = _plain(kept["items"])
    if "properties" in kept:
        kept["properties"] = {name: _plain(each) for name, each in kept["properties"].items()}
        kept["additionalProperties"] = False
    return kept


def _group() -> Schema:
    """The variables of a group, under the names that become them: `bootTimeout` becomes `..._BOOT_TIMEOUT`."""
    properties: dict[str, Schema] = {}
    for suffix, variable in VARIABLES.items():
        name = camel(suffix.removeprefix("_").lower())
        rule = _RULES.get(name)
        field = _plain(_machine_field(variable.path))
        if rule is not None:
            field = {key: field[key] for key in ("description", "default") if key in field} | rule
        if rule is _SECRET_KEY:
            field["description"] = f"NAME/KEY of a Secret. {field['description']}"
        elif rule is _NAME:
            field["description"] = f"NAME of a Secret. {field['description']}"
        properties[name] = field
    required = [camel(suffix.removeprefix("_").lower()) for suffix, each in VARIABLES.items() if each.required]
    return _parts("One machine.", **properties) | {"required": [*required, "gpuCount"]}


def values_schema() -> Schema:
    """JSON Schema of all values. Whatever has no `default` here is unset unless the user sets it."""
    properties: dict[str, Schema] = {
        "image": _parts(
            "The operator's image.",
            repository=_text(
                "Registry and name of the image that you built from the Dockerfile.",
                default=manifests.REPOSITORY,
                minLength=1,
            ),
            tag=_text("Tag, also with a digest: `1.2.3@sha256:...`. Default: the version of the chart."),
            pullPolicy={
                "type": "string",
                "enum": ["Always", "IfNotPresent", "Never"],
                "description": "Default: Always for the tag `latest`, else IfNotPresent.",
            },
        ),
        "imagePullSecrets": _list("Secrets for a private registry: `[{name: ...}]`."),
        "nodeGroups": _list("Machines you own, each switched on and off by HTTP calls.", _group()),
        "settings": _parts(
            "Settings of the operator (docs/reference/cli.md).",
            **{camel(each.name): _setting(each) for each in offered_settings()},
        ),
        "secrets": _list(
            "Secrets of the release's namespace that the operator may read, beside those that nodeGroups name."
            " Empty: any Secret of that namespace, and of no other.",
            _NAME,
        ),
        "extraEnv": _list("More environment variables, as in a container: `[{name: ..., value: ...}]`."),
        "replicaCount": {
            "type": "integer",
            "minimum": 0,
            "default": manifests.REPLICAS,
            "description": "One leads, the others stand by with warm views and take over within seconds.",
        },
        "port": {
            "type": "integer",
            "minimum": 1024,
            "maximum": 65535,
            "default": manifests.PORT,
            "description": "Where the operator serves /healthz, /readyz and /metrics.",
        },
        "service": _parts(
            "The Service in front of that port.",
            annotations=_map("Annotations, such as those by which your Prometheus finds what to scrape."),
        ),
        "serviceMonitor": _parts(
            "For clusters with the Prometheus operator.",
            enabled={"type": "boolean", "default": False, "description": "Create a ServiceMonitor."},
            interval=_DURATION | {"default": "30s", "description": "How often metrics are read."},
            labels=_map("Labels by which your Prometheus picks ServiceMonitors."),
        ),
        "serviceAccount": _parts(
            "The account that the operator works under.",
            create={"type": "boolean", "default": True, "description": "Create it."},
            name=_text("Default: the name of the release. Needed when create is false."),
            annotations=_map("Annotations, such as a cloud's workload identity."),
        ),
        "rbac": _parts(
            "The least roles that the operator works with.",
            create={"type": "boolean", "default": True, "description": "Create them and bind them to the account."},
        ),
        "uninstall": _parts(
            "What happens before the release is uninstalled.",
            enabled={
                "type": "boolean",
                "default": True,
                "description": "Run `forebay uninstall` as a Job, which takes Forebay's marks off pods, Jobs, classes. "
                "While machines are on it fails, and with it helm uninstall: its log says which.",
            },
            leaveMachines={
                "type": "boolean",
                "default": False,
                "description": "Also while machines are on: they stay on, and are yours to end.",
            },
        ),
        "resources": _map(
            "What the container asks for. No CPU limit: a throttled leader loses its lease.",
            default=manifests.RESOURCES,
        ),
        "podSecurityContext": _map(
            "Security of the pod. On OpenShift, which chooses users itself, set runAsUser and runAsGroup to null.",
            default=manifests.POD_SECURITY,
        ),
        "securityContext": _map("Security of the container.", default=manifests.CONTAINER_SECURITY),
        "podDisruptionBudget": _parts(
            "How many replicas a drain may take away at once.",
            enabled={"type": "boolean", "default": True, "description": "Create a PodDisruptionBudget."},
            maxUnavailable={
                "type": ["integer", "string"],
                "minimum": 1,
                "pattern": "^[1-9][0-9]?%$|^100%$",
                "default": 1,
                "description": "At least 1: a budget of 0 would block every drain of the node.",
            },
        ),
        "topologySpreadConstraints": _list("Default: replicas on different nodes, where there are."),
        "priorityClassName": _text("PriorityClass of the pods."),
        "nodeSelector": _map("Labels of the nodes that the operator may run on."),
        "tolerations": _list("Taints that the operator's pods tolerate."),
        "affinity": _map(
            "Affinity of the pods. Where it has no nodeAffinity, they keep off the nodes that Forebay gives back and"
            " off the machines of nodeGroups: the operator's own pod would keep such a machine on."
        ),
        "podAnnotations": _map("Annotations of the pods."),
        "podLabels": _map("More labels of the pods."),
        "fullnameOverride": _text(
            "Name of everything that the chart creates. Default: the release's, with forebay in it.", maxLength=52
        ),
        "global": {"type": "object", "description": "Helm passes this to charts of charts; Forebay has no use for it."},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the Forebay chart",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
