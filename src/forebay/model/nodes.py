"""Nodes as capacity planning sees them."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from forebay.model.quantities import Resources
from forebay.model.requirements import Taint


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    uid: str
    resource_version: int
    created: datetime
    labels: Mapping[str, str]
    #: Only those under prefixes that mean something to Forebay.
    annotations: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    #: Cordoned.
    unschedulable: bool = False
    capacity: Resources
    #: What pods may ask for: the capacity less what the kubelet keeps for itself.
    allocatable: Resources
    #: Its Ready condition is True, and since when. A node of which nothing is known (Unknown) is not ready.
    ready: bool
    ready_since: datetime | None = None
    #: Since when it has not been, where it tells.
    unready_since: datetime | None = None
    #: When it was asked to go.
    deleted: datetime | None = None
    #: `<provider>://<instance>`, once the machine or a cloud controller has said so.
    provider_id: str | None = None
    #: As (type, address): ("InternalIP", "10.0.0.7").
    addresses: tuple[tuple[str, str], ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return ("", self.name)
