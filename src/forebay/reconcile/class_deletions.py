"""Deleted GPUNodeClasses say what they wait for, until their finalizer is removed."""

from collections.abc import Iterator
from typing import Final

from forebay.api.names import CLASS_FINALIZER
from forebay.api.parts import Truth
from forebay.model.reasons import Reason
from forebay.reconcile.class_finalizers import deletion_waits_for
from forebay.reconcile.decisions import ReportClass
from forebay.reconcile.machine_costs import MachineTotals, totals_by_class
from forebay.reconcile.reports import Fact, merge_conditions
from forebay.reconcile.snapshot import Snapshot

#: Condition of a class that was deleted and cannot go yet.
DELETION_BLOCKED: Final = "DeletionBlocked"


def report_deletions(snapshot: Snapshot) -> Iterator[ReportClass]:
    """The condition of each deleted class that still waits, where it has changed."""
    for node_class in snapshot.classes:
        deleted = node_class.metadata.deletion_timestamp is not None
        if not deleted or not node_class.uid or CLASS_FINALIZER not in node_class.metadata.finalizers:
            continue
        sentence = deletion_waits_for(node_class, snapshot)
        current = node_class.status.conditions if node_class.status is not None else ()
        if sentence is None:
            continue
        facts = (Fact(DELETION_BLOCKED, Truth.TRUE, Reason.NODE_CLASS_DELETING, sentence),)
        conditions = merge_conditions(current, facts, node_class.metadata.generation, snapshot.now)
        if conditions == current:
            continue
        name = node_class.metadata.name
        machines, cost = totals_by_class(snapshot.records).get(name, MachineTotals())
        yield ReportClass(
            name=name,
            uid=node_class.uid,
            resource_version=node_class.resource_version,
            generation=node_class.metadata.generation or 0,
            conditions=conditions,
            active_nodes=machines,
            hourly_cost=cost.exact(),
            offers=node_class.status.offers or 0 if node_class.status is not None else 0,
            reason=facts[0].reason,
            sentence=sentence,
        )
