"""GPUNodePool: which pods get capacity, on what nodes, and when nodes are terminated."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, field

from forebay.api.declaration import AGE, ColumnType, CustomKind, PrinterColumn, condition_column
from forebay.api.meta import Object
from forebay.api.parts import (
    Figures,
    LabelSelectorEntry,
    Limits,
    NodeClassRef,
    NodeRequirement,
    Observed,
    Part,
    PoolAnnotations,
    PoolLabels,
    PoolTaints,
    Selector,
    Taints,
)
from forebay.api.rules import AS_SET, ATOMIC_LIST, INT32, ValidationRule, checked
from forebay.api.values import Count, Dollars, Duration, DurationOrNever, Figure, IntOrString, ObjectName, ShortText


class NodeMetadata(Part, frozen=True, kw_only=True):
    """Labels and annotations of every node of the pool."""

    labels: PoolLabels = field(default_factory=dict)
    """Labels of the nodes. Labels under kubernetes.io/ and k8s.io/ are refused: they belong to the cluster."""
    annotations: PoolAnnotations = field(default_factory=dict)
    """Annotations of the nodes, written when they have registered. Those of Kubernetes' own domains are refused."""


class NodeSpec(Part, frozen=True, kw_only=True):
    """Requirements and taints of the nodes of the pool."""

    requirements: Annotated[tuple[NodeRequirement, ...], Meta(max_length=64), ATOMIC_LIST] = ()
    """Requirements on offers, by the labels that their node would have: forebay.dev/gpu-type, forebay.dev/region,
    forebay.dev/provider, forebay.dev/spot, kubernetes.io/arch and others. tgp.io/... means the same."""
    taints: PoolTaints = ()
    """Taints of the nodes. Only pods that tolerate them get capacity from this pool."""
    startup_taints: Taints = ()
    """Taints that nodes register with and that something else removes, such as a driver installer. Pods need not
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
    """How many nodes of the pool may be disrupted at one time."""

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
    """A number of nodes, or a percentage of the pool, rounded up. 0: no node may be disrupted."""
    reasons: Annotated[tuple[DisruptionReason, ...], Meta(max_length=4), AS_SET] = ()
    """Reasons for disruption that the budget limits. Default: all reasons."""
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
    """Cron schedule in UTC at which the budget becomes active. Default: always active."""
    duration: Duration | None = None
    """How long the budget stays active after each start of the schedule."""


class Disruption(Part, frozen=True, kw_only=True):
    """When nodes are terminated or powered off. Forebay drains them first and respects PodDisruptionBudgets."""

    consolidation_policy: ConsolidationPolicy = ConsolidationPolicy.WHEN_IDLE
    """WhenIdle: terminate nodes that run only DaemonSet pods. WhenUnderutilized: also nodes whose pods fit on other
    nodes or on a cheaper one. Never: nodes stay until they expire or the pool is deleted."""
    consolidate_after: DurationOrNever = "5m"
    """How long a node must have been idle or under-utilized. A machine that its provider bills by the hour, or with a
    minimum, is kept to near the end of the time that is paid. 0s: terminate it at once."""
    expire_after: DurationOrNever = "Never"
    """Age at which a node is replaced, even if pods run on it. A node that has been Ready for less than ten minutes
    stays, so that machines which boot for longer than this are of use."""
    budgets: Annotated[tuple[DisruptionBudget, ...], Meta(max_length=32), ATOMIC_LIST] = (DisruptionBudget(),)
    """How many nodes may be drained of running pods at one time. The strictest active budget counts. Empty nodes use
    none of it, but stay where it is 0."""


class UnusualPrices(StrEnum):
    EXCLUDE = "Exclude"
    ALLOW = "Allow"


class GPUNodePoolSpec(Part, frozen=True, kw_only=True):
    """Which pods get capacity, on what nodes, and when nodes are terminated."""

    node_class_ref: NodeClassRef
    """The GPUNodeClass that capacity comes from."""
    namespace_selector: Selector = LabelSelectorEntry()
    """Namespaces whose pods get capacity from this pool, by their labels. Default: all that its class permits. A pool
    in Forebay's own namespace may serve every namespace, any other pool only its own, unless the class says otherwise
    in allowedPodNamespaces."""
    template: NodeTemplate = NodeTemplate()
    """What nodes of the pool carry and are like."""
    disruption: Disruption = Disruption()
    """When nodes are terminated or powered off."""
    limits: Limits | None = None
    """What may exist of this pool at one time."""
    min_nodes: Annotated[int, Meta(ge=0, le=1000), INT32] = 0
    """Nodes that the pool has at the least, whatever pods there are. Forebay launches the cheapest machines that the
    pool permits, within its limits, and replaces each that fails, expires or drifts. Nodes launched for pods count."""
    max_hourly_price: Dollars = 10
    """Maximum price of one machine or container in US dollars per hour, such as "2.0"."""
    unusual_prices: UnusualPrices = UnusualPrices.EXCLUDE
    """Offers that cost less than 3 % of what their GPU model usually costs, by the median of all known offers of that
    model. Exclude: they are not bought, because such a price is likely a mistake or cannot be bought at. Allow: they
    are bought like others, and the reason for the launch says what is unusual."""
    weight: Annotated[int, Meta(ge=1, le=100), INT32] = 10
    """Where several pools fit a pod, those with the largest weight are used first."""


class PoolDecision(Part, frozen=True, kw_only=True):
    """A machine of the pool that Forebay launched, drained or terminated."""

    at: datetime
    """When that was decided."""
    instance: ObjectName
    """The GPUInstance."""
    state: ShortText
    """The state that followed: Requested, Draining or Terminating."""
    reason: ShortText
    """Why, in one word."""
    message: Annotated[str, Meta(max_length=512)] = ""
    """Why, in a sentence."""


class GPUNodePoolStatus(Observed, frozen=True, kw_only=True):
    """What Forebay sees. Conditions: NodeClassReady, Ready; TerminationBlocked and MinNodes where they matter."""

    resources: Figures = field(default_factory=dict)
    """GPUs of all machines of the pool together, by resource, including those that are launching."""
    offers: Count | None = None
    """Offers of the providers of its class, as they last reported; not all of them need to suit the pool."""
    last_decisions: Annotated[tuple[PoolDecision, ...], Meta(max_length=5), ATOMIC_LIST] = ()
    """The last machines that were launched, drained or terminated, oldest first."""
    node_count: Count | None = None
    """Machines and containers of the pool, including those that are launching."""
    hourly_cost: Figure | None = None
    """What they cost per hour in US dollars."""


class GPUNodePool(Object, kw_only=True, frozen=True):
    """A GPUNodePool gives GPU capacity to pending pods: it says which pods, from which GPUNodeClass, on what nodes, at
    which price, and when nodes are terminated.
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
        PrinterColumn("Ready", condition_column("Ready")),
        PrinterColumn("Nodes", ".status.nodeCount", ColumnType.INTEGER),
        PrinterColumn("Cost/h", ".status.hourlyCost"),
        PrinterColumn("Max price", ".spec.maxHourlyPrice"),
        PrinterColumn("Weight", ".spec.weight", ColumnType.INTEGER, wide=True),
        PrinterColumn("Consolidation", ".spec.disruption.consolidationPolicy", wide=True),
        PrinterColumn("After", ".spec.disruption.consolidateAfter", wide=True),
        PrinterColumn("GPUs", r".status.resources.nvidia\.com/gpu", wide=True),
        PrinterColumn("Reason", condition_column("Ready", "reason"), wide=True),
        PrinterColumn("Message", condition_column("Ready", "message"), wide=True),
        AGE,
    ),
    selectable=(".spec.nodeClassRef.name",),
)
