"""All that one tick knows: an immutable picture of cluster and providers at one instant."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.budgets.accounts import Accounts, BudgetKey
from forebay.budgets.assessment import Assessor
from forebay.budgets.enforcement import PausedJob
from forebay.demand.reservation import Reservations
from forebay.lifecycle.orphans import Orphans
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.sources import Source, SourceKey
from forebay.model.workloads import Pod, PodShape


class OperatorRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has chosen for the operator as a whole."""

    #: Resources by which pods ask for GPUs; None: every `<vendor>/gpu`.
    gpu_resources: frozenset[str] | None = None
    #: How long an owned machine must have been idle before it is switched off.
    idle_delay: timedelta = timedelta(0)
    #: At most one owned machine goes down in this time.
    scale_down_interval: timedelta = timedelta(seconds=10)
    #: From the cordon to the last look for pods that the scheduler was just placing.
    drain_settle: timedelta = timedelta(seconds=3)


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """What budgets have counted, and what is known of those they act upon."""

    #: These two are not copies: BudgetAccounting adds to them only between two ticks.
    accounts: Accounts
    assessor: Assessor
    #: By budget, the stored parts of its ledger that cannot be read; and budgets that cannot be counted at all.
    damages: Mapping[BudgetKey, str] = {}
    invalid: Mapping[BudgetKey, str] = {}
    #: Why nothing can be stored; None while all is well.
    unstored: str | None = None
    #: Pods whose eviction, or whose Job's suspension, was refused a moment ago.
    blocked: frozenset[str] = frozenset()
    #: Budgets that have asked somebody to stop, which the views do not show yet.
    awaiting: frozenset[BudgetKey] = frozenset()
    paused: tuple[PausedJob, ...] = ()
    #: When each budget last evicted or paused somebody, as far as this process did it.
    enforced: Mapping[BudgetKey, datetime] = {}
    #: Pods with the budget's gate.
    gated: tuple[Pod, ...] = ()
    #: Pods with the finalizer of budgets whose time is stored, or that no budget needs any more.
    recorded: tuple[Pod, ...] = ()


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one tick hands to the next."""

    #: Since when pods have seemed to fit somewhere.
    reservations: Reservations = Reservations()
    #: Found at a provider without a record, and since when.
    unclaimed: Orphans = Orphans()
    #: When the figures of each budget were last written.
    reported: Mapping[BudgetKey, datetime] = {}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    #: The one clock reading of the tick.
    now: datetime
    #: UID of kube-system: the mark on everything that is rented for this cluster.
    cluster: str = ""
    classes: tuple[GPUNodeClass, ...] = ()
    pools: tuple[GPUNodePool, ...] = ()
    #: Labels by name of the namespace.
    namespaces: Mapping[str, Mapping[str, str]] = {}
    nodes: Mapping[str, Node] = {}
    #: Pods that ask for a GPU and have no node.
    pending: tuple[Pod, ...] = ()
    #: What the pods on each node have reserved.
    used: Mapping[str, Resources] = {}
    #: Host ports in use on each node.
    ports: Mapping[str, frozenset[tuple[int, str]]] = {}
    #: One pod shape per DaemonSet: what a new node will have to hold beside its pods.
    daemons: tuple[PodShape, ...] = ()
    #: Owned machines as they were when last seen in the cluster.
    remembered: Mapping[str, Node] = {}
    #: Pods on the nodes that Forebay obtained, but for those that every node has and those that have ended.
    pods_by_node: Mapping[str, tuple[Pod, ...]] = {}
    records: tuple[GPUInstance, ...] = ()
    sources: Mapping[SourceKey, Source] = {}
    #: Sources that could not be made, and why.
    unusable: Mapping[SourceKey, str] = {}
    #: By class, the machines that it names in vain, and who has them.
    claimed_twice: Mapping[str, Mapping[str, str]] = {}
    budgets: tuple[GPUWorkloadBudget, ...] = ()
    #: None: not read yet, so that nothing may be bought for pods of budgets.
    budget_state: BudgetState | None = None
    #: UIDs of records that must not be forgotten yet: what their machines have cost is not stored.
    withheld: frozenset[str] = frozenset()
    #: What the last tick knew. Losing it costs time, never money: whatever must not be forgotten is in the records.
    memory: Memory = Memory()
    #: Records with a provider call under way, whose outcome is not written yet: nothing is decided about them.
    busy: frozenset[str] = frozenset()
    rules: OperatorRules = OperatorRules()
