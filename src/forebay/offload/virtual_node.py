"""The virtual node as an object of the cluster: remote pods are bound to it, and nothing else may run there."""

from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from forebay.api.names import VIRTUAL_NODE, VIRTUAL_TAINT
from forebay.model.requirements import Effect

#: Labels of the node. `type` is what tools that skip virtual nodes look for.
LABELS: Final = {
    "type": "virtual-kubelet",
    VIRTUAL_TAINT: "true",
    "kubernetes.io/hostname": VIRTUAL_NODE,
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    # Load balancers and cloud controllers leave such nodes out.
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}
#: Namespace of the Leases of nodes.
LEASE_NAMESPACE: Final = "kube-node-lease"
#: Seconds after which the control plane takes a node for lost whose Lease nobody renews.
LEASE_SECONDS: Final = 40
RENEW_EVERY: Final = timedelta(seconds=10)
_HEALTHY: Final = {
    "MemoryPressure": "There is no memory of its own.",
    "DiskPressure": "There is no disk of its own.",
    "PIDPressure": "There are no processes of its own.",
    "NetworkUnavailable": "There is no network of its own.",
}


class LogEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server asks for logs: an address of the operator that leads."""

    address: str
    port: int


def virtual_node() -> dict[str, Any]:
    """The Node to create. Its taint keeps the scheduler away: pods are bound by Forebay alone."""
    return {
        "metadata": {"name": VIRTUAL_NODE, "labels": dict(LABELS)},
        "spec": {"taints": [{"key": VIRTUAL_TAINT, "value": "true", "effect": Effect.NO_SCHEDULE.value}]},
    }


def node_status(
    since: datetime, now: datetime, *, most_pods: int, endpoint: LogEndpoint | None, version: str
) -> dict[str, Any]:
    """The status as a strategic merge patch. `since`: when it became ready.

    Nothing of the node is allocatable. A GPU that nobody can be scheduled to must not count as free; and a scheduler
    would place pods there that tolerate every taint and request nothing, if there were room for one: they would never
    run. Forebay's own binding asks for no room.
    """
    capacity = {"pods": str(most_pods), "cpu": "0", "memory": "0"}
    conditions = [
        _condition("Ready", "True", "RemotePodsServed", "Forebay runs its pods remotely.", since=since, now=now)
    ]
    conditions += [
        _condition(kind, "False", "NotApplicable", message, since=since, now=now) for kind, message in _HEALTHY.items()
    ]
    status: dict[str, Any] = {
        "capacity": capacity,
        "allocatable": dict.fromkeys(capacity, "0"),
        "conditions": conditions,
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "kubeletVersion": version,
            "osImage": "Remote containers",
            "containerRuntimeVersion": "remote://1",
            "kernelVersion": "",
            "kubeProxyVersion": "",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }
    if endpoint is not None:
        # No Hostname: the API server would prefer it, and it resolves nowhere.
        status["addresses"] = [{"type": "InternalIP", "address": endpoint.address}]
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": endpoint.port}}
    return status


def _condition(kind: str, status: str, reason: str, message: str, *, since: datetime, now: datetime) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": _time(since),
        "lastHeartbeatTime": _time(now),
    }


def _time(at: datetime) -> str:
    return at.replace(microsecond=0).isoformat().replace("+00:00", "Z")
