"""What providers deliver, offer and list, in types that all rooms share.

A *source* is one provider as configured by one GPUNodeClass, or by environment variables (class "").
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint

#: Stands for an unknown amount of a resource that every machine has: a machine whose memory is not known yet must not
#: count as one without memory.
AMPLE: Final = 2**50


class Delivery(StrEnum):
    NODE = "Node"
    CONTAINER = "Container"
    POWER = "Power"


class SourceKey(NamedTuple):
    #: Name of the GPUNodeClass; "" for machines from environment variables.
    node_class: str
    provider: str


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """Billing terms: the least time that is billed, and the steps after that."""

    minimum: timedelta = timedelta(0)
    increment: timedelta = timedelta(seconds=1)


class OfferKey(NamedTuple):
    """Key under which cooldowns of an offer are kept."""

    provider: str
    instance_type: str
    region: str
    zone: str
    spot: bool


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A type of machine or container that can be launched now, with the node that it would become."""

    provider: str
    #: The provider's name for the machine type or GPU; or the name of the owned machine.
    instance_type: str
    region: str | None = None
    zone: str | None = None
    spot: bool = False
    gpu_type: str | None = None
    gpu_count: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    gpu_memory_gib: int | None = None
    price: UsdPerHour
    #: How many can be launched; None where the provider does not say.
    stock: int | None = None
    #: What pods can use: capacity less kubelet reservations. AMPLE where the amount is unknown.
    allocatable: Resources
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    billing: Billing = Billing()
    #: Average number of reclaims by the provider in a million hours; an integer, to stay exact.
    reclaims_per_million_hours: int = 0
    #: Time from the launch call to a ready node, where known.
    boot: timedelta | None = None
    #: Time from the launch call until it must be a ready node with its GPUs, where configured for this machine.
    boot_deadline: timedelta | None = None
    #: Name of the node of an owned machine. None where Forebay chooses the name.
    node_name: str | None = None

    @property
    def key(self) -> OfferKey:
        return OfferKey(self.provider, self.instance_type, self.region or "", self.zone or "", self.spot)


class InstancePhase(StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    #: Exists, does not run, and may still be billed (a stopped disk).
    STOPPED = "Stopped"
    #: A container that has exited by itself.
    FINISHED = "Finished"
    #: Being terminated or powered off, and not gone yet.
    ENDING = "Ending"


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One machine or container as its provider lists it. Only those tagged with this cluster are listed."""

    id: str
    phase: InstancePhase
    #: UID of the GPUInstance it was launched for, from its tags. None: the tags name only the cluster.
    owner: str | None = None
    price: UsdPerHour | None = None
    created: datetime | None = None
    node_name: str | None = None
    provider_id: str | None = None
    exit_code: int | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A complete listing: an instance that is not in it does not exist. A provider that is not sure raises."""

    instances: tuple[Instance, ...] = ()
    #: Ids that may or may not exist (an owned machine without a status endpoint).
    unknown: frozenset[str] = frozenset()


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The last successful listing of a source."""

    #: When the request was sent: later launches need not be in the listing.
    asked: datetime
    found: Found


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the core must know of a provider. Each provider sets its own values, in its folder."""

    delivers: Delivery
    #: Whether a launch repeated under the same identity returns the same instance, never a second one.
    idempotent_launch: bool = False
    #: How long a listing may lag: a launch that no listing shows for longer than this never happened.
    settle_time: timedelta = timedelta(minutes=2)
    #: Deadlines: launch call to running instance, then to a node, then to allocatable GPUs.
    launch_deadline: timedelta = timedelta(minutes=10)
    join_deadline: timedelta = timedelta(minutes=15)
    gpu_deadline: timedelta = timedelta(minutes=10)
    #: Launch and termination calls are given up after this long. The provider may give up earlier by itself.
    call_timeout: timedelta = timedelta(seconds=60)
    #: Interval between listings while no launch or termination is in progress.
    poll: timedelta = timedelta(seconds=30)

    def of(self, offer: Offer) -> "Capabilities":
        """The capabilities for one offer: a machine may have a boot deadline of its own."""
        return self if offer.boot_deadline is None else replace(self, join_deadline=offer.boot_deadline)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One provider as configured by one class, with its latest offers and listing."""

    key: SourceKey
    capabilities: Capabilities
    #: Larger is worse: prices are compared as price x (1 + 0.1 x priority).
    priority: int = 0
    #: Whether new capacity may come from this source.
    enabled: bool = True
    #: None until the first listing: nothing may be concluded from absence.
    listing: Listing | None = None
    #: None until the provider has answered.
    offers: tuple[Offer, ...] | None = None
    #: What is wrong now, and what to do about it.
    error: str | None = None


class FailureKind(StrEnum):
    """Kinds of provider errors, by what the caller must do."""

    NO_CAPACITY = "NoCapacity"
    RATE_LIMITED = "RateLimited"
    OUTCOME_UNKNOWN = "OutcomeUnknown"
    GONE = "InstanceGone"
    BAD_CREDENTIALS = "BadCredentials"
    REJECTED = "Rejected"
    UNAVAILABLE = "Unavailable"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a provider call, as data."""

    kind: FailureKind
    sentence: str
    retry_after: timedelta | None = None
