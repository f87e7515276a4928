"""GPUInstance: one machine or container that Forebay asked for, from intent to proof of absence."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, field

from forebay.api.declaration import AGE, ColumnType, CustomKind, PrinterColumn
from forebay.api.meta import Object
from forebay.api.parts import Figures, Observed, Part, PodRef, Taints
from forebay.api.providers import ProviderName
from forebay.api.rules import ATOMIC_LIST, RefusalCause, ValidationRule, immutable, keyed_by
from forebay.api.values import Count, Duration, Figure, LabelValue, NamespaceName, ObjectName, PositiveCount, ShortText
from forebay.model.sources import Delivery

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


class OfferRecord(Part, frozen=True, kw_only=True):
    """What was chosen at the provider, as it was offered."""

    instance_type: ShortText
    """Name of the machine type, GPU id or owned machine at the provider."""
    region: ShortText | None = None
    """Region at the provider."""
    zone: ShortText | None = None
    """Zone at the provider."""
    spot: bool = False
    """The provider may reclaim it at any time."""
    gpu_type: ShortText | None = None
    """GPU model."""
    gpu_count: Count = 0
    """GPUs in it."""
    gpu_memory_gib: PositiveCount | None = field(name="gpuMemoryGiB", default=None)
    """Memory of one GPU in GiB."""
    boot_deadline: Duration | None = None
    """From the call to a node that is ready with its GPUs, where this machine has a time of its own."""


class PlannedNode(Part, frozen=True, kw_only=True):
    """The node it will be. Until the node is there, Forebay counts with this."""

    name: ObjectName
    """Name of the node."""
    labels: Annotated[dict[str, LabelValue], Meta(max_length=128)] = field(default_factory=dict)
    """Labels it will have."""
    taints: Taints = ()
    """Taints it will have."""
    startup_taints: Taints = ()
    """Taints it will have only until it is ready."""
    allocatable: Figures = field(default_factory=dict)
    """What pods will be able to use of it."""


class GPUInstanceSpec(Part, frozen=True, kw_only=True):
    """The intent: written before anything is asked of the provider, and never changed."""

    rules: ClassVar = (
        immutable("a GPUInstance is the record of one purchase and cannot be changed"),
        ValidationRule(
            "!(has(self.poolRef) && has(self.provisionerRef))",
            "poolRef and provisionerRef exclude each other",
            reason=RefusalCause.FORBIDDEN,
            field_path=".provisionerRef",
        ),
    )

    provider: ProviderName
    """Where it was asked for."""
    delivers: Delivery
    """Node: a rented machine that joins the cluster. Container: a remote container that runs one pod. Power: an owned
    machine that is switched on."""
    pool_ref: PoolRef | None = None
    """The pool it belongs to. Absent for machines of a NodeProvisioner and for found leftovers."""
    provisioner_ref: ProvisionerRef | None = None
    """The NodeProvisioner it belongs to."""
    node_class_name: ObjectName | None = None
    """The GPUNodeClass by which it was bought."""
    offer: OfferRecord | None = None
    """What was chosen. Absent for found leftovers."""
    hourly_price: Figure | None = None
    """Price per hour in US dollars at which it was offered."""
    node: PlannedNode | None = None
    """The node it will be. Absent for containers."""
    pods: Annotated[tuple[PodRef, ...], Meta(max_length=512), keyed_by("uid")] = ()
    """Pods it was asked for. A container has exactly one: the pod that it runs."""
    template_hash: Annotated[str, Meta(max_length=64)] | None = None
    """Digest of the class and pool as they were. Where theirs has become another, the node has drifted."""
    why: Annotated[str, Meta(max_length=2048)] | None = None
    """Why this offer, in a sentence."""


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
    """One step of its life."""

    state: InstanceState
    """The state it came into."""
    at: datetime
    """When."""
    reason: _Reason
    """Why, in one word."""
    message: _Message = ""
    """Why, in a sentence."""


class SecondaryResource(Part, frozen=True, kw_only=True):
    """Something made along with it that must go with it: a Tailscale device or key, a startup script, a disk, an
    address.
    """

    kind: ShortText
    """What it is, such as TailscaleKey."""
    id: _LongId
    """Its id where it was made. Never a secret."""


class GPUInstanceStatus(Observed, frozen=True, kw_only=True):
    """Where it is between intent and proof of absence."""

    state: InstanceState | None = None
    """Requested, Launching, Launched, then Joined and Ready for a node or Running and Finished for a container; at last
    Draining, Terminating and Gone. Absent means Requested."""
    reason: _Reason | None = None
    """Why it is in this state, in one word."""
    message: _Message | None = None
    """What happened, why, and what comes next."""
    since: datetime | None = None
    """When it came into this state."""
    deadline: datetime | None = None
    """When this state has lasted too long, and Forebay gives up or says so."""
    attempt: Count | None = None
    """How often the provider was asked to launch it. Counted before each request, so that only one replica asks."""
    failures: Count | None = None
    """How often in a row this machine or offer has failed. The wait before it is used again grows with it."""
    attempted_at: datetime | None = None
    """When the provider was last asked to launch or to terminate it."""
    not_before: datetime | None = None
    """When the provider is asked again at the earliest."""
    termination_attempts: Count | None = None
    """How often the provider was asked to end it. Counted before each request."""
    termination_accepted_at: datetime | None = None
    """When the provider last agreed to end it. Proof that it has is looked for in what it shows later."""
    instance_id: _LongId | None = field(name="instanceID", default=None)
    """Its id at the provider, as soon as it is known."""
    provider_id: _LongId | None = field(name="providerID", default=None)
    """The spec.providerID of its node."""
    node_name: ObjectName | None = None
    """The node that it became, or the virtual node that its pod is bound to."""
    hourly_price: Figure | None = None
    """Price per hour in US dollars that the provider bills, where it tells."""
    billed_from: datetime | None = None
    """When it began to cost money."""
    billed_until: datetime | None = None
    """When it ceased to cost money."""
    exit_code: int | None = None
    """Exit code of a container that has finished."""
    absent_since: datetime | None = None
    """Since when the provider's list has not shown it. Cleared when it shows up again."""
    absences: Count | None = None
    """How many lists in a row have not shown it."""
    absent_at: datetime | None = None
    """When the last of those lists was asked for."""
    secondary_resources: Annotated[tuple[SecondaryResource, ...], Meta(max_length=32), keyed_by("kind", "id")] = ()
    """What was made along with it and must go with it."""
    transitions: Annotated[tuple[Transition, ...], Meta(max_length=64), ATOMIC_LIST] = ()
    """Its life so far, oldest first."""


class GPUInstance(Object, kw_only=True):
    """A GPUInstance is one machine or container that Forebay asked for, from intent to proof of absence. Only Forebay
    writes it. Deleting it gives the machine back; the object goes when the provider has shown that nothing is left.
    """

    spec: GPUInstanceSpec
    status: GPUInstanceStatus | None = None

    @property
    def state(self) -> InstanceState:
        return InstanceState.REQUESTED if self.status is None or self.status.state is None else self.status.state

    @property
    def node_name(self) -> str | None:
        """The node that it is or will be. None for a container, which only borrows a virtual one."""
        if self.spec.delivers is Delivery.CONTAINER:
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
