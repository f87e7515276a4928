"""What is said between the provider and a market, as JSON.

    GET    /v1/account                          who asks
    GET    /v1/offers                           MarketOffers
    POST   /v1/instances      MarketOrder       MarketInstance
    GET    /v1/instances?cluster=UID&page=N     MarketListing
    DELETE /v1/instances/{id}                   202; 404 once it is gone
    GET    /v1/instances/{id}/logs              MarketLog
    GET    /v1/groups/{name}                    MarketGroup
    POST   /v1/groups/{name}/grow    MarketNames    202
    POST   /v1/groups/{name}/shrink  MarketNames    202

A refusal is a MarketRefusal. Amounts of money are decimal text, times RFC 3339.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from forebay.model.sources import Delivery, InstancePhase

ACCOUNT: Final = "/v1/account"
OFFERS: Final = "/v1/offers"
INSTANCES: Final = "/v1/instances"
GROUPS: Final = "/v1/groups"


class _Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Fields that are unknown to one side are ignored by it."""


class MarketGood(_Wire, frozen=True, kw_only=True):
    """What an offer says, and the market's own catalogue too."""

    instance_type: str
    hourly_price: str
    gpu_type: str | None = None
    gpu_memory_gib: int | None = None
    region: str | None = None
    zone: str | None = None
    spot: bool = False
    #: None: the market does not say.
    stock: int | None = None
    reclaims_per_million_hours: int = 0
    delivers: Delivery = Delivery.NODE


class MarketOffer(MarketGood, frozen=True, kw_only=True):
    """Something that can be rented."""

    gpu_count: int
    #: Kubernetes quantities.
    allocatable: Mapping[str, str] = {}
    minimum_seconds: int = 0
    increment_seconds: int = 1
    boot_seconds: int | None = None


class MarketOffers(_Wire, frozen=True, kw_only=True):
    offers: tuple[MarketOffer, ...]


class MarketTaint(_Wire, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str


class MarketNode(_Wire, frozen=True, kw_only=True):
    """The node that a machine is to become: its image reads this where the boot payload says nothing else."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[MarketTaint, ...] = ()


class MarketContainer(_Wire, frozen=True, kw_only=True):
    """The container to run. May hold secrets."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"MarketContainer({self.image})"


class MarketOrder(_Wire, frozen=True, kw_only=True):
    """One launch. May hold secrets."""

    instance_type: str
    region: str | None = None
    zone: str | None = None
    spot: bool = False
    #: Tags: the cluster, and the GPUInstance that it is launched for.
    cluster: str
    owner: str
    name: str
    tags: Mapping[str, str] = {}
    node: MarketNode | None = None
    container: MarketContainer | None = None
    boot: str | None = None
    image: str | None = None
    #: The market ends it by itself after so long.
    max_run_seconds: int | None = None

    def __repr__(self) -> str:
        return f"MarketOrder({self.instance_type} for {self.name})"


class MarketInstance(_Wire, frozen=True, kw_only=True):
    id: Annotated[str, msgspec.Meta(min_length=1)]
    phase: InstancePhase
    cluster: str
    owner: str
    hourly_price: str
    created: datetime
    delivers: Delivery = Delivery.NODE
    node_name: str | None = None
    provider_id: str | None = None
    exit_code: int | None = None
    message: str | None = None
    reclaim_at: datetime | None = None


class MarketListing(_Wire, frozen=True, kw_only=True):
    instances: tuple[MarketInstance, ...] = ()
    #: When instances ended that are not listed any more, by id.
    ended: Mapping[str, datetime] = {}
    #: Number of the next page.
    next: int | None = None


class MarketMember(_Wire, frozen=True, kw_only=True):
    """A member of an instance group."""

    name: str
    #: None while the group could not create it.
    instance: MarketInstance | None = None
    #: Why it could not, as in a refusal.
    code: str = ""
    message: str = ""


class MarketGroup(_Wire, frozen=True, kw_only=True):
    target: int
    members: tuple[MarketMember, ...] = ()
    #: When members ended that are not listed any more, by name.
    ended: Mapping[str, datetime] = {}
    offer: MarketOffer


class MarketNames(_Wire, frozen=True, kw_only=True):
    """Members to add or to delete."""

    names: tuple[str, ...]


class MarketLogLine(_Wire, frozen=True, kw_only=True):
    at: datetime
    text: str


class MarketLog(_Wire, frozen=True, kw_only=True):
    lines: tuple[MarketLogLine, ...] = ()
    #: More lines may follow.
    open: bool = False


class RefusalCode(StrEnum):
    """Why a market refuses, where the HTTP status does not say it all."""

    NO_CAPACITY = "no-capacity"
    ZONE_FULL = "zone-full"
    QUOTA = "quota"


class MarketRefusal(_Wire, frozen=True, kw_only=True):
    code: str = ""
    message: str = ""
