"""What providers deliver, offer and show, in the words that all rooms share.

A *source* is one provider as one GPUNodeClass configures it (or as the environment does: class "").
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint

#: Stands for an amount that nobody has stated, of a resource every machine has: a machine whose memory is not known
#: yet must not be taken for one without any.
AMPLE: Final = 2**50


class Delivery(StrEnum):
    NODE = "Node"
    CONTAINER = "Container"
    POWER = "Power"


class SourceKey(NamedTuple):
    #: Name of the GPUNodeClass; "" for machines that the environment names.
    node_class: str
    provider: str


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """Bought time comes in these pieces."""

    minimum: timedelta = timedelta(0)
    increment: timedelta = timedelta(seconds=1)


class OfferKey(NamedTuple):
    """What a refusal is remembered under."""

    provider: str
    instance_type: str
    region: str
    zone: str
    spot: bool


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of machine or container that can be had now, as a node would be of it."""

    provider: str
    #: Name of the machine type, GPU id, or owned machine.
    instance_type: str
    region: str | None = None
    zone: str | None = None
    spot: bool = False
    gpu_type: str | None = None
    gpu_count: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    gpu_memory_gib: int | None = None
    price: UsdPerHour
    #: How many can be had; None where the provider does not tell.
    stock: int | None = None
    #: What pods can use of it, less what the kubelet keeps. AMPLE where nobody has stated it.
    allocatable: Resources
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    billing: Billing = Billing()
    #: How often per hour, on average, the provider takes such an instance back: in millionths, to stay exact.
    reclaims_per_million_hours: int = 0
    #: From the call to a ready node, as far as is known.
    boot: timedelta | None = None
    #: By when it must be a ready node with its GPUs, where the user has said so for this very machine.
    boot_deadline: timedelta | None = None
    #: An owned machine is one node and keeps its name. None where Forebay chooses the name.
    node_name: str | None = None

    @property
    def key(self) -> OfferKey:
        return OfferKey(self.provider, self.instance_type, self.region or "", self.zone or "", self.spot)


class InstancePhase(StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    #: Exists, does no work, and may still be billed (a stopped disk).
    STOPPED = "Stopped"
    #: A container that has ended by itself.
    FINISHED = "Finished"
    #: Asked to go and not gone yet.
    ENDING = "Ending"


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One machine or container as its provider lists it. Only those that carry this cluster's mark."""

    id: str
    phase: InstancePhase
    #: UID of the GPUInstance it was launched for, as its mark says. None: the mark names only the cluster.
    owner: str | None = None
    price: UsdPerHour | None = None
    created: datetime | None = None
    node_name: str | None = None
    provider_id: str | None = None
    exit_code: int | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A complete listing: what is not in it is not there. A provider that cannot say so raises instead."""

    instances: tuple[Instance, ...] = ()
    #: Ids of which nothing is known: neither there nor absent (an owned machine without a status endpoint).
    unknown: frozenset[str] = frozenset()


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What a source showed when it was last asked with success."""

    #: When it was asked: later launches need not be in it.
    asked: datetime
    found: Found


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the core must know of a provider. The figures are the provider's own, in its folder."""

    delivers: Delivery
    #: A launch repeated under the same identity gives the same instance, never a second one.
    idempotent_launch: bool = False
    #: A launch that no listing shows for longer than this never happened.
    settle: timedelta = timedelta(minutes=2)
    #: From the call to a running instance, to a node, to its GPUs being allocatable: each from the one before.
    launch_deadline: timedelta = timedelta(minutes=10)
    join_deadline: timedelta = timedelta(minutes=15)
    gpu_deadline: timedelta = timedelta(minutes=10)
    #: How often its listing is asked for while nothing is under way.
    poll: timedelta = timedelta(seconds=30)

    def of(self, offer: Offer) -> "Capabilities":
        """These, with the deadline of a machine that has one of its own."""
        return self if offer.boot_deadline is None else replace(self, join_deadline=offer.boot_deadline)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One provider as one class configures it, and what is known of it."""

    key: SourceKey
    capabilities: Capabilities
    #: Larger is worse: prices count x (1 + 0.1 x priority).
    priority: int = 0
    #: New capacity may come from it.
    enabled: bool = True
    #: None until it has been listed: nothing may be concluded from absence.
    listing: Listing | None = None
    #: None until they are known.
    offers: tuple[Offer, ...] | None = None
    #: What is wrong with it now, and what to do.
    error: str | None = None


class FailureKind(StrEnum):
    """What the caller of a provider must do."""

    NO_CAPACITY = "NoCapacity"
    RATE_LIMITED = "RateLimited"
    OUTCOME_UNKNOWN = "OutcomeUnknown"
    GONE = "InstanceGone"
    BAD_CREDENTIALS = "BadCredentials"
    REJECTED = "Rejected"
    UNAVAILABLE = "Unavailable"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's error as data."""

    kind: FailureKind
    sentence: str
    retry_after: timedelta | None = None
