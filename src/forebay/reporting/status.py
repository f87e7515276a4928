"""What `forebay status` shows: the figures as values, and the sentences for some of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.names import VIRTUAL_NODE
from forebay.budgets.bill_keys import BillKey, Cost
from forebay.demand.assessment import not_demand
from forebay.demand.planned_pods import is_leaving, planned_nodes
from forebay.model.counts import counted
from forebay.model.nodes import Node
from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.reconcile.machine_costs import hourly_cost
from forebay.reporting.budget_waits import is_gated
from forebay.reporting.cluster_view import EventLine, Leader, pods_by_node
from forebay.reporting.machines import NO_COST, MachineView, cost, decimal, machine_view
from forebay.reporting.observation import records_by_pod
from forebay.reporting.provisioner_views import ProvisionerView


class WaitingPod(msgspec.Struct, frozen=True):
    """A pod that requests GPUs and has no node."""

    pod: str
    gpus: int
    since: datetime
    #: Reason and sentence, from Forebay where its operator has told them, else from kube-scheduler.
    reason: str


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    pool: str
    node_class: str
    nodes: int
    #: Dollars an hour, exact.
    hourly: str
    #: Status of the Ready condition: True, False or Unknown. Unknown also where no operator has set it.
    ready: str
    reason: str


class ViewAge(msgspec.Struct, frozen=True, kw_only=True):
    """Age of the local view of one kind."""

    kind: str
    objects: int
    #: Since the API server last confirmed the view.
    seconds: float


class SpendView(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of all GPUInstances, those included whose record is kept for a while after termination."""

    hourly: str
    total: str
    total_exact: str
    machines: int
    since: datetime | None


class BillRow(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of the last 31 days for one namespace, pool and class."""

    #: "" where no namespace is charged: orphans, and machines launched for no pod.
    namespace: str
    pool: str
    node_class: str
    spent: str
    spent_exact: str
    hourly: str


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    source: str
    version: str
    #: UID of the namespace kube-system; Forebay tags its instances with it.
    cluster_id: str
    kinds_installed: list[str]
    kinds_missing: list[str]
    #: What else the cluster lacks of what Forebay needs: a supported version, the admission policies of budgets.
    problems: list[str]
    operator_namespace: str
    #: The leader in the operator's namespace; None where this user may not read its Lease.
    leaders: list[Leader] | None
    #: Where there is no leader: other namespaces with a Lease of that name, which anybody may have written.
    other_leases: list[str]
    views: list[ViewAge]
    #: These three are None where this user may not list nodes.
    nodes: int | None
    nodes_ready: int | None
    #: Allocatable on nodes that are Ready: the Node of an owned machine stays when that is powered off.
    gpus: int | None
    gpus_requested: int
    #: GPUs of remote containers, by the requests of their pods.
    gpus_remote: int
    pods: int
    spend: SpendView
    #: None where this user may not read the ledgers.
    bill: list[BillRow] | None
    pools: list[PoolView]
    #: None where this user may not list NodeProvisioners.
    provisioners: list[ProvisionerView] | None
    machines: list[MachineView]
    waiting: list[WaitingPod]


def status_fields(
    nodes: Sequence[Node] | None,
    pods: Sequence[Pod],
    waiting: Sequence[Pod],
    *,
    records: Sequence[GPUInstance],
    pools: Sequence[GPUNodePool],
    events: Iterable[EventLine],
    gpu_resources: Collection[str] | None,
    now: datetime,
) -> dict[str, Any]:
    """Fields of `ClusterStatus` that are computed from nodes, pods, records, pools and events (oldest first).

    `nodes` are None where this user may not list them.
    """
    bound = [pod for pod in pods if pod.node is not None and not pod.phase.ended]
    # The virtual node has no GPUs of its own: its pods use those of remote containers.
    real = None if nodes is None else [node for node in nodes if node.name != VIRTUAL_NODE]
    by_node = pods_by_node(pods)
    latest_events = {each.about: each for each in events}
    by_name = None if nodes is None else {node.name: node for node in nodes}
    launched = records_by_pod(records)
    planned = planned_nodes(records, {pod.uid for pod in waiting})
    return {
        "nodes": None if real is None else len(real),
        "nodes_ready": None if real is None else sum(node.ready for node in real),
        "gpus": None if real is None else sum(int(node.allocatable.gpus(gpu_resources)) for node in real if node.ready),
        "gpus_requested": sum(int(pod.shape.gpus(gpu_resources)) for pod in bound if pod.node != VIRTUAL_NODE),
        "gpus_remote": sum(int(pod.shape.gpus(gpu_resources)) for pod in bound if pod.node == VIRTUAL_NODE),
        "pods": len(pods),
        "spend": spend(records, now),
        "pools": [pool_view(pool) for pool in sorted(pools, key=lambda each: each.key)],
        "machines": [machine_view(record, by_node, now) for record in sorted(records, key=_gone_last)],
        "waiting": [
            WaitingPod(
                "/".join(pod.key),
                int(pod.shape.gpus(gpu_resources)),
                pod.unschedulable_since or pod.created,
                why_waiting(
                    pod,
                    launched.get(pod.uid, ()),
                    latest_events=latest_events,
                    nodes=by_name,
                    planned_for_pod=planned.get(pod.uid, ()),
                    gpu_resources=gpu_resources,
                    now=now,
                ),
            )
            for pod in sorted(waiting, key=lambda pod: (pod.created, pod.key))
        ],
    }


def why_waiting(
    pod: Pod,
    records: Iterable[GPUInstance],
    *,
    latest_events: Mapping[str, EventLine],
    nodes: Mapping[str, Node] | None,
    planned_for_pod: Collection[str],
    gpu_resources: Collection[str] | None,
    now: datetime,
) -> str:
    """Reason and sentence for a waiting pod.

    In this order: why a budget holds it or it gets no remote container, why it is not demand, the GPUInstance that
    launches for it, the pod's condition, Forebay's last event, and the message of kube-scheduler. `planned_for_pod`
    names the nodes that were launched for the pod.
    """
    if pod.capacity is not None and (is_gated(pod) or pod.node == VIRTUAL_NODE):
        return pod.capacity
    other = not_demand(pod, gpu_resources, now, nodes=nodes, planned_nodes=planned_for_pod)
    if other is not None:
        return f"{other.reason}: {other.sentence}"
    if (launching := capacity_launching(pod, records, now)) is not None:
        return launching
    if pod.capacity is not None:
        return pod.capacity
    event = latest_events.get("/".join(pod.key))
    if event is not None:
        return f"{event.reason}: {event.note}"
    return f"{Reason.UNSCHEDULABLE}: {pod.unschedulable_message or 'kube-scheduler gave no message'}"


def capacity_launching(pod: Pod, records: Iterable[GPUInstance], now: datetime) -> str | None:
    """Reason and sentence about the GPUInstance that launches for the pod; None where there is none."""
    for record in records:
        if any(planned.uid == pod.uid for planned in record.spec.pods) and not _is_leaving_or_gone(record):
            status = record.status
            deadline = status.deadline if status is not None else None
            left = f"; its deadline is in {human(deadline - now)}" if deadline is not None and deadline > now else ""
            if status is not None and status.reason == Reason.CONTAINER_CONFIG_ERROR:
                return f"{status.reason}: {status.message}"
            failed = ""
            if record.state is InstanceState.REQUESTED and status is not None and status.attempt:
                # A call for it has failed, and is repeated.
                failed = f" {status.message}" if status.message else ""
            return f"{Reason.CAPACITY_LAUNCHING}: GPUInstance {record.metadata.name} is {record.state}{left}.{failed}"
    return None


def pool_view(pool: GPUNodePool) -> PoolView:
    status = pool.status
    ready = next((each for each in (status.conditions if status is not None else ()) if each.type == "Ready"), None)
    return PoolView(
        pool="/".join(pool.key),
        node_class=pool.spec.node_class_ref.name,
        nodes=(status.node_count or 0) if status is not None else 0,
        hourly=str((status.hourly_cost if status is not None else None) or 0),
        ready=ready.status if ready is not None else "Unknown",
        reason=f"{ready.reason}: {ready.message}" if ready is not None else "no operator has reconciled this pool yet",
    )


def spend(records: Sequence[GPUInstance], now: datetime) -> SpendView:
    total, rate = NO_COST, UsdPerHour(0)
    for record in records:
        total += cost(record, now)
        rate += hourly_cost(record)
    starts = [each.status.billed_from for each in records if each.status is not None and each.status.billed_from]
    return SpendView(
        hourly=rate.exact(),
        total=decimal(total.dollars),
        total_exact=total.exact(),
        machines=len(records),
        since=min(starts, default=None),
    )


def bill(found: Mapping[BillKey, Cost]) -> list[BillRow]:
    """Rows of the bill, the largest cost first; rows without cost are left out."""
    return [
        BillRow(
            namespace=line.namespace,
            pool=line.pool,
            node_class=line.node_class,
            spent=decimal(each.amount.dollars),
            spent_exact=each.amount.exact(),
            hourly=each.rate.exact(),
        )
        for line, each in sorted(found.items(), key=lambda item: (-item[1].amount.units, item[0]))
        if each.amount or each.rate
    ]


def spend_text(spend: SpendView, rows: Sequence[BillRow] | None) -> str:
    """`$1.80/h now; $42.10 in 31 days`, by the bill. Without one, what the GPUInstances that are shown have cost."""
    now = f"{UsdPerHour(spend.hourly)} now"
    if rows:
        return f"{now}; {sum((Usd.from_exact(each.spent_exact) for each in rows), NO_COST)} in 31 days"
    if not spend.machines:
        return "$0.00: there are no GPUInstances"
    instances = counted(spend.machines, "GPUInstance")
    since = f" since {spend.since:%Y-%m-%d %H:%M} UTC" if spend.since is not None else ""
    return f"{now}; {Usd.from_exact(spend.total_exact)}{since} for {instances}"


def missing_kinds_text(kinds: Iterable[str]) -> str:
    """Which of Forebay's kinds the cluster lacks, and what to do."""
    return f"{', '.join(kinds)} not installed; run: forebay manifests crds | kubectl apply -f -"


def leader_text(leaders: Sequence[Leader] | None, namespace: str, other_leases: Sequence[str], now: datetime) -> str:
    """Who leads in the operator's `namespace`, or why nobody does."""
    if leaders is None:
        return f"unknown: this user may not read the Lease in namespace {namespace}"
    if leaders:
        return "; ".join(_one_leader(leader, now) for leader in leaders)
    none = f"none: no operator has run in namespace {namespace}"
    if not other_leases:
        return f"{none}; start one with forebay run --namespace {namespace}"
    return (
        f"{none}. Leases of that name are in: {', '.join(other_leases)}; if your "
        "operator runs in one of these namespaces, set FOREBAY_NAMESPACE to it"
    )


def view_age_text(views: Sequence[ViewAge]) -> str:
    """`at most 2 s (5 nodes, 40 pods)`."""
    oldest = max((view.seconds for view in views), default=0.0)
    objects = ", ".join(counted(view.objects, view.kind.removesuffix("s")) for view in views)
    return f"at most {oldest:.0f} s ({objects})"


def _one_leader(leader: Leader, now: datetime) -> str:
    where = f"in namespace {leader.namespace}"
    ago = f"{human(now - leader.renewed)} ago" if leader.renewed is not None else ""
    if not leader.holder:
        return f"none {where}: the last leader released its lease {ago}".rstrip()
    if leader.is_active(now):
        return f"{leader.holder} {where}, renewed {ago}"
    return f"none {where}: {leader.holder} has not renewed its lease for {human(now - (leader.renewed or now))}"


def _is_leaving_or_gone(record: GPUInstance) -> bool:
    return is_leaving(record) or record.state is InstanceState.GONE


def _gone_last(record: GPUInstance) -> tuple[bool, str]:
    return (record.state is InstanceState.GONE, record.metadata.name)
