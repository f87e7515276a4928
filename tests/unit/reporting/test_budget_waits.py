"""Which budget holds a waiting pod, as `forebay explain` tells it from the ledgers."""

from forebay.budgets.accounts import Accounts
from forebay.reporting.budget_waits import budget_waits
from tests.unit.budgets.factories import at, budget, pod

SMALL = budget(hours="0.1")


def held_by(waiting, *others):
    accounts = Accounts()
    accounts.open(SMALL, at())
    for each in (waiting, *others):
        accounts.see(each, at())
    return budget_waits([waiting], [waiting, *others], [SMALL], accounts, at())[waiting.uid].budget


def test_a_pod_waits_for_those_that_are_bound_and_not_for_those_that_wait_as_well():
    first = pod("first")

    assert held_by(first) is None
    assert held_by(first, pod("other")) is None
    assert held_by(first, pod("other", node="n1")) == "default/team-a"
