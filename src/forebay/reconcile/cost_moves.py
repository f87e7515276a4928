"""Moves that save cost: pods of under-utilized nodes go to the free room of others, or to one cheaper machine."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.api.gpu_node_pool import ConsolidationPolicy, DisruptionReason
from forebay.api.parts import Truth
from forebay.budgets.admission import Admission
from forebay.demand.evictions import eviction_refused
from forebay.demand.replacements import UNDERUTILIZED, Replaced, condition_of, replaced
from forebay.disruption.consolidation import ScaleDown, ScaleDownRules
from forebay.disruption.machine_use import MachineUse
from forebay.disruption.pool_budgets import PoolBudgets, PoolName, pool_of
from forebay.disruption.underutilization import may_be_emptied, moves_at, pays_back, utilization
from forebay.lifecycle.steps import DeleteRecord, WriteStatus
from forebay.lifecycle.transitions import with_condition
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.planning.limits import hourly_price
from forebay.planning.plan import Preferences, Purchase
from forebay.planning.sentences import described
from forebay.reconcile.buying import first_offers_due, order, plan_for, within_dollars
from forebay.reconcile.class_finalizers import may_buy
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.isolation import Faults
from forebay.reconcile.room_elsewhere import RoomElsewhere, movable_pods, without_nodes
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.what_runs import looks_at_other_pods

#: Between two looks at which nodes are under-utilized.
CHECK_INTERVAL: Final = timedelta(seconds=15)
#: Plans for a cheaper machine in one look, and nodes that one machine may replace together.
_MOST_PLANS: Final = 8
_MOST_TOGETHER: Final = 5
#: A plan for the pods of a few nodes is found at once, or is not worth the wait.
_QUICK: Final = Preferences(deadline=timedelta(milliseconds=100))


class CostMoves(NamedTuple):
    leaving: tuple[ScaleDown, ...] = ()
    decisions: tuple[CreateInstance | DeleteRecord | WriteStatus, ...] = ()
    #: When the nodes were last looked at; None where no pool asks for it.
    checked_at: datetime | None = None
    requeue_at: datetime | None = None


class _Move(NamedTuple):
    """How the pods of some nodes would be served for less."""

    machines: tuple[MachineUse, ...]
    sentence: str
    #: Pods without room elsewhere, and the machine to launch for them.
    purchase: Purchase | None = None
    #: Launched for that already.
    by: GPUInstance | None = None


def cost_moves(
    snapshot: Snapshot,
    machines: Sequence[MachineUse],
    rules: ScaleDownRules,
    budgets: PoolBudgets,
    *,
    admission: Admission | None = None,
    besides: Iterable[str] = (),
    ending: Collection[str] = (),
    faults: Faults,
    may_launch: bool = True,
) -> CostMoves:
    """Nodes to empty, what to launch for that, and the condition Underutilized of each node that may be emptied.

    `besides` names GPUInstances that something else happens to, `ending` those of them that go for other reasons. Only
    looks every `CHECK_INTERVAL`: each look simulates where pods could go.
    """
    if not any(each.consolidation_policy is ConsolidationPolicy.WHEN_UNDERUTILIZED for each in rules.pools.values()):
        return CostMoves()
    last = snapshot.memory.consolidated
    if last is not None and snapshot.now < last + CHECK_INTERVAL:
        return CostMoves(checked_at=last, requeue_at=last + CHECK_INTERVAL)
    excluded = set(besides)
    news = replaced(snapshot.records)
    excluded |= {each.by.metadata.name for each in news}
    eligible = [
        each
        for each in machines
        if each.name not in excluded
        and may_be_emptied(each, snapshot.now, rules)
        and not looks_at_other_pods(each.pods)
    ]
    # A pod that the scheduler has not reported on may be bound anywhere in a moment.
    settled = not any(snapshot.scheduler_waits.expected(pod, snapshot.now) for pod in snapshot.pending)
    # And after a start, offers that are not known yet may be the cheaper ones.
    settled = settled and first_offers_due(snapshot) is None
    # Nobody moves to a node that goes itself.
    snapshot = without_nodes(snapshot, [each.record for each in machines if each.name in ending])
    spare = _spare_nodes((each for each in machines if each.name not in ending), rules)
    found = _moves(snapshot, sorted(eligible, key=utilization), news, faults, spare) if settled else {}
    decisions: list[CreateInstance | DeleteRecord | WriteStatus] = []
    leaving: list[ScaleDown] = []
    acted: set[str] = set()
    for move in {id(each): each for each in found.values()}.values():
        going = _going(snapshot, move, rules, budgets) if not acted else ()
        if not going:
            continue
        if move.purchase is None:
            leaving += going
            acted |= {each.record.uid for each in going}
        elif may_launch and (ordered := _order(snapshot, move, admission)):
            decisions += ordered
            acted |= {each.record.uid for each in going}
    if settled:
        decisions += _conditions(snapshot, machines, found, {each.record.metadata.name for each in leaving} | excluded)
    return CostMoves(
        tuple(leaving),
        tuple(decisions),
        snapshot.now,
        snapshot.now + CHECK_INTERVAL if eligible else None,
    )


def _spare_nodes(machines: Iterable[MachineUse], rules: ScaleDownRules) -> Mapping[PoolName, int]:
    """By pool with minNodes, how many of its Ready nodes it can do without: what goes beyond is launched again."""
    found = {pool: -least for pool, least in rules.min_nodes.items()}
    for machine in machines if found else ():
        if (pool := pool_of(machine)) is not None and pool in found:
            found[pool] += machine.in_service
    return found


def _leaves_enough(move: _Move, spare: Mapping[PoolName, int]) -> bool:
    """Whether the pools of the nodes have their minNodes after the move."""
    less = Counter(pool_of(each) for each in move.machines)
    if move.purchase is not None:
        pool = move.purchase.candidate.pool
        less[pool.namespace, pool.name] -= 1
    elif move.by is not None and move.by.state is not InstanceState.READY:
        less[move.by.pool_key] -= 1
    return all(less[pool] <= left for pool, left in spare.items() if pool in less)


def _moves(
    snapshot: Snapshot,
    eligible: Sequence[MachineUse],
    news: Sequence[Replaced],
    faults: Faults,
    spare: Mapping[PoolName, int],
) -> Mapping[str, _Move]:
    """By name of the node, the move that empties it."""
    found: dict[str, _Move] = {}
    by_name = {each.name: each for each in eligible}
    by_uid = {each.record.uid: each.by for each in news}
    together: list[MachineUse] = []
    plans = _MOST_PLANS
    for machine in eligible:
        if machine.name in found:
            continue
        with faults.of("GPUInstance", "", machine.name):
            move: _Move | None = None
            if (by := by_uid.get(machine.record.uid)) is not None:
                move = _under_way(snapshot, by, by_name)
            elif (move := _to_others(snapshot, machine)) is None:
                move = _to_cheaper(snapshot, (machine,)) if plans > 0 else None
                plans -= 1
                together += [machine] if move is None else []
            if move is not None and _leaves_enough(move, spare):
                found.update(dict.fromkeys((each.name for each in move.machines), move))
    for count in range(min(len(together), _MOST_TOGETHER), 1, -1):
        with faults.of("GPUInstance", "", together[count - 1].name):
            move = _to_cheaper(snapshot, tuple(together[:count]))
            if move is not None and _leaves_enough(move, spare):
                found.update(dict.fromkeys((each.name for each in move.machines), move))
                break
    return found


def _under_way(snapshot: Snapshot, by: GPUInstance, by_name: Mapping[str, MachineUse]) -> _Move | None:
    """The move to a machine that was launched for it; None where it does not hold any more for all of its nodes."""
    group = tuple(by_name[each.name] for each in by.spec.replaces if each.name in by_name)
    if len(group) < len(by.spec.replaces) or not _fits(snapshot, group, by):
        return None
    return _Move(group, f"Its pods move to {by.metadata.name}, which is cheaper.", by=by)


def _fits(snapshot: Snapshot, machines: Sequence[MachineUse], by: GPUInstance) -> bool:
    records = [each.record for each in machines]
    room = RoomElsewhere(snapshot, records, launching=[by.metadata.name])
    return not room.left(movable_pods(snapshot, records))


def _to_others(snapshot: Snapshot, machine: MachineUse) -> _Move | None:
    """The move of the node's pods to the free room of others; None where they do not fit, or nothing is saved."""
    price = hourly_price(machine.record)
    pods = movable_pods(snapshot, [machine.record])
    room = RoomElsewhere(snapshot, [machine.record])
    if not price or room.left(pods):
        return None
    names = ", ".join(room.nodes_of(pods))
    return _Move((machine,), f"Its pods fit on {names}, which saves {price}.")


def _to_cheaper(snapshot: Snapshot, machines: tuple[MachineUse, ...]) -> _Move | None:
    """The move of the nodes' pods to one machine that costs less than they do, and to the free room of others."""
    records = [each.record for each in machines]
    old = sum((hourly_price(each) for each in records), start=UsdPerHour.zero())
    left = RoomElsewhere(snapshot, records).left(movable_pods(snapshot, records))
    if not old or not left:
        return None
    buying = msgspec.structs.replace(snapshot, classes=tuple(filter(may_buy, snapshot.classes)))
    planned = plan_for(without_nodes(buying, records), left, _QUICK, alone=True)
    if planned.left_out or len(planned.purchases) != 1:
        return None
    (purchase,) = planned.purchases
    new = purchase.candidate.offer.price
    if not pays_back(old, new):
        return None
    names = ", ".join(sorted(each.name for each in machines))
    sentence = f"{described(purchase.candidate)} serves the pods of {names} for {old - new} less."
    return _Move(machines, sentence, purchase)


def _going(snapshot: Snapshot, move: _Move, rules: ScaleDownRules, budgets: PoolBudgets) -> tuple[ScaleDown, ...]:
    """The drains of the move, where all its nodes may go now; for one with a purchase, only whether they may."""
    now = snapshot.now
    due = [moves_at(each, now, rules) for each in move.machines]
    if any(at is None or at > now for at in due):
        return ()
    if move.by is not None and not _ready_to_take(snapshot, move):
        return ()
    if _refused(snapshot, move) is not None:
        return ()
    if not all(budgets.admit(each, DisruptionReason.UNDERUTILIZED) for each in move.machines):
        return ()
    return tuple(
        ScaleDown(
            record=each.record,
            reason=Reason.UNDERUTILIZED,
            sentence=f"Node {each.record.node_name} is under-utilized. {move.sentence} Draining and terminating it.",
        )
        for each in move.machines
    )


def _refused(snapshot: Snapshot, move: _Move) -> str | None:
    """Why the pods of the move cannot be evicted now, as a clause."""
    return eviction_refused([pod for each in move.machines for pod in each.pods], snapshot.pod_disruption_budgets)


def _ready_to_take(snapshot: Snapshot, move: _Move) -> bool:
    """Whether the replacement is Ready and has room for the pods, together with other nodes."""
    records = [each.record for each in move.machines]
    by = move.by
    return (
        by is not None
        and by.state is InstanceState.READY
        and not RoomElsewhere(snapshot, records).left(movable_pods(snapshot, records))
    )


def _order(snapshot: Snapshot, move: _Move, admission: Admission | None) -> tuple[CreateInstance | DeleteRecord, ...]:
    """The GPUInstance that takes the pods. Not where its pods' budgets cannot pay for both machines meanwhile."""
    assert move.purchase is not None, "asked of moves with a purchase"
    records = [each.record for each in move.machines]
    names = ", ".join(sorted(each.name for each in move.machines))
    purchase = msgspec.structs.replace(
        move.purchase, sentence=f"{move.purchase.sentence} It replaces {names}, to save cost."
    )
    affordable, held = within_dollars([purchase], admission)
    buying = msgspec.structs.replace(snapshot, classes=tuple(filter(may_buy, snapshot.classes)))
    return () if held else order(buying, affordable, replaced=records)


def _conditions(
    snapshot: Snapshot, machines: Iterable[MachineUse], found: Mapping[str, _Move], besides: set[str]
) -> Iterable[WriteStatus]:
    """The condition Underutilized where it is not recorded, or no longer true."""
    for machine in machines:
        if machine.name in besides or not machine.in_service:
            continue
        move, told = found.get(machine.name), condition_of(machine.record, UNDERUTILIZED)
        holds = move is not None
        reason = Reason.UNDERUTILIZED if holds else Reason.IN_USE
        sentence = move.sentence if move is not None else "No cheaper way to serve the pods of the node is known."
        if move is not None and (refused := _refused(snapshot, move)) is not None:
            reason, sentence = Reason.EVICTION_BLOCKED, f"{move.sentence} Not now: {refused}."
        if (told is None and not holds) or (
            told is not None and (told.status is Truth.TRUE, told.reason) == (holds, reason)
        ):
            continue
        status = machine.record.status or GPUInstanceStatus()
        status = with_condition(status, UNDERUTILIZED, holds, reason, sentence, snapshot.now)
        yield WriteStatus(record=machine.record, reason=reason, sentence=sentence, status=status)
