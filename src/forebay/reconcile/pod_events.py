"""Events on pending pods: why each waits, and what comes next. Events of budgets are in `budgeting`.

Thousands of pods may wait for one reason, and an event for each would be a flood that nobody reads: most of their
events are one event on their owner. What every single pod waits for is in its condition: see `capacity_conditions`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from forebay.api.names import BUDGET_GATE
from forebay.demand.assessment import Assessment
from forebay.demand.reservation import Reservations
from forebay.model.reasons import Reason
from forebay.reconcile.buying import BuyResult
from forebay.reconcile.decisions import OwnerEvent, PodEvent
from forebay.reconcile.snapshot import Snapshot

#: True of nearly every pod for a moment, and not worth an event.
_TRANSIENT: Final = frozenset(
    {Reason.NOT_YET_SCHEDULED, Reason.POD_DELETED, Reason.BOUND, Reason.ENDED, Reason.PREEMPTING}
)


#: Pods of one owner (without one: of one namespace) that get an event of their own for the same reason. The oldest do.
_MOST_PODS: Final = 8


def pod_events(
    snapshot: Snapshot, assessment: Assessment, reservations: Reservations, bought: BuyResult
) -> Iterator[PodEvent]:
    """One event for each pod that no capacity is bought for, and for each bound pod that cannot be read."""
    for pod, why in snapshot.unreadable_pods:
        sentence = (
            f"Forebay cannot read this pod ({why}). The pod counts as using what it requests, and node {pod.node} is "
            "kept while the pod is there."
        )
        yield PodEvent(pod=pod, reason=Reason.UNREADABLE, sentence=sentence, warning=True)
    for each in (*assessment.not_demand, *reservations.refused):
        # Pods behind a budget's gate get the event of their budget, which says until when they wait.
        errs = each.pod.scheduler_error_since is not None
        if (errs or each.reason not in _TRANSIENT) and BUDGET_GATE not in each.pod.shape.scheduling_gates:
            warning = each.reason is Reason.CONTAINER_CONFIG_ERROR
            yield PodEvent(pod=each.pod, reason=each.reason, sentence=each.sentence, warning=warning)
    if any(source.offers is None and source.error is None for source in snapshot.sources.values()):
        return  # A source has not answered yet: its offers may fit the pods that are left out now.
    for left in bought.left_out:
        note = reservations.notes.get(left.pod.uid)
        sentence = f"{note} {left.sentence}" if note else left.sentence
        yield PodEvent(pod=left.pod, reason=left.reason, sentence=sentence, warning=True)


def per_owner(events: Iterable[PodEvent]) -> Iterator[PodEvent | OwnerEvent]:
    """The events of a few pods of each owner and reason, and one event on the owner where there are more."""
    groups: defaultdict[tuple[str, str, Reason], list[PodEvent]] = defaultdict(list)
    for each in events:
        owner = each.pod.owner
        groups[each.pod.namespace, "" if owner is None else owner.uid, each.reason].append(each)
    for group in groups.values():
        if len(group) <= _MOST_PODS:
            yield from group
            continue
        group.sort(key=lambda each: (each.pod.created, each.pod.name))
        yield from group[:_MOST_PODS]
        first = group[0]
        if first.pod.owner is not None:
            yield OwnerEvent(
                namespace=first.pod.namespace,
                owner=first.pod.owner,
                pods=len(group),
                reason=first.reason,
                sentence=first.sentence,
                warning=first.warning,
            )
