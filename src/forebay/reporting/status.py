"""The figures of `forebay status`, from values alone, and the words for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.budgets.bill_keys import BillKey, Cost
from forebay.demand.assessment import not_demand
from forebay.demand.planned_pods import is_leaving, planned_nodes
from forebay.model.nodes import Node
from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.reconcile.reports import hourly_cost
from forebay.reporting.cluster_view import EventLine, Leader, pods_by_node
from forebay.reporting.machines import FREE, MachineView, cost, decimal, machine_view


class Waiting(msgspec.Struct, frozen=True):
    """A pod that asks for GPUs and has no node."""

    pod: str
    gpus: int
    since: datetime
    #: A word and a sentence: Forebay's own where it has spoken, else the scheduler's.
    reason: str


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    pool: str
    node_class: str
    nodes: int
    #: Dollars an hour, exact.
    hourly: str
    #: The Ready condition: True, False or Unknown, and Unknown before anybody has said.
    ready: str
    reason: str


class ViewAge(msgspec.Struct, frozen=True, kw_only=True):
    """How current what is shown is."""

    kind: str
    objects: int
    #: Since the server's last word.
    seconds: float


class SpendView(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars of the machines on record."""

    hourly: str
    total: str
    total_exact: str
    machines: int
    since: datetime | None


class BillRow(msgspec.Struct, frozen=True, kw_only=True):
    """What machines have cost in 31 days, by who pays, pool and class."""

    #: "": nobody, as for leftovers and machines that nobody asked for.
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
    #: The UID of kube-system: what Forebay marks its machines with.
    cluster_id: str
    kinds_installed: list[str]
    kinds_missing: list[str]
    #: None where this user may not see Leases.
    leaders: list[Leader] | None
    views: list[ViewAge]
    nodes: int
    nodes_ready: int
    gpus: int
    gpus_requested: int
    pods: int
    spend: SpendView
    #: None where the ledgers may not be read.
    bill: list[BillRow] | None
    pools: list[PoolView]
    machines: list[MachineView]
    waiting: list[Waiting]


def figures(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    waiting: Sequence[Pod],
    *,
    records: Sequence[GPUInstance],
    pools: Sequence[GPUNodePool],
    said: Iterable[EventLine],
    gpu_resources: Collection[str] | None,
    now: datetime,
) -> dict[str, Any]:
    bound = [pod for pod in pods if pod.node is not None and not pod.phase.ended]
    by_node = pods_by_node(pods)
    latest = {each.about: each for each in said}
    by_name = {node.name: node for node in nodes}
    promised = planned_nodes(records, {pod.uid for pod in waiting})
    return {
        "nodes": len(nodes),
        "nodes_ready": sum(node.ready for node in nodes),
        "gpus": sum(int(node.allocatable.gpus(gpu_resources)) for node in nodes),
        "gpus_requested": sum(int(pod.shape.gpus(gpu_resources)) for pod in bound),
        "pods": len(pods),
        "spend": spend(records, now),
        "pools": [pool_view(pool) for pool in sorted(pools, key=lambda each: each.key)],
        "machines": [machine_view(record, by_node, now) for record in sorted(records, key=_in_service_first)],
        "waiting": [
            Waiting(
                "/".join(pod.key),
                int(pod.shape.gpus(gpu_resources)),
                pod.unschedulable_since or pod.created,
                why_waiting(
                    pod,
                    records,
                    latest=latest,
                    nodes=by_name,
                    promised=promised.get(pod.uid, ()),
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
    latest: Mapping[str, EventLine],
    nodes: Mapping[str, Node],
    promised: Collection[str],
    gpu_resources: Collection[str] | None,
    now: datetime,
) -> str:
    """What is on its way for it; else what Forebay said last; else what the scheduler says."""
    other = not_demand(pod, gpu_resources, now, nodes=nodes, planned_nodes=promised)
    if other is not None:
        return f"{other.reason}: {other.sentence}"
    if (coming := on_its_way(pod, records, now)) is not None:
        return coming
    said = latest.get("/".join(pod.key))
    if said is not None:
        return f"{said.reason}: {said.note}"
    return f"{Reason.UNSCHEDULABLE}: {pod.unschedulable_message or 'the scheduler gives no reason'}"


def on_its_way(pod: Pod, records: Iterable[GPUInstance], now: datetime) -> str | None:
    """Which machine comes for it; None where none does."""
    for record in records:
        if any(asked.uid == pod.uid for asked in record.spec.pods) and not _over(record):
            due = record.status.deadline if record.status is not None else None
            by = f", due in {human(due - now)}" if due is not None and due > now else ""
            return f"{Reason.CAPACITY_LAUNCHING}: GPUInstance {record.metadata.name} is {record.state}{by}."
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
        reason=f"{ready.reason}: {ready.message}" if ready is not None else "no operator has looked at it yet",
    )


def spend(records: Sequence[GPUInstance], now: datetime) -> SpendView:
    total, rate = FREE, UsdPerHour(0)
    for record in records:
        total += cost(record, now)
        rate += hourly_cost(record)
    begun = [each.status.billed_from for each in records if each.status is not None and each.status.billed_from]
    return SpendView(
        hourly=rate.exact(),
        total=decimal(total.dollars),
        total_exact=total.exact(),
        machines=len(records),
        since=min(begun, default=None),
    )


def bill(found: Mapping[BillKey, Cost]) -> list[BillRow]:
    """The largest first."""
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


def spent(spend: SpendView) -> str:
    if not spend.machines:
        return "nothing: no machine is on record"
    machines = "1 machine" if spend.machines == 1 else f"{spend.machines} machines"
    since = f" since {spend.since:%Y-%m-%d %H:%M} UTC" if spend.since is not None else ""
    return f"{UsdPerHour(spend.hourly)} now; {Usd.from_exact(spend.total_exact)}{since} for the {machines} on record"


def told_leader(leaders: Sequence[Leader] | None, now: datetime) -> str:
    if leaders is None:
        return "unknown: this user may not list leases"
    if not leaders:
        return "nobody: no operator has ever run here; start one with forebay run"
    return "; ".join(_told(leader, now) for leader in leaders)


def told_views(views: Sequence[ViewAge]) -> str:
    oldest = max((view.seconds for view in views), default=0.0)
    return f"{', '.join(f'{view.objects} {view.kind}' for view in views)}, at most {oldest:.0f} s old"


def _told(leader: Leader, now: datetime) -> str:
    where = f"in namespace {leader.namespace}"
    ago = f", renewed {human(now - leader.renewed)} ago" if leader.renewed is not None else ""
    if not leader.holder:
        return f"nobody {where}: the last one has left{ago}"
    if leader.acts(now):
        return f"{leader.holder} {where}{ago}"
    return f"nobody {where}: {leader.holder} has not renewed its lease for {human(now - (leader.renewed or now))}"


def _over(record: GPUInstance) -> bool:
    return is_leaving(record) or record.state is InstanceState.GONE


def _in_service_first(record: GPUInstance) -> tuple[bool, str]:
    return (record.state is InstanceState.GONE, record.metadata.name)
