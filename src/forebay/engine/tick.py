"""One thought: a `Snapshot` in, `Decision`s with reasons out. No I/O, no clock but the snapshot's.

So far it settles what the pools refer to. Demand, plan, disruption and budgets join as steps of this list.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.parts import Condition, Truth
from forebay.engine.decisions import Decision, ReportPool
from forebay.engine.snapshot import Snapshot
from forebay.model.reasons import Reason


def tick(snapshot: Snapshot) -> tuple[Decision, ...]:
    return tuple(report_pools(snapshot))


def report_pools(snapshot: Snapshot) -> Iterable[ReportPool]:
    """What each pool's owner must know, for the pools that do not say so yet."""
    classes = {each.metadata.name: each for each in snapshot.classes}
    for pool in snapshot.pools:
        if pool.metadata.deletion_timestamp is not None:
            continue
        found = node_class_ready(pool, classes)
        facts = (found, ready(found))
        conditions = tuple(condition(pool, fact, snapshot.now) for fact in facts)
        said = pool.status.conditions if pool.status is not None else ()
        if set(conditions) <= set(said):
            continue
        told = {fact.type for fact in facts}
        namespace, name = pool.key
        yield ReportPool(
            namespace=namespace,
            name=name,
            uid=pool.uid,
            resource_version=pool.resource_version,
            generation=pool.metadata.generation or 0,
            conditions=(*(each for each in said if each.type not in told), *conditions),
            reason=found.reason,
            sentence=found.sentence,
        )


class Fact(NamedTuple):
    """A condition before it is known since when it holds."""

    type: str
    status: Truth
    reason: Reason
    sentence: str


def node_class_ready(pool: GPUNodePool, classes: Mapping[str, GPUNodeClass]) -> Fact:
    name = pool.spec.node_class_ref.name
    found = classes.get(name)
    if found is None:
        sentence = f'GPUNodeClass "{name}" does not exist: create it, or correct spec.nodeClassRef.name.'
        return Fact("NodeClassReady", Truth.FALSE, Reason.NODE_CLASS_NOT_FOUND, sentence)
    if found.metadata.deletion_timestamp is not None:
        sentence = f'GPUNodeClass "{name}" is being deleted: name another in spec.nodeClassRef, or delete this pool.'
        return Fact("NodeClassReady", Truth.FALSE, Reason.NODE_CLASS_DELETING, sentence)
    return Fact("NodeClassReady", Truth.TRUE, Reason.NODE_CLASS_FOUND, f'GPUNodeClass "{name}" exists.')


def ready(node_class: Fact) -> Fact:
    return node_class._replace(type="Ready")


def condition(pool: GPUNodePool, fact: Fact, now: datetime) -> Condition:
    """The fact as the pool shows it. One that was true before keeps the time since when it is."""
    said = pool.status.conditions if pool.status is not None else ()
    before = next((each for each in said if each.type == fact.type and each.status == fact.status), None)
    return Condition(
        type=fact.type,
        status=fact.status,
        reason=fact.reason,
        message=fact.sentence,
        # The API keeps whole seconds; with more, what is read back would never equal what was decided.
        last_transition_time=(before.last_transition_time if before is not None else now).replace(microsecond=0),
        observed_generation=pool.metadata.generation,
    )
