"""Nodes as capacity planning sees them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from forebay.model.quantities import Resources
from forebay.model.requirements import Taint

#: Taints that a new node carries until it is initialized: by the node lifecycle controller (which removes its own a
#: moment after the node has become Ready), by a cloud, by the node-readiness-controller.
_NOT_YET_READY: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
_READINESS: Final = "readiness.k8s.io/"
#: Prefixes of the taints that come and go with a node's condition. A machine boots without them.
CONDITION_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", _READINESS)


def is_startup_taint(key: str) -> bool:
    """Whether Kubernetes itself removes a taint with this key as soon as the node can take pods."""
    return key in _NOT_YET_READY or key.startswith(_READINESS)


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    uid: str
    resource_version: int
    created: datetime
    labels: Mapping[str, str]
    #: Only annotations under prefixes that Forebay uses.
    annotations: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    #: Cordoned.
    unschedulable: bool = False
    capacity: Resources
    #: What pods may request: capacity less what the kubelet reserves.
    allocatable: Resources
    #: Whether the Ready condition is True, and since when. Unknown counts as not ready.
    ready: bool
    ready_since: datetime | None = None
    #: Since when the Ready condition is not True, where that is known.
    unready_since: datetime | None = None
    #: Deletion timestamp.
    deleted: datetime | None = None
    #: `<provider>://<instance>`, once the kubelet or a cloud controller has set it.
    provider_id: str | None = None
    #: As (type, address): ("InternalIP", "10.0.0.7").
    addresses: tuple[tuple[str, str], ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return ("", self.name)
