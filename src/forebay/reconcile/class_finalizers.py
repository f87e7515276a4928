"""The finalizer of GPUNodeClasses: a class says how its machines are terminated, and must outlive them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_class import EndpointsFrom, GPUNodeClass
from forebay.api.names import CLASS_FINALIZER
from forebay.demand.evictions import eviction_refused
from forebay.model.sources import SourceKey
from forebay.reconcile.decisions import SetClassFinalizer
from forebay.reconcile.snapshot import Snapshot

#: A deleted class waits no longer than this for what its providers keep beside machines: they may never answer again.
LEFTOVERS_AWAITED: Final = timedelta(minutes=10)
_MOST_NAMED: Final = 5


def class_finalizers(snapshot: Snapshot) -> Iterator[SetClassFinalizer]:
    """Adds the finalizer to every class, and removes it from deleted classes that nothing needs any more."""
    for node_class in snapshot.classes:
        if not _needs_finalizer(node_class):
            continue
        present = CLASS_FINALIZER in node_class.metadata.finalizers
        deleting = node_class.metadata.deletion_timestamp is not None
        if not present and not deleting:
            yield SetClassFinalizer(node_class=node_class, present=True)
        elif present and deleting and deletion_waits_for(node_class, snapshot) is None:
            yield SetClassFinalizer(node_class=node_class, present=False)


def deletion_waits_for(node_class: GPUNodeClass, snapshot: Snapshot) -> str | None:
    """What keeps a deleted class from going, as a sentence; None where nothing does."""
    if snapshot.unreadable_records:
        names = some_of(sorted(snapshot.unreadable_records))
        return f"Forebay cannot read these GPUInstances, which may be machines of this class: {names}."
    left = [
        record
        for record in snapshot.records
        if record.spec.node_class_name == node_class.metadata.name and record.state is not InstanceState.GONE
    ]
    if left:
        machines = sorted(f"{record.metadata.name} ({record.state})" for record in left)
        blocked = next((why for record in left if (why := _drain_blocked(record, snapshot)) is not None), "")
        return f"Machines of this class are drained and terminated first: {some_of(machines)}.{blocked}"
    return _leftovers(node_class, snapshot)


def _drain_blocked(record: GPUInstance, snapshot: Snapshot) -> str | None:
    """Why a pod cannot leave the machine now, as a sentence; None where nothing is known to keep one."""
    if record.state is not InstanceState.DRAINING:
        return None
    pods = snapshot.pods_by_node.get(record.node_name or "", ())
    refusals = (eviction_refused([pod], snapshot.pod_disruption_budgets) for pod in pods if pod.deleted is None)
    refusal = next((each for each in refusals if each is not None), None)
    return None if refusal is None else f" Node {record.node_name} cannot be drained: {refusal}."


def awaited_sources(snapshot: Snapshot) -> Iterator[SourceKey]:
    """Sources of deleted classes whose next listing tells whether anything is left there."""
    for node_class in snapshot.classes:
        if _leftovers(node_class, snapshot) is not None:
            yield from (key for key in snapshot.sources if key.node_class == node_class.metadata.name)


def _leftovers(node_class: GPUNodeClass, snapshot: Snapshot) -> str | None:
    """What providers of the class keep beside machines, as a sentence; None where that is nothing.

    Only a listing since the last machine was gone, and since the class was deleted, can show that.
    """
    name, deleted = node_class.metadata.name, node_class.metadata.deletion_timestamp
    if deleted is None or snapshot.now >= deleted + LEFTOVERS_AWAITED:
        return None
    since = max((deleted, *_ends(name, snapshot)))
    until = f"Forebay waits for that until {deleted + LEFTOVERS_AWAITED:%H:%M:%S} UTC."
    for key, source in sorted(snapshot.sources.items()):
        if key.node_class != name or not source.capabilities.has_leftovers:
            continue
        if source.listing is None or source.listing.asked < since:
            why = f" ({source.error})" if source.error is not None else ""
            return f"{key.provider} must be listed once more, to see whether anything is left there{why}. {until}"
        if source.listing.found.leftovers:
            return f"{key.provider} still has {some_of(list(source.listing.found.leftovers))}, to be deleted. {until}"
    return None


def _ends(name: str, snapshot: Snapshot) -> Iterator[datetime]:
    """When machines of the class were gone."""
    for record in snapshot.records:
        if record.spec.node_class_name == name and record.status is not None and record.status.since is not None:
            yield record.status.since


def some_of(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def may_buy(node_class: GPUNodeClass) -> bool:
    """Whether machines may be launched from the class: a class that can be deleted before its machines may not."""
    return CLASS_FINALIZER in node_class.metadata.finalizers or not _needs_finalizer(node_class)


def _needs_finalizer(node_class: GPUNodeClass) -> bool:
    """False where environment variables of the operator say how the machines are powered off: the class shows them."""
    return any(entry.endpoints_from is not EndpointsFrom.ENVIRONMENT for entry in node_class.spec.providers)
