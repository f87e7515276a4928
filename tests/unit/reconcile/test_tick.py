"""The tick as a whole: when the next one is due."""

from forebay.demand.reservation import SCHEDULER_GRACE
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import tick
from tests.unit.demand.builders import NOW, node, pod


def test_the_next_tick_is_due_when_the_grace_time_of_a_pod_that_seems_to_fit_ends():
    seems_to_fit = Snapshot(now=NOW, pending=(pod(),), nodes={"n1": node("n1")})

    assert tick(seems_to_fit).requeue_at == NOW + SCHEDULER_GRACE


def test_what_leads_to_more_is_followed_by_the_next_tick_at_once_and_what_only_tells_is_not():
    waiting = Snapshot(now=NOW, pending=(pod(),))
    assert [type(each).__name__ for each in tick(waiting).decisions] == ["PodEvent", "ReportCapacity"]
    assert not tick(waiting).requeue_now

    quiet = tick(Snapshot(now=NOW))
    assert (quiet.decisions, quiet.requeue_at, quiet.requeue_now) == ((), None, False)
