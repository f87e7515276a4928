"""The tick as a whole: when the next one is due."""

from msgspec.structs import replace

from forebay.demand.reservation import SCHEDULER_GRACE
from forebay.model.reasons import Reason
from forebay.reconcile.decisions import PodEvent
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import tick
from tests.unit.budgets.factories import at, budget
from tests.unit.budgets.factories import pod as budget_pod
from tests.unit.demand.builders import NOW, node, pod
from tests.unit.reconcile.test_budgeting import seen
from tests.unit.reconcile.test_buying import RENTED


def test_the_next_tick_is_due_when_the_grace_time_of_a_pod_that_seems_to_fit_ends():
    seems_to_fit = Snapshot(now=NOW, pending=(pod(),), nodes={"n1": node("n1")})

    assert tick(seems_to_fit).requeue_at == NOW + SCHEDULER_GRACE


def test_what_leads_to_more_is_followed_by_the_next_tick_at_once_and_what_only_tells_is_not():
    waiting = Snapshot(now=NOW, pending=(pod(),))
    assert [type(each).__name__ for each in tick(waiting).decisions] == ["PodEvent", "ReportCapacity"]
    assert not tick(waiting).requeue_now

    quiet = tick(Snapshot(now=NOW))
    assert (quiet.decisions, quiet.requeue_at, quiet.requeue_now) == ((), None, False)


def test_a_pod_that_waits_for_another_one_of_its_budget_makes_no_tick_due():
    """When that one ends, a change says so. A time that has passed already would be due again and again."""
    refused = {"unschedulable_since": at(), "unschedulable_message": "0/1 nodes are available: 1 Insufficient gpu."}
    first, second = budget_pod("first", **refused), budget_pod("second", **refused)
    snapshot = seen(budgets=[budget(hours="0.1", window=1)], pending=[first, second], when=60)

    found = tick(replace(snapshot, sources={RENTED.key: RENTED}))

    (told,) = [each for each in found.decisions if isinstance(each, PodEvent)]
    assert (told.pod.name, told.reason) == ("second", Reason.HELD_BY_BUDGET)
    assert "The pod waits until pods before it have ended" in told.sentence
    assert found.requeue_at is None
