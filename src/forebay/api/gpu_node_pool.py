"""GPUNodePool: which pods get capacity, of what kind, and when it goes back."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, field

from forebay.api.declaration import AGE, ColumnType, CustomKind, PrinterColumn, condition
from forebay.api.meta import Object
from forebay.api.parts import (
    Figures,
    LabelSelectorEntry,
    Limits,
    NodeClassRef,
    NodeLabels,
    NodeRequirement,
    Observed,
    Part,
    Selector,
    Taints,
)
from forebay.api.rules import AS_SET, ATOMIC_LIST, INT32, ValidationRule, checked
from forebay.api.values import Count, Dollars, Duration, DurationOrNever, Figure, IntOrString


class NodeMetadata(Part, frozen=True, kw_only=True):
    """What every node of the pool carries."""

    labels: NodeLabels = field(default_factory=dict)
    """Labels of the nodes."""
    annotations: Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)] = field(
        default_factory=dict
    )
    """Annotations of the nodes."""


class NodeSpec(Part, frozen=True, kw_only=True):
    """What nodes of the pool are like."""

    requirements: Annotated[tuple[NodeRequirement, ...], Meta(max_length=64), ATOMIC_LIST] = ()
    """Which offers will do, by the labels a node of theirs would have: forebay.dev/gpu-type, forebay.dev/region,
    forebay.dev/provider, forebay.dev/spot, kubernetes.io/arch and others. tgp.io/... means the same."""
    taints: Taints = ()
    """Taints of the nodes. Only pods that tolerate them get capacity from this pool."""
    startup_taints: Taints = ()
    """Taints that nodes join with and that something else takes away, such as a driver installer. Pods need not
    tolerate them; Forebay waits until they are gone."""


class NodeTemplate(Part, frozen=True, kw_only=True):
    """What nodes of the pool carry and are like."""

    metadata: NodeMetadata | None = None
    """Labels and annotations of the nodes."""
    spec: NodeSpec | None = None
    """Requirements and taints of the nodes."""


class ConsolidationPolicy(StrEnum):
    WHEN_IDLE = "WhenIdle"
    WHEN_UNDERUTILIZED = "WhenUnderutilized"
    NEVER = "Never"


class DisruptionReason(StrEnum):
    IDLE = "Idle"
    UNDERUTILIZED = "Underutilized"
    EXPIRED = "Expired"
    DRIFTED = "Drifted"


class DisruptionBudget(Part, frozen=True, kw_only=True):
    """How many nodes of the pool may be on their way out at one time."""

    rules: ClassVar = (
        ValidationRule(
            "has(self.schedule) == has(self.duration)", "schedule and duration belong together: set both or neither"
        ),
    )

    nodes: Annotated[
        IntOrString,
        checked(
            ValidationRule(
                "type(self) == int ? self >= 0 : self.matches('^([0-9]{1,9}|(100|[0-9]{1,2})%)$')",
                "must be a number of nodes, such as 2, or a share of them, such as 10%",
            )
        ),
    ] = "10%"
    """A number of nodes, or a percentage of the pool, rounded up. 0 keeps all."""
    reasons: Annotated[tuple[DisruptionReason, ...], Meta(max_length=4), AS_SET] = ()
    """What the budget is about. Default: every reason."""
    schedule: (
        Annotated[
            str,
            Meta(max_length=128),
            checked(
                ValidationRule(
                    "self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)"
                    "|[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+)$')",
                    'must be a cron schedule in UTC, such as "0 9 * * 1-5" or @daily',
                )
            ),
        ]
        | None
    ) = None
    """Cron schedule in UTC at which the budget begins to hold. Default: it always holds."""
    duration: Duration | None = None
    """How long it holds from then on."""


class Disruption(Part, frozen=True, kw_only=True):
    """When nodes are given back. Forebay drains them first and respects PodDisruptionBudgets."""

    consolidation_policy: ConsolidationPolicy = ConsolidationPolicy.WHEN_IDLE
    """WhenIdle: nodes that run nothing but DaemonSets. WhenUnderutilized: also nodes whose pods fit elsewhere or on
    something cheaper. Never: nodes stay until they expire or the pool goes."""
    consolidate_after: DurationOrNever = "5m"
    """How long a node must have been that way. 0s: at once."""
    expire_after: DurationOrNever = "Never"
    """Age at which a node is replaced, whatever runs on it."""
    budgets: Annotated[tuple[DisruptionBudget, ...], Meta(max_length=32), ATOMIC_LIST] = (DisruptionBudget(),)
    """How many nodes may be on their way out at one time. The strictest holds."""


class GPUNodePoolSpec(Part, frozen=True, kw_only=True):
    """Which pods get capacity, on what kind of nodes, and when nodes are given back."""

    node_class_ref: NodeClassRef
    """The GPUNodeClass that capacity comes from."""
    namespace_selector: Selector = LabelSelectorEntry()
    """Namespaces whose pods get capacity from this pool, by their labels. Default: all."""
    template: NodeTemplate = NodeTemplate()
    """What nodes of the pool carry and are like."""
    disruption: Disruption = Disruption()
    """When nodes are given back."""
    limits: Limits | None = None
    """What may exist of this pool at one time."""
    max_hourly_price: Dollars = 10
    """Most US dollars per hour that one machine or container may cost, such as "2.0"."""
    weight: Annotated[int, Meta(ge=1, le=100), INT32] = 10
    """Where several pools would do, those with the largest weight come first."""


class GPUNodePoolStatus(Observed, frozen=True, kw_only=True):
    """What Forebay sees. Conditions: NodeClassReady, Ready."""

    resources: Figures = field(default_factory=dict)
    """What all nodes of the pool have together."""
    node_count: Count | None = None
    """Machines and containers of the pool, those on their way included."""
    hourly_cost: Figure | None = None
    """What they cost per hour in US dollars."""


class GPUNodePool(Object, kw_only=True):
    """A GPUNodePool gives GPU capacity to pending pods: it says which pods, from which GPUNodeClass, on what kind of
    nodes, at which price, and when nodes are given back.
    """

    spec: GPUNodePoolSpec
    status: GPUNodePoolStatus | None = None


GPU_NODE_POOL = CustomKind(
    kind="GPUNodePool",
    plural="gpunodepools",
    short_names=("gnp",),
    namespaced=True,
    type=GPUNodePool,
    columns=(
        PrinterColumn("Class", ".spec.nodeClassRef.name"),
        PrinterColumn("Ready", condition("Ready")),
        PrinterColumn("Nodes", ".status.nodeCount", ColumnType.INTEGER),
        PrinterColumn("Cost/h", ".status.hourlyCost"),
        PrinterColumn("Max price", ".spec.maxHourlyPrice"),
        PrinterColumn("Weight", ".spec.weight", ColumnType.INTEGER, wide=True),
        PrinterColumn("Give back", ".spec.disruption.consolidationPolicy", wide=True),
        PrinterColumn("After", ".spec.disruption.consolidateAfter", wide=True),
        PrinterColumn("GPUs", r".status.resources.nvidia\.com/gpu", wide=True),
        PrinterColumn("Reason", condition("Ready", "reason"), wide=True),
        PrinterColumn("Message", condition("Ready", "message"), wide=True),
        AGE,
    ),
    selectable=(".spec.nodeClassRef.name",),
)
