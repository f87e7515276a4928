"""Nodes of the embedded cluster: how to register one, and the annotations that say how its kubelet behaves.

On a Node:
- `embedded.forebay.dev/kubelet: none` (or the label `type: virtual-kubelet`): somebody else is its kubelet, and must
  renew its Lease in kube-node-lease or its Ready condition; `dead`: its kubelet has stopped answering.
- `embedded.forebay.dev/ready-after: 30s`: how long after it was registered it becomes Ready. At once without it.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from forebay.api.values import NotADuration, duration
from forebay.embedded.api.kinds import NODE_KIND
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store

KUBELET = "embedded.forebay.dev/kubelet"
READY_AFTER = "embedded.forebay.dev/ready-after"

_PODS_BY_DEFAULT = "110"


@lru_cache
def annotation_seconds(text: str, what: str) -> float:
    """What an annotation says, or ValueError."""
    try:
        return duration(text).total_seconds()
    except NotADuration as error:
        raise ValueError(f"{what}: {error}") from None


def has_kubelet(node: Json) -> bool:
    """The embedded kubelet runs the pods of this node (or did, until it died)."""
    meta = node["metadata"]
    virtual = (meta.get("labels") or {}).get("type") == "virtual-kubelet"
    return not virtual and (meta.get("annotations") or {}).get(KUBELET) != "none"


def kubelet_alive(node: Json) -> bool:
    return has_kubelet(node) and (node["metadata"].get("annotations") or {}).get(KUBELET) != "dead"


def register_node(
    store: Store,
    name: str,
    *,
    allocatable: Mapping[str, str | int],
    capacity: Mapping[str, str | int] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    provider_id: str | None = None,
    address: str | None = None,
    ready_after: float = 0.0,
) -> Json:
    """What a kubelet does when its machine joins. The Node as created; it turns Ready `ready_after` seconds later."""
    offered = {"pods": _PODS_BY_DEFAULT, **{resource: str(amount) for resource, amount in allocatable.items()}}
    owned = {"pods": _PODS_BY_DEFAULT, **{resource: str(amount) for resource, amount in (capacity or offered).items()}}
    told = dict(annotations or {})
    if ready_after > 0:
        told[READY_AFTER] = f"{ready_after:f}s"
    known = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    node: Json = {
        "metadata": {"name": name, "labels": {**known, **(labels or {})}, "annotations": told},
        "spec": {
            **({"providerID": provider_id} if provider_id else {}),
            **({"taints": [dict(taint) for taint in taints]} if taints else {}),
        },
        "status": {
            "capacity": owned,
            "allocatable": offered,
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
            "nodeInfo": {"kubeletVersion": "embedded", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }
    return store.create(NODE_KIND, node)
