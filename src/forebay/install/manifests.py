"""Manifests of the operator: what `forebay manifests install` prints, and the defaults of the Helm chart.

`docs/helm_chart.py` writes the chart's default values from the constants here; `tests/unit/deploy` checks that the
chart with those values renders the same objects.
"""

from collections.abc import Sequence
from typing import Any, Final

from forebay import __version__
from forebay.api.names import (
    NODEPOOL_LABEL,
    OPERATOR_NAME,
    OPERATOR_NAMESPACE,
    PROVIDER_LABEL,
    PROVISIONER_LABEL,
    VIRTUAL_RUNTIME_CLASS,
    VIRTUAL_TAINT,
)
from forebay.install.admission_policies import admission_policies
from forebay.install.joining import join_manifests
from forebay.install.operator_policies import operator_account, operator_policies
from forebay.install.roles import rbac_manifests, reader_roles, view_role

Json = dict[str, Any]

#: Name of the image that the Dockerfile builds. Users push it to a registry of their own.
REPOSITORY: Final = "forebay"
IMAGE: Final = f"{REPOSITORY}:{__version__}"
REPLICAS: Final = 2
PORT: Final = 8080
#: Of /metrics, by HTTPS and for token holders.
METRICS_PORT: Final = 8443
#: Of the dashboard, where the chart is told to serve it.
WEB_PORT: Final = 8444
#: Port of the virtual node, as of every kubelet: the default of `--log-server-address`.
KUBELET_PORT: Final = 10250
LABELS: Final = {"app.kubernetes.io/name": OPERATOR_NAME, "app.kubernetes.io/instance": OPERATOR_NAME}

#: Informers take 250 MB for 100,000 pods; the rest is for planning. No CPU limit: a throttled leader loses its Lease.
RESOURCES: Final[Json] = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}

#: As the Pod Security Standard "restricted" requires. 65532 is the user of the image.
POD_SECURITY: Final[Json] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final[Json] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

#: Who may reach the port of metrics, as peers of a NetworkPolicy, besides the kubelets: pods of the
#: operator's namespace, and the usual namespace of Prometheus.
SCRAPERS: Final[list[Json]] = [
    {"podSelector": {}},
    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
]

#: The operator must not run on nodes with these labels: there its own pod would keep a machine in use. Machines that
#: are named by environment variables or were powered on by hand belong to no pool, but have their provider's label.
MANAGED_NODE_LABELS: Final = (NODEPOOL_LABEL, PROVISIONER_LABEL, PROVIDER_LABEL)


def install_manifests(
    namespace: str = OPERATOR_NAMESPACE,
    image: str = IMAGE,
    *,
    secrets: Sequence[str] = (),
    budget_policies: str | None = None,
    budgets: bool = True,
    offload: bool = False,
) -> list[Json]:
    """All manifests but the CRDs, in an order in which they can be created.

    `secrets` are the Secrets that the operator may read. `budget_policies` is the version of MutatingAdmissionPolicies
    that the cluster serves; None leaves them out. Without `budgets` the operator runs with `--budgets off`; with
    `offload` it may run Jobs remotely.
    """
    operator = (
        _deployment(namespace, image, budgets=budgets, offload=offload),
        _disruption_budget(namespace),
        _service(namespace),
        _network_policy(namespace, offload=offload),
    )
    return [
        *rbac_manifests(namespace, secrets, budgets=budgets, offload=offload),
        *reader_roles(),
        view_role(),
        *join_manifests(namespace),
        *operator,
        *operator_policies(operator_account(namespace)),
        *((_runtime_class(),) if offload else ()),
        *(admission_policies(budget_policies) if budget_policies is not None and budgets else ()),
    ]


def _manifest(api_version: str, kind: str, namespace: str, spec: Json) -> Json:
    metadata = {"name": OPERATOR_NAME, "namespace": namespace, "labels": dict(LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _deployment(namespace: str, image: str, *, budgets: bool, offload: bool) -> Json:
    spec = {
        "replicas": REPLICAS,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": dict(LABELS)},
        "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod(image, budgets=budgets, offload=offload)},
    }
    return _manifest("apps/v1", "Deployment", namespace, spec)


def _pod(image: str, *, budgets: bool, offload: bool) -> Json:
    kubelet = [{"name": "kubelet", "containerPort": KUBELET_PORT}] if offload else []
    switched_off = [] if budgets else [{"name": "FOREBAY_BUDGETS", "value": "off"}]
    not_managed = [{"key": label, "operator": "DoesNotExist"} for label in MANAGED_NODE_LABELS]
    return {
        "serviceAccountName": OPERATOR_NAME,
        "securityContext": POD_SECURITY,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": not_managed}]
                }
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(LABELS)},
            }
        ],
        "containers": [
            {
                "name": OPERATOR_NAME,
                "image": image,
                "args": ["run"],
                "env": [
                    *switched_off,
                    {"name": "FOREBAY_HEALTH_SERVER_ADDRESS", "value": f":{PORT}"},
                    {"name": "FOREBAY_METRICS_BIND_ADDRESS", "value": f":{METRICS_PORT}"},
                ],
                "ports": [
                    {"name": "http", "containerPort": PORT},
                    {"name": "metrics", "containerPort": METRICS_PORT},
                    *kubelet,
                ],
                "livenessProbe": _probe("/healthz", every=10),
                "readinessProbe": _probe("/readyz", every=5),
                "resources": RESOURCES,
                "securityContext": CONTAINER_SECURITY,
                # OpenSSL reads client certificates only from files, so Forebay writes temporary ones.
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 (the pod's own)
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }


def _probe(path: str, *, every: int) -> Json:
    return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": every, "timeoutSeconds": 5}


def _disruption_budget(namespace: str) -> Json:
    # maxUnavailable, not minAvailable: a single replica must not block the drain of its node.
    return _manifest(
        "policy/v1",
        "PodDisruptionBudget",
        namespace,
        {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": dict(LABELS)},
        },
    )


def _service(namespace: str) -> Json:
    ports = [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}]
    return _manifest("v1", "Service", namespace, {"selector": dict(LABELS), "ports": ports})


def _network_policy(namespace: str, *, offload: bool) -> Json:
    # Probes come from the node, which no NetworkPolicy keeps out.
    ingress: list[Json] = [{"from": SCRAPERS, "ports": [{"port": "metrics"}]}]
    if offload:
        # API servers are no pods, and need not run on a node: their certificate is asked for instead.
        ingress.append({"ports": [{"port": "kubelet"}]})
    spec = {"podSelector": {"matchLabels": dict(LABELS)}, "policyTypes": ["Ingress"], "ingress": ingress}
    return _manifest("networking.k8s.io/v1", "NetworkPolicy", namespace, spec)


def _runtime_class() -> Json:
    """The RuntimeClass that pods may name which are to run remotely: no other node takes them."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": VIRTUAL_RUNTIME_CLASS, "labels": dict(LABELS)},
        "handler": VIRTUAL_RUNTIME_CLASS,
        "scheduling": {
            "nodeSelector": {VIRTUAL_TAINT: "true"},
            "tolerations": [{"key": VIRTUAL_TAINT, "operator": "Exists", "effect": "NoSchedule"}],
        },
    }
