"""Replacement first: another machine is Ready before the pods leave a node that expired, drifted or is taken back."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState, Purpose
from forebay.api.parts import Truth
from forebay.budgets.admission import Admission
from forebay.demand.replacements import REPLACEMENT, condition_of, replaced, told_of_replacement
from forebay.disruption.consolidation import ScaleDown
from forebay.lifecycle.steps import DeleteRecord, WriteStatus
from forebay.lifecycle.transitions import with_condition
from forebay.model.kept import among
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.planning.cheapest_nodes import cheapest_nodes
from forebay.planning.limits import caps
from forebay.planning.plan import PoolKey, Preferences, Purchase
from forebay.reconcile.buying import candidates_now, first_offers_due, order, plan_for, within_dollars
from forebay.reconcile.class_finalizers import may_buy
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.isolation import Faults
from forebay.reconcile.room_elsewhere import RoomElsewhere, movable_pods, without_nodes
from forebay.reconcile.snapshot import Snapshot

#: Reasons for which a node goes although pods run on it, and there is time for a replacement.
REPLACED_FIRST: Final = frozenset({Reason.EXPIRED, Reason.DRIFTED, Reason.RECLAIMED})

#: Why it goes, in words that stay the same while it waits.
_WHY: Final = {
    Reason.EXPIRED: "The node is older than its pool's expireAfter.",
    Reason.DRIFTED: "The node was launched from an earlier template of its pool or class.",
    Reason.RECLAIMED: "Its provider takes the machine back.",
}


class Replacing(NamedTuple):
    #: Nodes whose drain begins now.
    leaving: tuple[ScaleDown, ...]
    decisions: tuple[CreateInstance | DeleteRecord | WriteStatus, ...]


class _Found(NamedTuple):
    """What can be launched in place of a node: nothing where `why_not` says why."""

    purchases: tuple[Purchase, ...] = ()
    purpose: Purpose = Purpose.PODS
    why_not: str | None = None


def replace_first(
    snapshot: Snapshot,
    leaving: Iterable[ScaleDown],
    admission: Admission | None,
    *,
    faults: Faults,
    may_launch: bool,
    unreplaced: Collection[str] = (),
) -> Replacing:
    """The nodes of `leaving` that may be drained now, and what has to happen before the others may.

    `unreplaced` are nodes (UIDs) that wait for their turn to be looked at again. Nothing is launched where this tick
    launches machines for pods: limits are counted anew in the next.
    """
    going: list[ScaleDown] = []
    decisions: list[CreateInstance | DeleteRecord | WriteStatus] = []
    by_uid: dict[str, list[GPUInstance]] = {}
    for old, new in replaced(snapshot.records):
        by_uid.setdefault(old.uid, []).append(new)
    due: set[str] = set()
    leaving = tuple(leaving)
    going += (each for each in leaving if each.reason not in REPLACED_FIRST)
    # A node that goes in this tick is no room for the pods of another.
    seen, moved = without_nodes(snapshot, [each.record for each in going]), False
    for each in leaving:
        if each.reason not in REPLACED_FIRST:
            continue
        due.add(each.record.uid)
        decision, news = None, by_uid.get(each.record.uid, ())
        with faults.of("GPUInstance", "", each.record.metadata.name):
            decision = _next(seen, each, news, admission)
        if isinstance(decision, ScaleDown):
            moves = not news and bool(movable_pods(seen, [each.record]))
            if moves and moved:
                # The room may be taken by the pods of another: the next tick counts these.
                continue
            moved = moved or moves
            going.append(decision)
            seen = without_nodes(seen, [decision.record])
        elif isinstance(decision, WriteStatus):
            decisions.append(decision)
        elif may_launch and decision is not None:
            decisions += decision
            may_launch = False
    decisions += _no_longer(snapshot, due.union(unreplaced))
    return Replacing(tuple(going), tuple(decisions))


def _next(
    snapshot: Snapshot, each: ScaleDown, news: Sequence[GPUInstance], admission: Admission | None
) -> ScaleDown | WriteStatus | Sequence[CreateInstance | DeleteRecord] | None:
    """The drain, the condition that says what it waits for, or the replacement; None: wait."""
    record, pods = each.record, movable_pods(snapshot, [each.record])
    static = _static_without(snapshot, record)
    if not pods and not static:
        return each
    up = [new for new in news if _is_up(new, snapshot)]
    if news and len(up) == len(news):
        return _with(each, f"Its replacement {_names(up)} is Ready.")
    if news:
        sentence = f"{_WHY[each.reason]} Waiting until its replacement {_names(news)} is Ready."
        return _told(snapshot, each, Truth.TRUE, Reason.REPLACEMENT_NEEDED, sentence)
    left = RoomElsewhere(snapshot, [record]).left(pods)
    if not left and not static:
        return _with(each, "Its pods have room on other nodes.")
    if first_offers_due(snapshot) is not None:
        return None
    found = _replacement(snapshot, record, left, admission)
    if found.why_not is not None:
        others = msgspec.structs.replace(
            snapshot, records=tuple(other for other in snapshot.records if other.uid != record.uid)
        )
        if _replacement(others, record, left, admission).why_not is None:
            return _with(each, "Limits leave no room for a replacement beside it, so its pods wait for a new node.")
        sentence = f"{_WHY[each.reason]} Its pods run on, because nothing can take its place: {found.why_not}"
        return _told(snapshot, each, Truth.FALSE, Reason.REPLACEMENT_UNAVAILABLE, sentence)
    told = condition_of(record, REPLACEMENT)
    if told is None or told.status is not Truth.TRUE:
        # Recorded first: the replacement is wanted as long as the condition holds.
        sentence = f"{_WHY[each.reason]} A replacement is launched first."
        return _told(snapshot, each, Truth.TRUE, Reason.REPLACEMENT_NEEDED, sentence)
    return order(_buying(snapshot), found.purchases, found.purpose, [record])


def _replacement(snapshot: Snapshot, record: GPUInstance, pods: Sequence[Pod], admission: Admission | None) -> _Found:
    """The cheapest machines for the pods; one for minNodes where there are none."""
    buying = _buying(snapshot)
    if not pods:
        pool = record.spec.pool_ref
        assert pool is not None, "only a pool has minNodes"
        limits = caps(buying.pools, buying.classes, buying.records)
        offering, key = candidates_now(buying), PoolKey(pool.namespace, pool.name)
        why = f"it replaces {record.metadata.name} for the pool's minNodes"
        one = cheapest_nodes(key, 1, offering, limits, preferences=Preferences(), why=why)
        return _Found(one.purchases, Purpose.STATIC, None if one.purchases else f"{one.lacking}.")
    planned = plan_for(without_nodes(buying, [record]), pods, alone=True)
    if planned.left_out:
        return _Found(why_not=planned.left_out[0].sentence)
    affordable, held = within_dollars(planned.purchases, admission)
    if held:
        return _Found(why_not=held[0].sentence)
    purchases = tuple(
        msgspec.structs.replace(each, sentence=f"{each.sentence} It replaces {record.metadata.name}.")
        for each in affordable
    )
    purpose = Purpose.STATIC if record.purpose is Purpose.STATIC else Purpose.PODS
    return _Found(purchases, purpose)


def _static_without(snapshot: Snapshot, record: GPUInstance) -> bool:
    """Whether the pool of the node would have fewer Ready nodes than its minNodes without it."""
    pool = record.spec.pool_ref
    least = next(
        (each.spec.min_nodes for each in snapshot.pools if pool and each.key == (pool.namespace, pool.name)), 0
    )
    others = (each for each in snapshot.records if each.spec.pool_ref == pool and each.uid != record.uid)
    return least > 0 and sum(_is_up(each, snapshot) for each in others) < least


def _no_longer(snapshot: Snapshot, due: set[str]) -> Iterable[WriteStatus]:
    """Conditions of nodes that are not to be replaced any more, such as those of a template that was changed back."""
    for record in among(snapshot.records, told_of_replacement):
        told = condition_of(record, REPLACEMENT)
        if told is None or record.uid in due or record.state is not InstanceState.READY:
            continue
        if told.reason not in {Reason.NOT_NEEDED, Reason.RECLAIMED}:
            sentence = "The node is not to be replaced any more."
            yield _condition(snapshot, record, Truth.FALSE, Reason.NOT_NEEDED, sentence)


def _told(snapshot: Snapshot, each: ScaleDown, truth: Truth, reason: Reason, sentence: str) -> WriteStatus | None:
    """The condition, where it says something else by now. Of a machine that is taken back, its notice stays."""
    before = condition_of(each.record, REPLACEMENT)
    same = before is not None and (before.status, before.reason) == (truth, reason)
    # Why nothing can be launched is told once: the sentence counts minutes.
    if each.reason is Reason.RECLAIMED or (same and reason is Reason.REPLACEMENT_UNAVAILABLE):
        return None
    if before is not None and (before.status, before.reason, before.message) == (truth, reason, sentence):
        return None
    return _condition(snapshot, each.record, truth, reason, sentence)


def _condition(snapshot: Snapshot, record: GPUInstance, truth: Truth, reason: Reason, sentence: str) -> WriteStatus:
    status = record.status or GPUInstanceStatus()
    status = with_condition(status, REPLACEMENT, truth is Truth.TRUE, reason, sentence, snapshot.now)
    return WriteStatus(record=record, reason=reason, sentence=sentence, status=status)


def _buying(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(snapshot, classes=tuple(filter(may_buy, snapshot.classes)))


def _with(each: ScaleDown, sentence: str) -> ScaleDown:
    return msgspec.structs.replace(each, sentence=f"{each.sentence} {sentence}")


def _is_up(record: GPUInstance, snapshot: Snapshot) -> bool:
    node = snapshot.nodes.get(record.node_name or "")
    return record.state is InstanceState.READY and node is not None and node.ready


def _names(records: Iterable[GPUInstance]) -> str:
    return ", ".join(sorted(each.metadata.name for each in records))


def moving_to(snapshot: Snapshot) -> Mapping[str, str]:
    """By node of a replacement, what it is kept for."""
    return {
        new.node_name: f"those of {old.metadata.name}"
        for old, new in replaced(snapshot.records)
        if new.node_name is not None
    }
