"""What providers deliver, offer and list, in types that all rooms share.

A *source* is one provider as configured by one GPUNodeClass.
"""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint

#: Stands for an unknown amount of a resource that every machine has: a machine whose memory is not known yet must not
#: count as one without memory.
AMPLE: Final = 2**50
#: Resources of every node, besides its GPUs: clouds state nominal sizes, and only the node knows what is left for pods.
SIZES: Final = ("cpu", "memory", "ephemeral-storage", "pods")


class Delivery(StrEnum):
    """How capacity arrives. `lifecycle.deliveries` has one policy for each; nothing else asks which one it is."""

    #: A rented machine that joins the cluster.
    NODE = "Node"
    #: A remote container that runs one pod.
    CONTAINER = "Container"
    #: An owned machine that is powered on.
    POWER = "Power"

    @property
    def has_node(self) -> bool:
        """Whether the instance becomes a node of its own."""
        return self is not Delivery.CONTAINER


#: What a provider delivers of which nothing is known but its prices.
USUAL_DELIVERY: Final = Delivery.NODE


class Join(StrEnum):
    """How a rented machine joins the cluster, by the field of a GPUNodeClass that says so."""

    TALOS = "talosConfig"
    K3S = "k3sConfig"
    KUBEADM = "kubeadmConfig"
    CLOUD_INIT = "cloudInit"


class Identity(StrEnum):
    """Where a provider keeps the identity of what it launched, so that `instances` can return it as `owner`."""

    #: In tags or labels, which also hold the tags of the class.
    TAGS = "Tags"
    #: In the name or an environment variable: there are no tags.
    NAME = "Name"
    #: Nowhere: the machine is configured, and its name is its identity.
    MACHINE = "Machine"


#: What the key of a NodeProvisioner's groups begins with. No GPUNodeClass has a slash in its name.
_OF_PROVISIONER: Final = "nodeprovisioner/"


class SourceKey(NamedTuple):
    #: Name of the GPUNodeClass; "" for offers that `forebay plan` reads from a table, without a class.
    node_class: str
    provider: str

    @classmethod
    def of_provisioner(cls, name: str, provider: str) -> "SourceKey":
        """The source of the instance groups that a NodeProvisioner sizes."""
        return cls(_OF_PROVISIONER + name, provider)

    @property
    def provisioner(self) -> str | None:
        """Name of the NodeProvisioner whose instance groups the source is; None for a source of a class."""
        return self.node_class.removeprefix(_OF_PROVISIONER) if self.node_class.startswith(_OF_PROVISIONER) else None


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """Billing terms: the least time that is billed, and the steps after that."""

    minimum: timedelta = timedelta(0)
    increment: timedelta = timedelta(seconds=1)


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """At most so many requests in any such span, by the provider's documentation."""

    requests: int
    per: timedelta


class ZoneKey(NamedTuple):
    """Key under which cooldowns of a zone are kept: a zone of one source, or a region that has no zones."""

    node_class: str
    provider: str
    place: str


class OfferKey(NamedTuple):
    """Key under which cooldowns of an offer are kept."""

    provider: str
    instance_type: str
    region: str
    zone: str
    spot: bool


class SourcePoolKey(NamedTuple):
    """Key under which cooldowns of one pool at one source are kept; or of a NodeProvisioner, without a namespace."""

    namespace: str
    pool: str
    node_class: str
    provider: str


#: What may cool down. No two of these are equal, because they differ in length.
CooldownKey = OfferKey | ZoneKey | SourceKey | SourcePoolKey


def cooldown_keys(
    source: SourceKey, offer: OfferKey, pool: tuple[str, str] = ("", "")
) -> tuple[OfferKey, ZoneKey, SourcePoolKey, SourceKey]:
    """What keeps an offer of this source from being tried for the pool while it cools down, the narrowest first."""
    zone = ZoneKey(source.node_class, source.provider, offer.zone or offer.region)
    return offer, zone, SourcePoolKey(*pool, *source), source


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
    #: Date of a list price that comes with Forebay, because the provider's API has none. None: a live price.
    price_as_of: date | None = None
    #: How many can be launched; None where the provider does not say. A listing of a marketplace is one machine.
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
    #: None: the first delivery of its provider.
    delivers: Delivery | None = None

    @property
    def key(self) -> OfferKey:
        return OfferKey(self.provider, self.instance_type, self.region or "", self.zone or "", self.spot)


class InstancePhase(StrEnum):
    #: Accepted, and not running yet: a machine that boots, a container whose image is pulled.
    STARTING = "Starting"
    RUNNING = "Running"
    #: Exists, does not run, and may still be billed (a stopped disk).
    STOPPED = "Stopped"
    #: A container that has exited by itself, with `exit_code` where the provider says it.
    FINISHED = "Finished"
    #: Cannot run or cannot go on (the image cannot be pulled, the machine failed to boot), and may still be billed.
    FAILED = "Failed"
    #: Being terminated or powered off, and not gone yet.
    ENDING = "Ending"


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One machine or container as its provider lists it. Only those tagged with this cluster are listed."""

    id: str
    phase: InstancePhase
    #: UID of the GPUInstance it was launched for, from its tags. None: the tags name only the cluster.
    owner: str | None = None
    #: The price that is billed, where the provider reports it.
    price: UsdPerHour | None = None
    created: datetime | None = None
    #: False: the provider tells that it costs nothing any more, though it exists, as a container that has exited.
    billed: bool = True
    node_name: str | None = None
    #: The spec.providerID that its node will have, where the provider defines one.
    provider_id: str | None = None
    #: Of a container that has finished.
    exit_code: int | None = None
    #: What the provider says about its phase, such as why it failed. Text of the provider, without secrets.
    message: str | None = None
    #: A reclaim notice: when the provider takes it back.
    reclaim_at: datetime | None = None
    #: When the provider ends it because it was ordered for so long.
    ends_at: datetime | None = None
    #: None: the first delivery of its provider.
    delivers: Delivery | None = None


class ListedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """An instance group as its provider lists it. Its members are among the instances of the listing."""

    name: str
    #: How many members the group tries to have.
    target: int
    #: What a member is, where the provider tells.
    offer: Offer | None = None
    #: Why members could not be created so far, by their names; the group goes on trying.
    failures: Mapping[str, "Failure"] = {}
    #: Whether the group names new members itself.
    chooses_names: bool = False


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A complete listing: an instance that is not in it does not exist. A provider that is not sure raises."""

    instances: tuple[Instance, ...] = ()
    #: Ids that may or may not exist (an owned machine without a status endpoint).
    unknown: frozenset[str] = frozenset()
    #: When the billing of instances ended that do not exist any more, by id, where the provider tells.
    ended: Mapping[str, datetime] = {}
    #: The instance groups, where the source is that of a NodeProvisioner.
    groups: tuple[ListedGroup, ...] = ()
    #: What the provider keeps for this cluster beside machines although it has none that needs it, such as an SSH key,
    #: in words. It deletes these itself; until then the class must stay, whose credentials it needs for that.
    leftovers: tuple[str, ...] = ()
    #: The account that was listed: its id, or a fingerprint of the credentials where the provider does not tell that.
    #: What another account has is not in it. None: the provider has no accounts.
    account: str | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The last successful listing of a source."""

    #: When the request was sent: later launches need not be in the listing.
    asked: datetime
    found: Found
    #: When the answer came: what is missing had ended by then. None: at once.
    answered: datetime | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the core must know of a provider. Each provider sets its own values, in its folder."""

    #: What it delivers; the first one holds for offers and instances that name none.
    deliveries: tuple[Delivery, ...]
    #: How its rented machines can be told to join the cluster. Empty: containers, and machines that are installed.
    joins: frozenset[Join] = frozenset()
    #: Whether its rented machines are given a shell script at boot, and no cloud-init user data.
    takes_script: bool = False
    #: Whether a GPUNodeClass must say how the rented machines join.
    needs_join: bool = False
    #: Whether credentialsRef is required. Other providers use Forebay's own identity, or need none.
    needs_credentials: bool = False
    #: Whether its entry in a GPUNodeClass lists the machines; entries of other providers must not.
    lists_machines: bool = False
    #: Whether it has instance groups that a NodeProvisioner can size.
    has_groups: bool = False
    #: Whether it has offers that it may reclaim at any time.
    spot: bool = False
    identity: Identity = Identity.TAGS
    #: Whether a launch repeated under the same identity returns the same instance, never a second one.
    idempotent_launch: bool = False
    #: Whether it ends an instance by itself after `LaunchRequest.max_run_time`, so that nothing outlives Forebay.
    dead_man_switch: bool = False
    #: Whether it makes things beside machines, which `Found.leftovers` tells of.
    has_leftovers: bool = False
    #: Billing terms of instances whose offer is not known, such as those that were found.
    billing: Billing = Billing()
    #: Whether billing ends with an accepted termination call: what no later listing shows was billed until then.
    billed_until_accepted: bool = False
    #: How long a listing may lag: a launch that no listing shows for longer than this never happened.
    settle_time: timedelta = timedelta(minutes=2)
    #: Deadlines: launch call to running instance, then to a node, then to allocatable GPUs.
    launch_deadline: timedelta = timedelta(minutes=10)
    join_deadline: timedelta = timedelta(minutes=15)
    gpu_deadline: timedelta = timedelta(minutes=10)
    #: Launch and termination calls are given up after this long. The provider may give up earlier by itself.
    call_timeout: timedelta = timedelta(seconds=60)
    #: Launch and termination calls of one source in flight at the same time.
    max_calls: int = 16
    #: Shortest time between two launch calls of one source.
    launch_interval: timedelta = timedelta(0)
    #: What the account may send. Transports made by `providers.pacing` keep to it.
    rate_limits: tuple[RateLimit, ...] = ()
    #: Interval between listings while no launch or termination is in progress.
    poll: timedelta = timedelta(seconds=30)
    #: Interval between listings while a launch or termination waits for the next one.
    fast_poll: timedelta = timedelta(seconds=2)
    #: Interval between requests for offers.
    offers_poll: timedelta = timedelta(seconds=60)

    def of(self, offer: Offer) -> "Capabilities":
        """The capabilities for one offer: a machine may have a boot deadline of its own."""
        return self if offer.boot_deadline is None else replace(self, join_deadline=offer.boot_deadline)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the provider can be used as configured."""

    ok: bool
    #: What was checked, and what to do where it failed.
    sentence: str


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
    #: When the provider was first asked, as it is configured now; None where nobody asks it (a file of offers).
    since: datetime | None = None
    #: What is wrong now, and what to do about it.
    error: str | None = None
    #: The error is that of refused credentials: nothing gets better before somebody corrects these.
    credentials_refused: bool = False
    #: Result of the last check of credentials, permissions and reachability; None before the first one.
    check: Check | None = None
    #: Versions of the class's entry and of the Secrets that the provider has read so far: where one has changed since
    #: a failure, its cause may be mended.
    revision: Mapping[str, str] = {}
    #: Why nothing may be launched as the class is written, and what to correct. Its machines are managed all the same.
    problem: str | None = None

    @property
    def error_reason(self) -> Reason:
        return Reason.BAD_CREDENTIALS if self.credentials_refused else Reason.PROVIDER_UNAVAILABLE

    def delivery_of(self, found: Offer | Instance) -> Delivery:
        return found.delivers or self.capabilities.deliveries[0]


class FailureKind(StrEnum):
    """Kinds of provider errors, by what the caller must do."""

    NO_CAPACITY = "NoCapacity"
    QUOTA = "ProviderQuota"
    RATE_LIMITED = "RateLimited"
    OUTCOME_UNKNOWN = "OutcomeUnknown"
    GONE = "InstanceGone"
    BAD_CREDENTIALS = "BadCredentials"
    REJECTED = "Rejected"
    UNAVAILABLE = "Unavailable"


class FailureScope(StrEnum):
    """What a failure speaks against: how much cools down."""

    #: What was ordered for one pod: its image, a template, credentials. Other pods may have the offer meanwhile.
    ORDER = "Order"
    OFFER = "Offer"
    #: Every offer of the source in the offer's zone, or in its region where that has no zones.
    ZONE = "Zone"
    #: Every offer of the source, for the pool or NodeProvisioner of the record: none of its machines becomes a usable
    #: node.
    POOL = "Pool"
    #: Every offer of the source: its credentials, its quota or the provider itself.
    SOURCE = "Source"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a provider call, as data."""

    kind: FailureKind
    sentence: str
    scope: FailureScope = FailureScope.OFFER
    retry_after: timedelta | None = None
