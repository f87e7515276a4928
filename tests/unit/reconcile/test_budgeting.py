"""Budgets within a tick: what is reserved before pods are admitted, and which budgets are enforced."""

from forebay.budgets.accounts import Accounts
from forebay.budgets.assessment import Assessor
from forebay.budgets.enforcement import Evict
from forebay.demand.reservation import Reservation, Reservations
from forebay.model.reasons import Reason
from forebay.reconcile.budgeting import admit, assess_budgets, enforcement
from forebay.reconcile.isolation import Faults
from forebay.reconcile.snapshot import BudgetState, Snapshot
from tests.unit.budgets.factories import at, budget, pod


def seen(*pods, budgets, pending=(), when=0, opened=None, **state):
    accounts = Accounts()
    for each in budgets if opened is None else opened:
        accounts.open(each, at())
    for each in (*pods, *pending):
        accounts.see(each, at(when))
    found = BudgetState(accounts=accounts, assessor=Assessor(), **state)
    return Snapshot(now=at(when), budgets=tuple(budgets), budget_state=found, pending=tuple(pending))


def admitted(snapshot, *left, placed=()):
    reservation = {each.uid: Reservation(node="n1", reason=Reason.CAPACITY_LAUNCHING, sentence="") for each in placed}
    found = admit(snapshot, assess_budgets(snapshot), Reservations(left=left, placed=reservation))
    return [each.name for each in found.pods]


def enforced(snapshot, faults=None):
    standings = assess_budgets(snapshot).standings
    return enforcement(snapshot, standings, faults or Faults()).decisions


def test_what_only_waits_takes_no_share_before_its_turn_and_what_is_bound_or_served_does():
    small = [budget(hours="0.1")]
    first, other = pod("first"), pod("other")
    bound = pod("other", node="n1")

    assert admitted(seen(budgets=small, pending=[first, other]), first) == ["first"]
    assert admitted(seen(bound, budgets=small, pending=[first]), first) == []
    assert admitted(seen(budgets=small, pending=[first, other]), first, placed=[other]) == []


def test_only_budgets_that_are_used_up_and_counted_are_enforced():
    spent, rich = budget("spent", hours="0.5", since=at(0), grace=0), budget("rich", since=at(0), grace=0)
    train = pod(started=0)

    (evict,) = enforced(seen(train, budgets=[spent, rich], when=3600))
    assert isinstance(evict, Evict)
    assert (evict.budget, evict.pod.name) == (("default", "spent"), "train")

    faults = Faults()
    assert enforced(seen(train, budgets=[spent], opened=[], when=3600), faults) == ()
    assert faults.errors == {}, "a budget that is not counted yet is no fault"
    assert enforced(seen(train, budgets=[spent], when=3600, awaiting=frozenset({spent.key}))) == ()


def test_a_pod_that_two_budgets_would_stop_is_stopped_once():
    twice = [budget(name, hours="0.5", since=at(0), grace=0) for name in ("one", "two")]

    (evict,) = enforced(seen(pod(started=0), budgets=twice, when=3600))

    assert evict.budget == ("default", "one")
