"""NodeProvisioner: keeps instance groups, or machines that Forebay rents one by one, at a target utilisation."""

from typing import Annotated, ClassVar

from msgspec import Meta, field

from forebay.api.declaration import AGE, ColumnType, CustomKind, PrinterColumn, condition_column
from forebay.api.meta import Object
from forebay.api.parts import NodeClassRef, Observed, Part, PoolLabels, PoolTaints, SecretKeyRef
from forebay.api.providers import ProviderName
from forebay.api.rules import AS_SET, ATOMIC_LIST, INT32, RefusalCause, ValidationRule, checked, immutable
from forebay.api.values import Count, Duration, PositiveCount, ShortText, Url


class GroupProvider(Part, frozen=True, kw_only=True):
    """The cloud in which the nodes are."""

    name: Annotated[
        ProviderName, checked(immutable("the provider cannot be changed: create another NodeProvisioner instead"))
    ]
    """Which provider: one with instance groups that can be resized; or, with nodeClassRef, any provider of that class
    that rents machines."""
    instance_type: ShortText | None = None
    """With nodeClassRef: the machine type of the nodes, by the provider's own name."""
    project: ShortText | None = None
    """Project of the instance groups. Default: the project of the credentials."""
    location: ShortText | None = None
    """Zone or region of the instance groups, such as us-central1-a. With nodeClassRef: the only zone or region to rent
    in. Default there: all that the class allows, the cheapest first."""
    credentials_ref: SecretKeyRef | None = None
    """Service account key in JSON. Default: the identity of Forebay's own ServiceAccount."""
    endpoint: Url | None = None
    """Base URL of the provider's API. Default: the public one."""
    run_duration: Duration | None = None
    """How long new members run. They wait in the provider's queue for capacity (Dynamic Workload Scheduler of gcp, 10m
    to 168h), and are replaced before they end. Default: members are created at once, and stay."""


class NodeProvisionerSpec(Part, frozen=True, kw_only=True):
    """Which nodes, and how full they should be."""

    rules: ClassVar = (
        ValidationRule(
            "has(self.existingInstanceGroupNames) != has(self.nodeClassRef)",
            "set existingInstanceGroupNames, whose groups Forebay sizes, or nodeClassRef, by which Forebay rents"
            " machines as a group of its own",
            reason=RefusalCause.REQUIRED,
            field_path=".existingInstanceGroupNames",
        ),
        ValidationRule(
            "has(self.nodeClassRef) == has(self.provider.instanceType)",
            "nodeClassRef and provider.instanceType belong together: set both or neither",
            reason=RefusalCause.REQUIRED,
            field_path=".provider.instanceType",
        ),
        ValidationRule(
            "!has(self.nodeClassRef) || !(has(self.instanceTemplate) || has(self.provider.project)"
            " || has(self.provider.credentialsRef) || has(self.provider.endpoint) || has(self.provider.runDuration))",
            "with nodeClassRef, the GPUNodeClass says how machines are rented: remove instanceTemplate, and project,"
            " credentialsRef, endpoint and runDuration of the provider",
            reason=RefusalCause.FORBIDDEN,
            field_path=".provider",
        ),
        ValidationRule(
            "has(self.nodeClassRef) || !(has(self.labels) || has(self.taints))",
            "labels and taints need nodeClassRef: the instance template says which ones the nodes of an existing group"
            " have",
            reason=RefusalCause.FORBIDDEN,
            field_path=".labels",
        ),
        ValidationRule(
            "has(self.minGPUUtilizationPercent) || has(self.minUnutilizedGPUNodes)",
            "set minGPUUtilizationPercent, minUnutilizedGPUNodes or both: they decide the size of the group",
            reason=RefusalCause.REQUIRED,
            field_path=".minGPUUtilizationPercent",
        ),
        ValidationRule(
            "!has(self.maxNodes) || !has(self.minUnutilizedGPUNodes) || self.minUnutilizedGPUNodes <= self.maxNodes",
            "minUnutilizedGPUNodes must not be larger than maxNodes",
            field_path=".minUnutilizedGPUNodes",
        ),
        ValidationRule(
            "!has(self.maxGPUUtilizationPercent) || !has(self.minGPUUtilizationPercent)"
            " || self.minGPUUtilizationPercent <= self.maxGPUUtilizationPercent",
            "minGPUUtilizationPercent must not be larger than maxGPUUtilizationPercent",
            field_path=".maxGPUUtilizationPercent",
        ),
    )

    existing_instance_group_names: Annotated[tuple[ShortText, ...], Meta(min_length=1, max_length=16), AS_SET] = ()
    """Instance groups that this NodeProvisioner sizes. They must exist, unless instanceTemplate is set. Forebay gives
    their nodes the label nodeprovisioner.compute.baseten.co/provisioner-name with the name of this NodeProvisioner,
    where they lack it."""
    node_class_ref: NodeClassRef | None = None
    """In place of instance groups of the provider: Forebay rents the nodes one by one, by names of its own, as this
    GPUNodeClass says: its entry of the provider, how machines join, requirements, limits and tags."""
    labels: PoolLabels = field(default_factory=dict)
    """With nodeClassRef: labels of the nodes."""
    taints: PoolTaints = ()
    """With nodeClassRef: taints of the nodes."""
    min_gpu_utilization_percent: Annotated[int, Meta(ge=1, le=100), INT32] | None = field(
        name="minGPUUtilizationPercent", default=None
    )
    """Least share of nodes in use, in percent. Below that, empty nodes are removed: the target is the largest size at
    which at least this share is in use."""
    max_gpu_utilization_percent: Annotated[int, Meta(ge=1, le=100), INT32] | None = field(
        name="maxGPUUtilizationPercent", default=None
    )
    """Largest share of nodes in use, in percent. Above that, nodes are added before pods have to wait."""
    min_unutilized_gpu_nodes: Count | None = field(name="minUnutilizedGPUNodes", default=None)
    """Empty nodes that are always kept ready."""
    scale_down_delay: Duration = "10m"
    """How long an empty node is tainted before it is deleted. Until then the node can be used again at once."""
    max_nodes: PositiveCount | None = None
    """Maximum number of nodes in all groups together."""
    instance_template: ShortText | None = None
    """Instance template (its name, or its URL for a regional one) from which Forebay creates those of the groups that
    do not exist, when they get their first node. Default: all groups must exist. Nobody deletes a group but you."""
    defragment: bool = False
    """Whether pods are moved together to free whole nodes. Pods of a node move only where all of them fit on other
    nodes in use, may be evicted by their PodDisruptionBudgets and lose no work by it, and where the groups then need
    one node less. One node at a time, scaleDownDelay apart."""
    provider: GroupProvider
    """Where the nodes are."""


class NodeProvisionerStatus(Observed, frozen=True, kw_only=True):
    """What Forebay sees. Conditions: Ready, and GrowthBlocked while the provider cannot create members."""

    current_size: Count | None = None
    """Nodes in the groups now."""
    target_size: Count | None = None
    """Nodes that the groups should have."""
    utilized_nodes: Count | None = None
    """Nodes with pods that use their GPUs."""
    tainted_nodes: Count | None = None
    """Empty nodes that are tainted and will be deleted."""
    reason: Annotated[str, Meta(max_length=256)] | None = None
    """Why the target is what it is, in one word."""
    message: Annotated[str, Meta(max_length=1024)] | None = None
    """The same in a sentence."""
    arithmetic: Annotated[tuple[Annotated[str, Meta(max_length=1024)], ...], Meta(max_length=16), ATOMIC_LIST] = ()
    """How the target was computed, one step a line, with its numbers."""


class NodeProvisioner(Object, kw_only=True, frozen=True):
    """A NodeProvisioner sizes instance groups that exist already, or machines that Forebay rents as a group, so that
    enough of their GPU nodes are in use and enough are kept ready. Its name is the value of the node label
    nodeprovisioner.compute.baseten.co/provisioner-name.
    """

    rules: ClassVar = (
        ValidationRule(
            "size(self.metadata.name) <= 63",
            "the name is also the value of a node label: use at most 63 characters",
        ),
    )

    spec: NodeProvisionerSpec
    status: NodeProvisionerStatus | None = None


NODE_PROVISIONER = CustomKind(
    kind="NodeProvisioner",
    plural="nodeprovisioners",
    short_names=("np",),
    namespaced=False,
    type=NodeProvisioner,
    columns=(
        PrinterColumn("Ready", condition_column("Ready")),
        PrinterColumn("Current", ".status.currentSize", ColumnType.INTEGER),
        PrinterColumn("Target", ".status.targetSize", ColumnType.INTEGER),
        PrinterColumn("In use", ".status.utilizedNodes", ColumnType.INTEGER),
        PrinterColumn("Reason", ".status.reason"),
        PrinterColumn("Tainted", ".status.taintedNodes", ColumnType.INTEGER, wide=True),
        PrinterColumn("Max", ".spec.maxNodes", ColumnType.INTEGER, wide=True),
        PrinterColumn("Min %", ".spec.minGPUUtilizationPercent", ColumnType.INTEGER, wide=True),
        PrinterColumn("Min empty", ".spec.minUnutilizedGPUNodes", ColumnType.INTEGER, wide=True),
        PrinterColumn("Message", ".status.message", wide=True),
        AGE,
    ),
)
