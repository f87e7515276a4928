"""Nodes of the embedded cluster: registration, and the annotations that say how a node's kubelet behaves.

On a Node:
- `embedded.forebay.dev/kubelet: none` (or the label `type: virtual-kubelet`): the node has another kubelet, which must
  renew the node's Lease in kube-node-lease or its Ready condition; `dead`: the embedded kubelet has stopped answering.
- `embedded.forebay.dev/ready-after: 30s`: the node becomes Ready this long after its registration. Default: at once.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from forebay.api.values import NotADuration, duration
from forebay.embedded.api.kinds import NODE_KIND
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store

KUBELET = "embedded.forebay.dev/kubelet"
READY_AFTER = "embedded.forebay.dev/ready-after"

_DEFAULT_PODS = "110"


@lru_cache
def annotation_seconds(text: str, what: str) -> float:
    """The duration in an annotation's value, in seconds. `what` names the annotation in the ValueError."""
    try:
        return duration(text).total_seconds()
    except NotADuration as error:
        raise ValueError(f"{what}: {error}") from None


def has_kubelet(node: Json) -> bool:
    """Whether the embedded kubelet runs the pods of this node, or did until it died."""
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
    """Creates the Node as a kubelet does when its machine joins; it becomes Ready `ready_after` seconds later."""
    node_allocatable = {"pods": _DEFAULT_PODS, **{resource: str(amount) for resource, amount in allocatable.items()}}
    node_capacity = {
        "pods": _DEFAULT_PODS,
        **{resource: str(amount) for resource, amount in (capacity or node_allocatable).items()},
    }
    all_annotations = dict(annotations or {})
    if ready_after > 0:
        all_annotations[READY_AFTER] = f"{ready_after:f}s"
    own_labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    node: Json = {
        "metadata": {"name": name, "labels": {**own_labels, **(labels or {})}, "annotations": all_annotations},
        "spec": {
            **({"providerID": provider_id} if provider_id else {}),
            **({"taints": [dict(taint) for taint in taints]} if taints else {}),
        },
        "status": {
            "capacity": node_capacity,
            "allocatable": node_allocatable,
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
            "nodeInfo": {"kubeletVersion": "embedded", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }
    return store.create(NODE_KIND, node)
