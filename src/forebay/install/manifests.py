"""The operator as Kubernetes runs it: what `forebay manifests install` prints, and the defaults of the Helm chart.

`docs/helm_chart.py` writes the chart's default values from the constants here; `tests/unit/deploy` holds that the chart
with those values renders the same objects.
"""

from typing import Any, Final

from forebay import __version__
from forebay.api.names import NODEPOOL_LABEL, OPERATOR_NAME, OPERATOR_NAMESPACE, PROVIDER_LABEL, PROVISIONER_LABEL
from forebay.install.admission_policies import admission_policies
from forebay.install.permissions import rbac_manifests

Json = dict[str, Any]

#: The name under which the Dockerfile's image is built; where it is pushed to is the user's choice.
REPOSITORY: Final = "forebay"
IMAGE: Final = f"{REPOSITORY}:{__version__}"
REPLICAS: Final = 2
PORT: Final = 8080
LABELS: Final = {"app.kubernetes.io/name": OPERATOR_NAME, "app.kubernetes.io/instance": OPERATOR_NAME}

#: 100,000 pods are watched in 250 MB; the rest is room for planning. No CPU limit: throttled renewals lose the lease.
RESOURCES: Final[Json] = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}

#: What the Pod Security Standard "restricted" asks for. The number is the image's user.
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

#: Never on a node that Forebay itself gives back: there the operator's own pod would keep a paid machine busy. Machines
#: that the environment names or that were switched on by hand are in no pool, but each has its provider's label.
NOT_ON_NODES_OF_OURS: Final = (NODEPOOL_LABEL, PROVISIONER_LABEL, PROVIDER_LABEL)


def install_manifests(namespace: str = OPERATOR_NAMESPACE, image: str = IMAGE, *, policies: bool = True) -> list[Json]:
    """Everything but the CRDs, in the order in which it can be created. Not every cluster serves the `policies`:
    they come last.
    """
    operator = (_deployment(namespace, image), _disruption_budget(namespace), _service(namespace))
    return [*rbac_manifests(namespace), *operator, *(admission_policies() if policies else ())]


def _made(api_version: str, kind: str, namespace: str, spec: Json) -> Json:
    metadata = {"name": OPERATOR_NAME, "namespace": namespace, "labels": dict(LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _deployment(namespace: str, image: str) -> Json:
    spec = {
        "replicas": REPLICAS,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": dict(LABELS)},
        "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod(image)},
    }
    return _made("apps/v1", "Deployment", namespace, spec)


def _pod(image: str) -> Json:
    elsewhere = [{"key": label, "operator": "DoesNotExist"} for label in NOT_ON_NODES_OF_OURS]
    return {
        "serviceAccountName": OPERATOR_NAME,
        "securityContext": POD_SECURITY,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": elsewhere}]
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
                "env": [{"name": "FOREBAY_HEALTH_SERVER_ADDRESS", "value": f":{PORT}"}],
                "ports": [{"name": "http", "containerPort": PORT}],
                "livenessProbe": _probe("/healthz", every=10),
                "readinessProbe": _probe("/readyz", every=5),
                "resources": RESOURCES,
                "securityContext": CONTAINER_SECURITY,
                # Certificates pass through a temporary file: OpenSSL reads them from nowhere else.
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 (the pod's own)
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}}],
    }


def _probe(path: str, *, every: int) -> Json:
    return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": every, "timeoutSeconds": 5}


def _disruption_budget(namespace: str) -> Json:
    # One replica too few is fine, so that a single one never blocks the drain of its node either.
    return _made(
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
    ports = [{"name": "http", "port": PORT, "targetPort": "http"}]
    return _made("v1", "Service", namespace, {"selector": dict(LABELS), "ports": ports})
