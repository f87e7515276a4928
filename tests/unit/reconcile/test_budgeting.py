"""Budgets within a tick: what is reserved before pods are admitted, and which budgets are enforced."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_workload_budget import EnforcementAction, GPUWorkloadBudgetStatus
from forebay.api.parts import Condition, Truth
from forebay.budgets.accounts import Accounts
from forebay.budgets.enforcement import Evict
from forebay.demand.reservation import Reservation, Reservations
from forebay.model.reasons import Reason
from forebay.reconcile.budgeting import admit, assess_budgets, enforcement
from forebay.reconcile.isolation import Faults
from forebay.reconcile.purchases import purchases
from forebay.reconcile.snapshot import BudgetState, Snapshot
from forebay.reconcile.unserved_budgets import is_served
from tests.unit.budgets.factories import at, budget, machine, pod


def seen(*pods, budgets, pending=(), when=0, opened=None, **state):
    accounts = Accounts()
    for each in budgets if opened is None else opened:
        accounts.open(each, at())
    for each in (*pods, *pending):
        accounts.see(each, at(when))
    found = BudgetState(accounts=accounts.frozen(), **state)
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


@pytest.mark.parametrize("node", [None, "runpod-virtual-node"])
def test_dollars_are_reserved_for_a_machine_that_is_not_billed_yet_also_where_its_pod_is_bound_already(node):
    dollars = [budget(hours=None, usd="1")]
    first, other = pod("first", node=node), pod("other")
    given = seen(first, budgets=dollars, pending=[other] if node else [first, other])
    assert admitted(given, other) == ["other"]
    requested = machine(price="2", start=None, pods=[first], state=InstanceState.REQUESTED)
    assert admitted(replace(given, records=(requested,)), other) == []


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


def test_until_the_ledgers_are_read_only_pods_without_a_budget_that_holds_are_admitted():
    mine, other = pod("mine", labels={"team": "a"}), pod("other", labels={"team": "b"})
    alerts = budget("alerts", labels={"team": "b"}, action=EnforcementAction.ALERT_ONLY)
    unread = Snapshot(now=at(0), budgets=(budget(labels={"team": "a"}), alerts), pending=(mine, other))

    found = admit(unread, assess_budgets(unread), Reservations(left=(mine, other)))

    assert [each.name for each in found.pods] == ["other"]
    assert [(each.pod.name, each.reason) for each in found.held] == [("mine", Reason.LEDGER_UNREAD)]


def test_enforcement_says_when_a_grace_period_ends():
    patient = budget(hours="0.5", since=at(3600), grace=120)
    snapshot = seen(pod(started=0), budgets=[patient], when=3600)

    found = enforcement(snapshot, assess_budgets(snapshot).standings, Faults())

    assert (found.decisions, found.requeue_at) == ((), at(3720))


def test_a_budget_is_served_unless_an_operator_without_budgets_says_so_on_it():
    unserved = replace(budget(), status=GPUWorkloadBudgetStatus(conditions=(condition(Reason.BUDGETS_OFF),)))
    served = replace(budget(), status=GPUWorkloadBudgetStatus(conditions=(condition(Reason.RECONCILED),)))

    assert [is_served(each) for each in (budget(), served, unserved)] == [True, True, False]


def condition(reason):
    return Condition(type="Ready", status=Truth.TRUE, reason=reason, last_transition_time=at())


def test_a_pod_that_a_budget_holds_and_that_is_not_read_yet_is_not_called_unservable():
    spent, done = [budget(hours="1")], pod("done", started=0, finished=3600)
    unread, huge = pod("unread"), pod("huge", 64, labels={})
    given = seen(done, budgets=spent, pending=[unread, huge], when=7200)
    given = replace(given, unread=frozenset({unread.uid}))
    found = purchases(given, assess_budgets(given), Reservations(left=(unread, huge), placed={}))
    assert [each.pod.name for each in found.bought.left_out] == ["huge"]
    assert [each.pod.name for each in found.admitted.held] == ["unread"]
