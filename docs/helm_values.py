"""The values of the Helm chart, each with its default, schema and description.

`docs/helm_chart.py` makes `values.yaml`, `values.schema.json` and the reference page from this table. Settings, fields
of a machine and defaults of the pod are taken from the code that declares them.
"""

from typing import Any, Final

from forebay.install import manifests
from forebay.install.crds import custom_resource_definitions
from forebay.providers.webhook.groups import VARIABLES
from forebay.settings import Setting, all_settings

Schema = dict[str, Any]

_URL: Final = {"type": "string", "pattern": "^https?://[^ ]+$", "maxLength": 2048}
_DURATION: Final = {"type": "string", "pattern": "^([0-9]{1,7}([.][0-9]{1,6})?(ms|s|m|h))+$"}
#: As Prometheus reads durations: no fractions, and the larger unit first.
_SCRAPE_DURATION: Final = {
    "type": "string",
    "pattern": "^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?([0-9]{1,7}ms)?$",
    "minLength": 2,
}
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

_PORT: Final = {"type": "integer", "minimum": 1024, "maximum": 65535}
_SECRET_KEY: Final = {"type": "string", "pattern": "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[-._a-zA-Z0-9]+$"}

#: Values with parts that are left to their defaults where nothing is left of them: their headline alone is null.
_MAY_BE_NULL: Final = {"healthProbe", "leaderElection", "settings"}

#: Patterns that stand for the validation rules of the CRD. Secrets have no namespace here: the operator may only read
#: those of the release's namespace.
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

#: What the text of a setting must be. Helm has read a number where somebody left out the quotes.
_FORMS: Final[dict[str, Schema]] = {
    "duration": {
        "type": ["string", "integer"],
        "pattern": "^(0|([0-9]{1,7}([.][0-9]{1,6})?(ms|s|m|h))+)$",
        "minimum": 0,
        "maximum": 0,
    },
    "count": {"type": ["integer", "string"], "pattern": "^[0-9]{1,9}$", "minimum": 0},
    "price": {"type": ["number", "string"], "pattern": "^[0-9]{1,9}([.][0-9]{1,6})?$", "exclusiveMinimum": 0},
    "address or 0": {
        "type": ["string", "integer"],
        "pattern": "^(0|[^ ]*:[0-9]{1,5})$",
        "minimum": 0,
        "maximum": 0,
    },
}
#: Settings that follow from the values `metrics` and `web`.
_OF_PORTS: Final = {
    "metrics_bind_address",
    "metrics_secure",
    "metrics_cert_path",
    "metrics_cert_name",
    "metrics_cert_key",
    "web_address",
}
#: Settings that the chart sets itself, or that have no meaning in a pod.
_NOT_OFFERED: Final = {"kubeconfig", "context", "namespace", "health_server_address", "budgets", *_OF_PORTS}


def _map(description: str, **schema: Any) -> Schema:
    """An object of a Kubernetes type, whose content only the API server validates."""
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
    rule: Schema = {"type": "string"}
    if set(setting.choices) == {"on", "off"}:
        # YAML reads an unquoted `on` as true.
        rule = {"type": ["string", "boolean"], "pattern": "^(on|off)$"}
    elif setting.choices:
        rule["enum"] = list(setting.choices)
    elif setting.form is not None:
        rule = _FORMS[setting.form]
    default = "" if setting.default is None else f" Default: `{setting.default}`."
    return rule | {"description": f"{setting.description}{default}"}


def _machine() -> Schema:
    """One machine of a GPUNodeClass."""
    (node_class,) = (each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == "GPUNodeClass")
    spec = node_class["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    machine: Schema = spec["properties"]["providers"]["items"]["properties"]["machines"]["items"]
    return machine


def _field(schema: Schema, path: tuple[str, ...]) -> Schema:
    for name in path:
        schema = schema["properties"][name]
    return schema


def _plain(schema: Schema) -> Schema:
    """The schema without extensions of Kubernetes."""
    kept = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "format"}
    if "items" in kept:
        kept["items"] = _plain(kept["items"])
    if "properties" in kept:
        kept["properties"] = {name: _plain(each) for name, each in kept["properties"].items()}
        kept["additionalProperties"] = False
    return kept


def _group() -> Schema:
    """One item of `nodeGroups`. Its keys become environment variables: `bootTimeout` becomes `..._BOOT_TIMEOUT`."""
    machine, properties = _machine(), dict[str, Schema]()
    for suffix, variable in VARIABLES.items():
        name = camel(suffix.removeprefix("_").lower())
        rule = _RULES.get(name)
        field = _plain(_field(machine, variable.path))
        if rule is not None:
            field = {key: field[key] for key in ("description", "default") if key in field} | rule
        if rule is _SECRET_KEY:
            field["description"] = f"NAME/KEY of a Secret. {field['description']}"
        elif rule is _NAME:
            field["description"] = f"NAME of a Secret. {field['description']}"
        properties[name] = field
    required = [camel(suffix.removeprefix("_").lower()) for suffix, each in VARIABLES.items() if each.required]
    return _parts("One machine.", **properties) | {"required": [*required, "gpuCount"]}


def _monitor(*, defaults: bool) -> dict[str, Schema]:
    """What can be said about the ServiceMonitor, with or without default values."""
    found: dict[str, Schema] = {
        "enabled": {"type": "boolean", "default": False, "description": "Create a ServiceMonitor."},
        "interval": _SCRAPE_DURATION | {"default": "30s", "description": "Scrape interval."},
        "scrapeTimeout": _SCRAPE_DURATION
        | {"default": "10s", "description": "How long one scrape may take; no longer than the interval."},
        "scheme": {
            "type": "string",
            "enum": ["http", "https"],
            "description": "How Prometheus asks. Default, and all that works: https with metrics.secure, else http.",
        },
        "insecureSkipVerify": {
            "type": "boolean",
            "default": True,
            "description": "Let Prometheus accept any certificate, such as one signed by itself. Set it to false with "
            "metrics.certSecret.",
        },
        "tlsConfig": {
            "type": "object",
            "description": "tlsConfig of the endpoint, such as `{ca: {secret: {name: ..., key: ca.crt}}, serverName: "
            "...}`. Default: by insecureSkipVerify.",
        },
        "labels": _map("Labels that your Prometheus selects ServiceMonitors by."),
    }
    if not defaults:
        return {name: {key: one for key, one in each.items() if key != "default"} for name, each in found.items()}
    return found


def values_schema() -> Schema:
    """JSON Schema of all values. A value without `default` is unset unless the user sets it."""
    properties: dict[str, Schema] = {
        "image": _parts(
            "The operator's image.",
            repository=_text(
                "Registry and name of the image you built from the Dockerfile.",
                default=manifests.REPOSITORY,
                pattern="^([^ @]+/)?[^ :/@]+$",
            ),
            tag=_text(
                "Tag, optionally with a digest: `1.2.3@sha256:...`. Default: the version of the chart.",
                pattern="^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(@sha256:[0-9a-f]{64})?)?$",
            ),
            pullPolicy={
                "type": "string",
                "enum": ["Always", "IfNotPresent", "Never"],
                "description": "Default: Always for the tag `latest`, else IfNotPresent.",
            },
        ),
        "imagePullSecrets": _list("Secrets for a private registry: `[{name: ...}]`."),
        "nodeGroups": _list("Machines you own, powered on and off by HTTP calls.", _group()),
        "settings": _parts(
            "Settings of the operator (docs/reference/cli.md).",
            **{camel(each.name): _setting(each) for each in offered_settings()},
        ),
        "budgets": _parts(
            "GPUWorkloadBudgets.",
            enabled={
                "type": "boolean",
                "default": True,
                "description": "Serve GPUWorkloadBudgets. Without them the operator gets no permission for Jobs, and "
                "the admission policies of budgets are left out. Delete the budgets before you switch them off: Jobs "
                "that one has suspended are then resumed.",
            },
        ),
        "offload": _parts(
            "Jobs marked `runpod.io/managed` that may run as remote containers.",
            enabled={
                "type": "boolean",
                "default": False,
                "description": "Grant the operator what it needs as the kubelet of the virtual node: to create that "
                "node, bind pods to it, write their status, and read and mark Jobs.",
            },
        ),
        "secrets": _list(
            "Names of Secrets in the release's namespace that the operator may read, besides those that nodeGroups"
            " name: those that GPUNodeClasses name. The chart grants no access to other Secrets.",
            _NAME,
        ),
        "extraEnv": _list("Additional environment variables, as in a container: `[{name: ..., value: ...}]`."),
        "replicaCount": {
            "type": "integer",
            "minimum": 0,
            "default": manifests.REPLICAS,
            "description": "Replicas, with leader election; a standby takes over within seconds.",
        },
        "port": {
            **_PORT,
            "default": manifests.PORT,
            "description": "Port of /healthz and /readyz, which the kubelet probes.",
        },
        "healthProbe": _parts(
            "gpu-k8s-operator's name for `port`.",
            port=_PORT | {"description": "Port of /healthz and /readyz; comes before `port`."},
        ),
        "terminationGracePeriodSeconds": {
            "type": "integer",
            "minimum": 1,
            "description": "How long a replica may take to stop. Default: that of Kubernetes, 30 seconds. Forebay "
            "needs up to 15 to record the outcome of calls under way and to release the Lease.",
        },
        "leaderElection": _parts(
            "Leader election, as gpu-k8s-operator's chart has it.",
            enabled={
                "type": "boolean",
                "enum": [True],
                "default": True,
                "description": "Always true: Forebay acts only while it holds a Lease.",
            },
        ),
        "metrics": _parts(
            "Metrics for Prometheus.",
            port=_PORT | {"default": manifests.METRICS_PORT, "description": "Port of /metrics."},
            secure={
                "type": "boolean",
                "default": True,
                "description": "Serve metrics by HTTPS, and only for tokens of users who may `get` the non-resource "
                "URL `/metrics`: bind the ClusterRole `<release>-metrics-reader` to your Prometheus. false: plain HTTP "
                "for whoever reaches the port.",
            },
            certSecret=_text(
                "Secret of type kubernetes.io/tls with the certificate of metrics and dashboard, as cert-manager makes "
                "it. Default: a certificate signed by itself, made at each start."
            ),
            service=_parts(
                "Metrics in the Service.",
                enabled={
                    "type": "boolean",
                    "default": True,
                    "description": "Have the port of metrics in the Service, which a ServiceMonitor needs.",
                },
                port={
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 65535,
                    "description": "Port of metrics at the Service. Default: `metrics.port`.",
                },
            ),
            serviceMonitor=_parts(
                "The ServiceMonitor, where gpu-k8s-operator's chart has it. What is set here comes before "
                "`serviceMonitor`.",
                **_monitor(defaults=False),
            ),
        ),
        "web": _parts(
            "The dashboard.",
            enabled={
                "type": "boolean",
                "default": False,
                "description": "Serve the dashboard by HTTPS, for tokens of users who may `get` the non-resource URL "
                "`/forebay/dashboard` (ClusterRole `<release>-dashboard-reader`). A browser asks for the token as a "
                "password: `kubectl create token`.",
            },
            port=_PORT | {"default": manifests.WEB_PORT, "description": "Port of the dashboard."},
        ),
        "service": _parts(
            "The Service for the ports of metrics and dashboard.",
            annotations=_map("Annotations, such as those that your Prometheus discovers scrape targets by."),
        ),
        "serviceMonitor": _parts(
            "For clusters with the Prometheus operator.",
            **_monitor(defaults=True),
        ),
        "prometheusRule": _parts(
            "Alerts, for clusters with the Prometheus operator.",
            enabled={"type": "boolean", "default": False, "description": "Create a PrometheusRule."},
            labels=_map("Labels that your Prometheus selects PrometheusRules by."),
        ),
        "dashboards": _parts(
            "Grafana dashboards: operator, money, budgets.",
            enabled={"type": "boolean", "default": False, "description": "Create a ConfigMap with the dashboards."},
            labels=_map(
                "Labels that the sidecar of your Grafana selects ConfigMaps by.", default={"grafana_dashboard": "1"}
            ),
        ),
        "networkPolicy": _parts(
            "NetworkPolicy of these ports. Probes of the kubelet are always let in.",
            enabled={"type": "boolean", "default": True, "description": "Create a NetworkPolicy."},
            scrapers={
                "type": "array",
                "default": manifests.SCRAPERS,
                "items": {"type": "object"},
                "description": "Who may reach the ports, as peers of a NetworkPolicy: add the namespace of your "
                "Prometheus. Empty: nobody.",
            },
        ),
        "serviceAccount": _parts(
            "The ServiceAccount of the operator.",
            create={"type": "boolean", "default": True, "description": "Create the ServiceAccount."},
            name=_text("Name. Default: that of the release. Required when create is false."),
            annotations=_map("Annotations, such as a cloud's workload identity."),
        ),
        "rbac": _parts(
            "The roles of the operator.",
            create={
                "type": "boolean",
                "default": True,
                "description": "Create the roles and bind them to the ServiceAccount.",
            },
        ),
        "uninstall": _parts(
            "Clean-up before the release is uninstalled.",
            enabled={
                "type": "boolean",
                "default": True,
                "description": "Run `forebay uninstall` as a Job: it removes finalizers and gates and resumes "
                "suspended Jobs. While machines are on, the Job and helm uninstall fail; the Job's log names them.",
            },
            leaveMachines={
                "type": "boolean",
                "default": False,
                "description": "Uninstall even while machines are on. They stay on, and you have to power them off.",
            },
        ),
        "resources": _map(
            "Resources of the container. No CPU limit, because a throttled leader loses its Lease.",
            default=manifests.RESOURCES,
        ),
        "podSecurityContext": _map(
            "Security context of the pod. OpenShift assigns users itself: set runAsUser and runAsGroup to null there.",
            default=manifests.POD_SECURITY,
        ),
        "securityContext": _map("Security context of the container.", default=manifests.CONTAINER_SECURITY),
        "podDisruptionBudget": _parts(
            "PodDisruptionBudget of the replicas.",
            enabled={"type": "boolean", "default": True, "description": "Create a PodDisruptionBudget."},
            maxUnavailable={
                "type": ["integer", "string"],
                "minimum": 1,
                "pattern": "^[1-9][0-9]?%$|^100%$",
                "default": 1,
                "description": "Replicas that may be evicted at once. At least 1: 0 would block every drain.",
            },
        ),
        "topologySpreadConstraints": _list("Spread of the replicas. Default: different nodes, where possible."),
        "priorityClassName": _text("PriorityClass of the pods."),
        "nodeSelector": _map("Labels of the nodes that the operator may run on."),
        "tolerations": _list("Taints that the operator's pods tolerate."),
        "affinity": _map(
            "Affinity of the pods. Without nodeAffinity, they avoid the nodes that Forebay manages and the machines of"
            " nodeGroups, because the operator's own pod would keep such a machine on."
        ),
        "podAnnotations": _map("Annotations of the pods."),
        "podLabels": _map(
            "Additional labels of the pods.",
            propertyNames={"not": {"enum": ["app.kubernetes.io/name", "app.kubernetes.io/instance"]}},
        ),
        "fullnameOverride": _text(
            "Name of all objects that the chart creates. Default: the release's name, with forebay in it.",
            pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
            maxLength=52,
        ),
        "global": {"type": "object", "description": "Set by Helm for subcharts; Forebay ignores it."},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the Forebay chart",
        "type": "object",
        "additionalProperties": False,
        # A value that is set to null is none at all for Helm, and templates look into these.
        "required": sorted(name for name in properties.keys() - _MAY_BE_NULL if "properties" in properties[name]),
        "properties": properties,
    }
