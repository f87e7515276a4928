"""Which budget holds a waiting pod, as `forebay explain` tells it from the ledgers."""

from msgspec.structs import replace

from forebay.api.gpu_workload_budget import GPUWorkloadBudgetStatus
from forebay.budgets.accounts import Accounts
from forebay.reporting.budget_waits import budget_waits, waits_from_status
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


def test_pods_without_a_budget_wait_for_none_and_the_others_are_told_of_theirs():
    accounts = Accounts()
    accounts.open(SMALL, at())
    waiting = [pod("alien", labels={"team": "b"}), pod("no-gpu", gpus=0), pod("mine")]
    for each in waiting:
        accounts.see(each, at())

    found = budget_waits(waiting, waiting, [SMALL], accounts, at())

    assert found.keys() == {"uid-mine"}
    (told,) = found["uid-mine"].standing
    assert told.startswith("GPUWorkloadBudget team-a: ")


def test_without_the_ledgers_the_status_tells_what_is_used():
    status = GPUWorkloadBudgetStatus(consumed_gpu_hours="50m", consumed_usd="1.5")
    both = replace(budget(hours="0.1", usd="2"), status=status)
    other = budget("other", labels={"team": "b"})
    waiting = [pod("alien", labels={"team": "c"}), pod("no-gpu", gpus=0), pod("mine")]

    found = waits_from_status(waiting, [both, other], at(), "may not read them")

    assert found.keys() == {"uid-mine"}
    assert found["uid-mine"].standing == (
        "GPUWorkloadBudget team-a: 0.05 of 0.1 GPU-h and $1.50 of $2.00 used when the operator last reported.",
    )
    assert found["uid-mine"].unknown_because == "may not read them"
