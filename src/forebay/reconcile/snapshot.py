"""The input of one tick: cluster, providers and budgets as they were at one instant. Immutable."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.names import OPERATOR_NAMESPACE
from forebay.api.node_provisioner import NodeProvisioner
from forebay.budgets.assessment import Assessments
from forebay.budgets.budget_accounts import BudgetAccount, BudgetAccounts, BudgetKey
from forebay.budgets.enforcement import EvictionBackoff, PausedJob, RemovePauseMarks
from forebay.demand.ending_pods import SoonUsed, soon_used
from forebay.demand.reservation import Reservations
from forebay.demand.scheduler_waits import SchedulerWaits, scheduler_waits
from forebay.disruption.machine_use import MachineUses
from forebay.lifecycle.orphans import Orphans
from forebay.model.kept import kept
from forebay.model.nodes import Node
from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.quantities import Resources
from forebay.model.reasons import Reason
from forebay.model.signing_requests import SigningRequest
from forebay.model.sources import Source, SourceKey
from forebay.model.workloads import Pod, PodShape
from forebay.offload.departure import OffloadRules, PortablePod
from forebay.reconcile.made_plans import MadePlan
from forebay.reconcile.settled import Settled


class OperatorRules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the operator that a tick depends on."""

    #: Resources by which pods request GPUs; None: every `<vendor>/gpu`.
    gpu_resources: frozenset[str] | None = None
    #: How long a machine of environment variables must have been idle: consolidateAfter of their pool.
    idle_delay: timedelta = timedelta(0)
    #: How long a machine that was found on is not powered off.
    adoption_grace: timedelta = timedelta(0)
    #: At most one owned machine is powered off in this time.
    scale_down_interval: timedelta = timedelta(seconds=10)
    #: At most one owned machine is powered on in this time. Zero: all at once.
    power_on_interval: timedelta = timedelta(0)
    #: From the cordon to the last check for pods: the scheduler may be binding one to the node meanwhile.
    drain_delay: timedelta = timedelta(seconds=3)
    #: Namespace of the operator: its pools are the administrator's.
    namespace: str = OPERATOR_NAMESPACE
    #: Whether GPUWorkloadBudgets are counted and enforced.
    budgets: bool = True
    #: The environment variable that states the number of GPUs of each machine which such variables name.
    gpu_count_variables: Mapping[str, str] = {}
    #: When marked Jobs leave the cluster for remote containers.
    offload: OffloadRules = OffloadRules()


class Uncounted(NamedTuple):
    """Why a budget cannot be counted."""

    reason: Reason
    sentence: str


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """What budgets have counted, and the state of the pods and Jobs that they act on."""

    #: As they were: accounts that change later are others.
    accounts: BudgetAccounts[BudgetAccount]
    #: By budget, which stored chunks of its ledger cannot be read.
    damages: Mapping[BudgetKey, str] = {}
    #: By budget, which stored chunks of its ledger somebody deleted, so that they were written again.
    rewritten: Mapping[BudgetKey, str] = {}
    #: Budgets that cannot be counted at all, and why.
    invalid: Mapping[BudgetKey, Uncounted] = {}
    #: Why the ledger cannot be stored at the moment; None where it can.
    unstored: str | None = None
    #: UIDs of pods whose eviction, or whose Job's suspension, the API server refused a moment ago.
    blocked: frozenset[str] = frozenset()
    #: By UID of an owner, until when its replacements of evicted pods are spared.
    backoffs: Mapping[str, EvictionBackoff] = {}
    #: Budgets with an eviction or a suspension under way that the informers do not show yet.
    awaiting: frozenset[BudgetKey] = frozenset()
    paused: tuple[PausedJob, ...] = ()
    #: Jobs that were paused, and that somebody else has resumed.
    resumed_by_hand: tuple[RemovePauseMarks, ...] = ()
    #: When each budget last evicted a pod or paused a Job, as far as this process did so.
    enforced: Mapping[BudgetKey, datetime] = {}
    #: Pods with the scheduling gate of budgets.
    gated: tuple[Pod, ...] = ()
    #: Pods with annotations that ask for a pause.
    pause_requested: tuple[Pod, ...] = ()
    #: Pods with the usage finalizer whose usage is stored, or that no budget counts any more.
    recorded: tuple[Pod, ...] = ()


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """State that one tick hands to the next."""

    #: The reservations of the last tick, which know since when pods have seemed to fit on a ready node.
    reservations: Reservations = Reservations()
    #: Since when pods have waited for the scheduler.
    scheduler_waits: SchedulerWaits = SchedulerWaits()
    #: Instances listed by a provider without a GPUInstance, and since when.
    orphans: Orphans = Orphans()
    #: When the status of each budget was last written.
    reported: Mapping[BudgetKey, datetime] = {}
    #: Forecasts of budgets, which are made anew each minute.
    assessments: Assessments = Assessments()
    #: When nodes were last looked at that may be under-utilized.
    consolidated: datetime | None = None
    #: When the groups of NodeProvisioners were last looked at for nodes that can be freed.
    defragmented: datetime | None = None
    #: GPUInstances about which the last tick had nothing to decide. It saves time and alters nothing.
    settled: Settled = Settled()
    #: How each machine was used. It saves time and alters nothing.
    uses: MachineUses = MachineUses()
    #: Plans for pods of the last tick. They save time and alter nothing.
    plans: tuple[MadePlan, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything that one tick may look at."""

    #: The only clock reading of the tick.
    now: datetime
    #: UID of the kube-system namespace: the tag on everything that is rented for this cluster.
    cluster: str = ""
    classes: tuple[GPUNodeClass, ...] = ()
    pools: tuple[GPUNodePool, ...] = ()
    provisioners: tuple[NodeProvisioner, ...] = ()
    #: Labels, by name of the namespace.
    namespaces: Mapping[str, Mapping[str, str]] = {}
    nodes: Mapping[str, Node] = {}
    #: Pods that request a GPU and are not bound to a node, or are bound to an owned machine that is off.
    pending: tuple[Pod, ...] = ()
    #: Pods without a node that have resource claims and request no GPU.
    pending_claims: tuple[Pod, ...] = ()
    #: Resources requested by the pods on each node.
    used: Mapping[str, Resources] = {}
    #: Host ports in use on each node.
    ports: Mapping[str, frozenset[tuple[int, str]]] = {}
    #: One pod shape per DaemonSet: overhead of a new node.
    daemons: tuple[PodShape, ...] = ()
    #: Nodes of owned machines as they were when last seen in the cluster.
    last_seen_nodes: Mapping[str, Node] = {}
    #: Pods on the nodes of GPUInstances, and on all nodes while a waiting pod has rules about other pods; without
    #: DaemonSet pods and pods that have ended.
    pods_by_node: Mapping[str, tuple[Pod, ...]] = {}
    #: Pods that remote containers run, by UID, as far as they exist.
    container_pods: Mapping[str, Pod] = {}
    #: Pods of Jobs that may run remotely, by UID, as far as they are read: pending ones, and those of `stranded`.
    portable: Mapping[str, PortablePod] = {}
    #: Pods bound to the virtual node, with no remote container that may still run: they need one.
    stranded: tuple[Pod, ...] = ()
    #: UIDs of pending pods of which it is not known yet whether they may run remotely: a moment later it is.
    unread: frozenset[str] = frozenset()
    #: Why no Job can run remotely at all, as a sentence; None where marked ones can.
    remote_prevented: str | None = None
    #: All GPUInstances. Each is the durable record of one machine.
    records: tuple[GPUInstance, ...] = ()
    #: Requests for kubelets' client certificates, by whomever.
    signing_requests: tuple[SigningRequest, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    sources: Mapping[SourceKey, Source] = {}
    #: Sources that could not be built, and why.
    unusable: Mapping[SourceKey, str] = {}
    #: By class, the machines that it names although another class or the environment already has them, with that owner.
    claimed_twice: Mapping[str, Mapping[str, str]] = {}
    budgets: tuple[GPUWorkloadBudget, ...] = ()
    #: Budgets in the cluster of an operator that runs without budgets.
    unserved_budgets: tuple[GPUWorkloadBudget, ...] = ()
    #: None while the ledger is not read yet: nothing may be bought for pods of budgets until it is.
    budget_state: BudgetState | None = None
    #: Why the API server does not hold new pods of used-up budgets; None: it does, or that is not known.
    gate_missing: str | None = None
    #: UIDs of GPUInstances whose cost is not stored in the ledger yet: they must not be deleted before.
    unrecorded_cost: frozenset[str] = frozenset()
    #: Pools and classes that exist but do not decode: their machines are kept.
    unreadable_pools: frozenset[tuple[str, str]] = frozenset()
    unreadable_classes: frozenset[str] = frozenset()
    #: NodeProvisioners (by name) that exist but do not decode: their members stay as they are.
    unreadable_provisioners: frozenset[str] = frozenset()
    #: GPUInstances (by name) that exist but do not decode, and why. Nothing is decided about them, nor is anything
    #: launched, adopted or terminated that may be theirs. `records` may have an older state of them.
    unreadable_records: Mapping[str, str] = {}
    #: Bound pods that do not decode, as far as they can be read, and why they do not.
    unreadable_pods: tuple[tuple[Pod, str], ...] = ()
    #: Bound pods whose condition still says that they wait.
    told_but_bound: tuple[Pod, ...] = ()
    #: UIDs of pods to which the API server refused a toleration a moment ago.
    intolerant: frozenset[str] = frozenset()
    #: State from the last tick. Losing it costs time, never money: what must survive is in the GPUInstances.
    memory: Memory = Memory()
    #: Names of GPUInstances with a provider call in flight: no step is decided for them until its outcome is written.
    calls_in_flight: frozenset[str] = frozenset()
    rules: OperatorRules = OperatorRules()

    @cached_property
    def scheduler_waits(self) -> SchedulerWaits:
        """Since when pending pods have waited for the scheduler."""
        return scheduler_waits(self.memory.scheduler_waits, self.pending, self.now)

    @cached_property
    def waiting(self) -> tuple[Pod, ...]:
        """Pods that wait for capacity: pending ones, and those of `stranded` that were told why they get none."""
        return (*self.pending, *(pod for pod in self.stranded if pod.capacity is not None))

    @cached_property
    def soon_used(self) -> SoonUsed:
        """`used`, without pods that end in a moment on nodes that were launched for pending ones."""
        return soon_used(
            self.used, self.records, self.pending, self.nodes, pods_by_node=self.pods_by_node, now=self.now
        )

    @cached_property
    def nodes_by_taint(self) -> Mapping[str, Sequence[Node]]:
        """Nodes that carry a taint, by the key of each."""
        return _by_taint(self.nodes)


@kept
def _by_taint(nodes: Mapping[str, Node]) -> Mapping[str, Sequence[Node]]:
    found: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes.values():
        if len(node.taints) == 1:
            found[node.taints[0].key].append(node)
        elif node.taints:
            for key in dict.fromkeys(taint.key for taint in node.taints):
                found[key].append(node)
    return dict(found)


def revisions(snapshot: Snapshot) -> dict[SourceKey, Mapping[str, str]]:
    """Versions of the configuration and Secrets of each source."""
    return {key: source.revision for key, source in snapshot.sources.items()}
