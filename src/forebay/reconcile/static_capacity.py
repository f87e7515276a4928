"""Static capacity: nodes that pools have whatever pods there are (spec.minNodes), and what each of them waits for."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState, Purpose
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.parts import Truth
from forebay.lifecycle.cooldown import cooldowns
from forebay.lifecycle.steps import DeleteRecord
from forebay.model.reasons import Reason
from forebay.planning.cheapest_nodes import cheapest_nodes
from forebay.planning.limits import caps
from forebay.planning.plan import PoolKey, Preferences
from forebay.reconcile.buying import candidates_now, first_offers_due, order
from forebay.reconcile.class_finalizers import may_buy
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.isolation import Faults
from forebay.reconcile.reports import Fact
from forebay.reconcile.snapshot import Snapshot, revisions
from forebay.reconcile.wanted import PoolName, counts_as_node

#: Condition of a pool with minNodes: whether that many of its nodes are Ready, and what the others wait for.
MIN_NODES: Final = "MinNodes"
_MOST_NAMED: Final = 5


class StaticCapacity(NamedTuple):
    decisions: tuple[CreateInstance | DeleteRecord, ...] = ()
    #: The condition MinNodes of each pool that has one.
    facts: Mapping[PoolName, tuple[Fact, ...]] = {}
    requeue_at: datetime | None = None


def static_capacity(snapshot: Snapshot, others: Iterable[object], faults: Faults) -> StaticCapacity:
    """GPUInstances that pools lack to their minNodes.

    None in a tick that creates GPUInstances for pods (`others`): these count, and use up limits, in the next.
    """
    sized = [pool for pool in snapshot.pools if pool.spec.min_nodes and pool.metadata.deletion_timestamp is None]
    others_told = ((pool.key, _no_longer_sized(pool)) for pool in snapshot.pools if not pool.spec.min_nodes)
    facts = {key: found for key, found in others_told if found}
    if not sized:
        return StaticCapacity(facts=facts)
    nodes: defaultdict[PoolName, list[GPUInstance]] = defaultdict(list)
    for record in snapshot.records:
        reference = record.spec.pool_ref
        if reference is not None and counts_as_node(record):
            nodes[reference.namespace, reference.name].append(record)
    lacking = {pool.key: pool.spec.min_nodes - len(nodes[pool.key]) for pool in sized}
    decisions: list[CreateInstance | DeleteRecord] = []
    notes: dict[PoolName, str] = {}
    waits = any(isinstance(each, CreateInstance) for each in others)
    requeue_at = first_offers_due(snapshot)
    if any(number > 0 for number in lacking.values()) and not waits and requeue_at is None:
        decisions, notes = _bought(snapshot, {key: number for key, number in lacking.items() if number > 0}, faults)
        cooling = cooldowns(snapshot.records, snapshot.now, revisions(snapshot)).values()
        requeue_at = min((each.until for each in cooling), default=None)
    for pool in sized:
        facts[pool.key] = (_fact(pool, nodes[pool.key], notes.get(pool.key), snapshot),)
    return StaticCapacity(tuple(decisions), facts, requeue_at)


def _bought(
    snapshot: Snapshot, lacking: Mapping[PoolName, int], faults: Faults
) -> tuple[list[CreateInstance | DeleteRecord], dict[PoolName, str]]:
    """GPUInstances for one pool, and for each pool that gets too few, why. The limits of a class hold for all its
    pools, so that the next pool has its turn in the next tick.
    """
    buying = msgspec.structs.replace(snapshot, classes=tuple(filter(may_buy, snapshot.classes)))
    offering = candidates_now(buying)
    left = caps(buying.pools, buying.classes, buying.records)
    notes: dict[PoolName, str] = {}
    preferences = Preferences(known_providers=frozenset(record.spec.provider for record in snapshot.records))
    for key, number in sorted(lacking.items()):
        with faults.of("GPUNodePool", *key):
            asked = next(pool.spec.min_nodes for pool in snapshot.pools if pool.key == key)
            why = f"minNodes of GPUNodePool {'/'.join(key)} is {asked}"
            found = cheapest_nodes(PoolKey(*key), number, offering, left, preferences=preferences, why=why)
            if found.lacking is not None:
                notes[key] = found.lacking
            if found.purchases:
                return list(order(buying, found.purchases, Purpose.STATIC)), notes
    return [], notes


def _fact(pool: GPUNodePool, nodes: Iterable[GPUInstance], lacking: str | None, snapshot: Snapshot) -> Fact:
    wanted, nodes = pool.spec.min_nodes, list(nodes)
    up = [each for each in nodes if _is_up(each, snapshot)]
    if len(up) >= wanted:
        sentence = f"{len(up)} {'node is' if len(up) == 1 else 'nodes are'} Ready; spec.minNodes is {wanted}."
        return Fact(MIN_NODES, Truth.TRUE, Reason.NODE_READY, sentence)
    waiting = sorted(each.metadata.name for each in nodes if each not in up)
    parts = [f"{len(up)} of {wanted} nodes are Ready."]
    by_name = {each.metadata.name: each for each in nodes}
    parts += [f"{name}: {_waits_for(by_name[name])}" for name in waiting[:_MOST_NAMED]]
    missing = wanted - len(nodes)
    reason = Reason.CAPACITY_LAUNCHING
    if missing > 0 and lacking is not None:
        reason = Reason.NO_CAPACITY
        parts.append(f"Not launched: {missing}, because {lacking}.")
    elif missing > 0:
        parts.append(f"To be launched: {missing}.")
    return Fact(MIN_NODES, Truth.FALSE, reason, " ".join(parts))


def _is_up(record: GPUInstance, snapshot: Snapshot) -> bool:
    node = snapshot.nodes.get(record.node_name or "")
    return record.state is InstanceState.READY and node is not None and node.ready


def _waits_for(record: GPUInstance) -> str:
    """What a node that is not Ready waits for, in the words of its record, which stay the same while it waits."""
    told = record.status.message if record.status is not None else None
    return f"{record.state}. {told}" if told else f"{record.state}."


def _no_longer_sized(pool: GPUNodePool) -> tuple[Fact, ...]:
    """The condition of a pool whose minNodes was taken away."""
    if pool.status is None or not any(each.type == MIN_NODES for each in pool.status.conditions):
        return ()
    return (Fact(MIN_NODES, Truth.TRUE, Reason.NOT_NEEDED, "spec.minNodes is 0: nodes are launched for pods only."),)
