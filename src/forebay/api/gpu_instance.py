"""GPUInstance: one machine or container that Forebay launches, from the intent until it is proven gone."""

from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, ClassVar

from msgspec import Meta, field

from forebay.api.declaration import AGE, ColumnType, CustomKind, PrinterColumn
from forebay.api.instance_order import BillingTerms, ContainerRecord, OfferRecord, PlannedNode
from forebay.api.meta import Object
from forebay.api.parts import Figures, Observed, Part, PodRef
from forebay.api.providers import ProviderName
from forebay.api.rules import ATOMIC_LIST, RefusalCause, ValidationRule, immutable, keyed_by
from forebay.api.values import (
    Count,
    Duration,
    Figure,
    NamespaceName,
    ObjectName,
    ShortText,
    duration,
)
from forebay.model.sources import Billing, Delivery, FailureScope

_LongId = Annotated[str, Meta(min_length=1, max_length=512)]


class PoolRef(Part, frozen=True, kw_only=True):
    """A GPUNodePool."""

    namespace: NamespaceName
    """Namespace of the pool."""
    name: ObjectName
    """Name of the pool."""


class ProvisionerRef(Part, frozen=True, kw_only=True):
    """A NodeProvisioner."""

    name: ObjectName
    """Name of the NodeProvisioner."""
    group: ShortText | None = None
    """The instance group of which it is a member; of a machine that was launched from a GPUNodeClass, where it is."""


class ReplacedInstance(Part, frozen=True, kw_only=True):
    """A GPUInstance that another takes the place of."""

    name: ObjectName
    """Name of the GPUInstance."""
    uid: ShortText
    """UID of the GPUInstance."""


class Purpose(StrEnum):
    PODS = "Pods"
    STATIC = "Static"
    GROUP = "Group"
    ADOPTED = "Adopted"


class GPUInstanceSpec(Part, frozen=True, kw_only=True):
    """The intent: written before the provider is called, and never changed."""

    rules: ClassVar = (
        immutable("a GPUInstance is the record of one purchase and cannot be changed"),
        ValidationRule(
            "!(has(self.poolRef) && has(self.provisionerRef))",
            "poolRef and provisionerRef exclude each other",
            reason=RefusalCause.FORBIDDEN,
            field_path=".provisionerRef",
        ),
    )

    purpose: Purpose | None = None
    """Why it exists, and so until when it is wanted. Pods: the pods it was launched for. Static: minNodes of its pool.
    Group: the target of its NodeProvisioner. Adopted: Forebay found it. Absent on those of an earlier release."""
    provider: ProviderName
    """Provider of the instance."""
    delivers: Delivery
    """Node: a rented machine that joins the cluster. Container: a remote container that runs one pod. Power: an owned
    machine that is powered on."""
    pool_ref: PoolRef | None = None
    """The pool it belongs to. Absent for machines of a NodeProvisioner and for orphans."""
    provisioner_ref: ProvisionerRef | None = None
    """The NodeProvisioner it belongs to."""
    node_class_name: ObjectName | None = None
    """The GPUNodeClass it was launched from."""
    offer: OfferRecord | None = None
    """The chosen offer. Absent for orphans."""
    hourly_price: Figure | None = None
    """Price per hour in US dollars at which it was offered."""
    billing: BillingTerms | None = None
    """How it is billed, as agreed at the launch. Absent: by the second, without a minimum."""
    node: PlannedNode | None = None
    """The node that it will become. Absent for containers."""
    container: ContainerRecord | None = None
    """The container that it runs. Absent for machines."""
    image: ShortText | None = None
    """Image that a rented machine boots. Default: the provider's usual one."""
    tags: Annotated[dict[str, Annotated[str, Meta(max_length=255)]], Meta(max_length=32)] = field(default_factory=dict)
    """Tags of the class, where the provider has tags or labels."""
    max_run_time: Duration | None = None
    """The provider ends the instance by itself after this long, where it can."""
    pods: Annotated[tuple[PodRef, ...], Meta(max_length=512), keyed_by("uid")] = ()
    """Pods it was launched for. A container has exactly one: the pod that it runs."""
    replaces: Annotated[tuple[ReplacedInstance, ...], Meta(max_length=16), keyed_by("uid")] = ()
    """GPUInstances whose nodes are drained when this one is Ready. It is wanted while they are to be replaced."""
    template_hash: Annotated[str, Meta(max_length=64)] | None = None
    """Hash of the class and pool at launch. If theirs has changed since, the node has drifted."""
    why: Annotated[str, Meta(max_length=2048)] | None = None
    """Why this offer was chosen, in a sentence."""


class InstanceState(StrEnum):
    REQUESTED = "Requested"
    LAUNCHING = "Launching"
    LAUNCHED = "Launched"
    JOINED = "Joined"
    READY = "Ready"
    RUNNING = "Running"
    FINISHED = "Finished"
    DRAINING = "Draining"
    TERMINATING = "Terminating"
    GONE = "Gone"


_Reason = Annotated[str, Meta(max_length=256)]
_Message = Annotated[str, Meta(max_length=2048)]


class Transition(Part, frozen=True, kw_only=True):
    """One change of the state."""

    state: InstanceState
    """The new state."""
    at: datetime
    """When the state changed."""
    reason: _Reason
    """Why, in one word."""
    message: _Message = ""
    """Why, in a sentence."""


class ResourceLifetime(StrEnum):
    JOINED = "Joined"
    GONE = "Gone"


class SecondaryResource(Part, frozen=True, kw_only=True):
    """A resource created beside the instance that must be deleted again: a bootstrap token, a Tailscale key or device,
    a registry credential, a startup script, a disk, an address. It is listed here before it is created.
    """

    kind: ShortText
    """Kind of the resource, such as BootstrapToken."""
    name: _LongId
    """Name under which it is created and can be found again. Never a secret."""
    id: _LongId | None = None
    """Id where it was created, once known, if that differs from the name. Never a secret."""
    until: ResourceLifetime = ResourceLifetime.GONE
    """Joined: deleted as soon as the machine has joined, or will not join. Gone: deleted with the machine."""
    attempt: Count | None = None
    """The launch call it was created for. A resource of an earlier call is deleted when there is a later one."""
    failures: Count | None = None
    """Number of deletions that failed."""
    retry_at: datetime | None = None
    """Earliest time of the next try to delete it."""


class GPUInstanceStatus(Observed, frozen=True, kw_only=True):
    """Where the instance is between the intent and the proof that it is gone."""

    state: InstanceState | None = None
    """Requested, Launching, Launched, then Joined and Ready for a node or Running and Finished for a container; at last
    Draining, Terminating and Gone. Absent means Requested."""
    reason: _Reason | None = None
    """Why it is in this state, in one word."""
    message: _Message | None = None
    """What happened, why, and what comes next."""
    since: datetime | None = None
    """When it entered this state."""
    deadline: datetime | None = None
    """When this state has lasted too long: Forebay then gives up on the instance or reports it."""
    attempt: Count | None = None
    """Number of launch calls. Counted before each call, so that only one replica makes it."""
    failures: Count | None = None
    """Consecutive failures of this machine or offer. Its cooldown grows with them."""
    failure_scope: FailureScope | None = None
    """What the last failure speaks against, and so what cools down. Order: the offer, for this pod only. Offer. Zone:
    every offer of the class and provider in that zone. Pool: every offer of the class and provider, for its pool
    or NodeProvisioner. Source: every offer of the class and provider. Absent means Offer."""
    failure_revision: Annotated[dict[str, Annotated[str, Meta(max_length=64)]], Meta(max_length=64)] = field(
        default_factory=dict
    )
    """Versions of the provider's configuration and Secrets at the last failure. Where one of them has changed since,
    the cooldown ends."""
    attempted_at: datetime | None = None
    """When the last launch or termination call was made."""
    not_before: datetime | None = None
    """Earliest time of the next call to the provider."""
    termination_attempts: Count | None = None
    """Number of termination calls. Counted before each call."""
    termination_accepted_at: datetime | None = None
    """When the provider last accepted a termination call. Only listings made after that can prove that it is gone."""
    instance_id: _LongId | None = field(name="instanceID", default=None)
    """Id at the provider, as soon as it is known."""
    account: _LongId | None = None
    """The account that it is in: its id, or a fingerprint of the credentials where the provider does not tell that.
    Only listings of this account can prove that it is gone. Never a secret."""
    provider_id: _LongId | None = field(name="providerID", default=None)
    """The spec.providerID of its node."""
    node_name: ObjectName | None = None
    """The node that it became, or the virtual node that its pod is bound to."""
    allocatable: Figures = field(default_factory=dict)
    """CPU, memory, storage and number of pods that its node had for pods when it became Ready. Later machines of the
    same provider, type and join method are planned with that."""
    hourly_price: Figure | None = None
    """Price per hour in US dollars that the provider bills, where it reports one."""
    billed_from: datetime | None = None
    """When billing started."""
    billed_until: datetime | None = None
    """When billing ended."""
    exit_code: int | None = None
    """Exit code of a container that has finished."""
    listed_at: datetime | None = None
    """When a listing showed it: the first one that did, and the first one after a termination call was accepted."""
    absent_since: datetime | None = None
    """Since when the provider's listings do not show it. Cleared when a listing shows it again."""
    absences: Count | None = None
    """Number of consecutive listings that do not show it."""
    absent_at: datetime | None = None
    """When the last of those listings was requested."""
    secondary_resources: Annotated[tuple[SecondaryResource, ...], Meta(max_length=32), keyed_by("kind", "name")] = ()
    """Resources created, or about to be created, beside it. Each is deleted before the record is."""
    transitions: Annotated[tuple[Transition, ...], Meta(max_length=64), ATOMIC_LIST] = ()
    """All changes of state so far, oldest first."""


class GPUInstance(Object, kw_only=True, frozen=True, dict=True):
    """A GPUInstance is one machine or container that Forebay launched, from the intent until it is proven gone. Only
    Forebay writes it. Deleting it terminates the machine; the object is removed when the provider shows that nothing is
    left.
    """

    spec: GPUInstanceSpec
    status: GPUInstanceStatus | None = None

    # Cached: a tick asks thousands of records dozens of times, and a record never changes.
    @cached_property
    def state(self) -> InstanceState:
        return InstanceState.REQUESTED if self.status is None or self.status.state is None else self.status.state

    @cached_property
    def purpose(self) -> Purpose:
        """Why it exists. Records of earlier releases do not say so, but named the pods they were created for."""
        if self.spec.purpose is not None:
            return self.spec.purpose
        if self.spec.provisioner_ref is not None:
            return Purpose.GROUP
        return Purpose.PODS if self.spec.pods else Purpose.ADOPTED

    @cached_property
    def pool_key(self) -> tuple[str, str]:
        """Namespace and name of its pool; ("", "") without one."""
        pool = self.spec.pool_ref
        return ("", "") if pool is None else (pool.namespace, pool.name)

    @cached_property
    def hourly_price(self) -> Figure:
        """Price of an hour while it is there: as it is billed, or else as it was ordered."""
        billed = self.status.hourly_price if self.status is not None else None
        return billed if billed is not None else self.spec.hourly_price or 0

    @cached_property
    def in_instance_group(self) -> bool:
        """Whether it is a member of an instance group of its provider. One of a NodeProvisioner that was launched from
        a GPUNodeClass is not: Forebay alone knows that group.
        """
        return self.spec.provisioner_ref is not None and self.spec.node_class_name is None

    @property
    def billing(self) -> Billing:
        """Terms on which it is billed: those of the order, whatever the provider offers by now."""
        terms, usual = self.spec.billing or BillingTerms(), Billing()
        return Billing(
            minimum=usual.minimum if terms.minimum is None else duration(terms.minimum),
            increment=usual.increment if terms.increment is None else duration(terms.increment),
        )

    @cached_property
    def node_name(self) -> str | None:
        """Name of the node that it is or will become. None for a container, which has no node of its own."""
        if not self.spec.delivers.has_node:
            return None
        known = self.status.node_name if self.status is not None else None
        return known or (self.spec.node.name if self.spec.node is not None else None)


GPU_INSTANCE = CustomKind(
    kind="GPUInstance",
    plural="gpuinstances",
    short_names=("gi",),
    namespaced=False,
    type=GPUInstance,
    columns=(
        PrinterColumn("State", ".status.state"),
        PrinterColumn("Reason", ".status.reason"),
        PrinterColumn("Since", ".status.since", ColumnType.DATE),
        PrinterColumn("Provider", ".spec.provider"),
        PrinterColumn("GPU", ".spec.offer.gpuType"),
        PrinterColumn("GPUs", ".spec.offer.gpuCount", ColumnType.INTEGER),
        PrinterColumn("Price/h", ".spec.hourlyPrice"),
        PrinterColumn("Node", ".status.nodeName"),
        PrinterColumn("For", ".spec.pods[0].name"),
        PrinterColumn("Purpose", ".spec.purpose", wide=True),
        PrinterColumn("Pool", ".spec.poolRef.name", wide=True),
        PrinterColumn("Type", ".spec.offer.instanceType", wide=True),
        PrinterColumn("Region", ".spec.offer.region", wide=True),
        PrinterColumn("Instance", ".status.instanceID", wide=True),
        PrinterColumn("Attempt", ".status.attempt", ColumnType.INTEGER, wide=True),
        PrinterColumn("Message", ".status.message", wide=True),
        AGE,
    ),
    selectable=(".spec.provider", ".spec.delivers", ".spec.nodeClassName", ".status.state", ".status.nodeName"),
)
