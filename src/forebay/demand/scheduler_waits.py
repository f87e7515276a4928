"""Waits for the scheduler, none of which is endless: for its first report on a pod, and for room that it preempts.

A scheduler may be down, hold a pod back without a report (a missing resource claim), or leave a nomination on a pod
that it has given up. Such pods must neither keep machines on nor go without capacity for good.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.model.workloads import Pod

#: How long a pod may be without a report of its scheduler. After that it may be bound to an idle node no sooner than
#: any other. A queue of ten thousand pods takes a few minutes.
FIRST_REPORT: Final = timedelta(minutes=10)
#: How long a pod waits for other pods to leave the node that the scheduler has nominated it to. After that the pod
#: counts as without a node. The scheduler itself tries its unschedulable pods again after five minutes.
PREEMPTION: Final = timedelta(minutes=5)


class SchedulerWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Since when each pod, by its UID, waits for the scheduler. Kept from tick to tick; a restart starts over."""

    #: For the first report.
    unreported: Mapping[str, datetime] = {}
    #: For room on a node, by the name of that.
    nominated: Mapping[str, tuple[str, datetime]] = {}

    def expected(self, pod: Pod, now: datetime) -> bool:
        """Whether the scheduler may bind the pod anywhere in a moment: it owes a report, and not for too long."""
        return is_unreported(pod) and now - self.unreported.get(pod.uid, now) < FIRST_REPORT

    def gives_up(self, pod: Pod, now: datetime) -> bool:
        """Whether the pod has waited for too long for the node that it is nominated to."""
        node, since = self.nominated.get(pod.uid, (None, now))
        return node is not None and node == pod.nominated_node and now - since >= PREEMPTION


def scheduler_waits(before: SchedulerWaits, pending: Iterable[Pod], now: datetime) -> SchedulerWaits:
    """The waits of these pods, after those of an earlier tick."""
    unreported: dict[str, datetime] = {}
    nominated: dict[str, tuple[str, datetime]] = {}
    for pod in pending:
        if is_unreported(pod):
            unreported[pod.uid] = before.unreported.get(pod.uid, now)
        if pod.nominated_node is not None and pod.node is None:
            node, since = before.nominated.get(pod.uid, (None, now))
            nominated[pod.uid] = pod.nominated_node, since if node == pod.nominated_node else now
    return SchedulerWaits(unreported=unreported, nominated=nominated)


def is_unreported(pod: Pod) -> bool:
    """Whether a pod without a node has no report of its scheduler yet that no node fits, and is not held by a gate."""
    return (
        pod.node is None
        and pod.deleted is None
        and not pod.phase.ended
        and pod.unschedulable_since is None
        and not pod.shape.scheduling_gates
    )
