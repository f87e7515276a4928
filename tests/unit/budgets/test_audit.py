"""The audit of a ledger: from container times of listed pods, whatever the ledger was told."""

from datetime import timedelta

import pytest

from forebay.budgets.accounts import Account
from forebay.budgets.audit import Audit, AuditedBudget, AuditedPod, ContainerTimes, audit, ghosts
from forebay.budgets.ledger.ledger import Ledger
from tests.unit.budgets.factories import GPU, START, at, budget

DAY = timedelta(days=1)
#: One GPU for a second, in the units of a ledger.
GPU_SECOND = 1000 * 10**6


def listed(uid="a", *, gpus=1, runs=((0, None),), ended=False, conclusive=True):
    times = tuple(ContainerTimes(at(start), None if end is None else at(end)) for start, end in runs)
    return AuditedPod(
        namespace="default",
        name=uid,
        uid=uid,
        resource_version=1,
        requests={GPU: gpus * 1000},
        runs=times,
        ended=ended,
        conclusive=conclusive,
    )


def account(*intervals):
    """Account whose ledger holds runs: UID, start, end, GPUs."""
    ledger = Ledger("uid-of-team-a")
    for uid, start, end, gpus in intervals:
        if end is None:
            ledger.begin(uid, _second(start), gpus * 1000, _second(start))
        else:
            ledger.record(uid, _second(start), _second(end), gpus * 1000)
    return Account(budget(), ledger)


def _second(offset):
    return int(START.timestamp()) + offset


def test_a_ledger_that_agrees_has_ratio_one():
    pods = [listed("a", gpus=2), listed("b", runs=((10, 100),), ended=True)]
    held = account(("a", 0, None, 2), ("b", 10, 100, 1))
    found = audit(pods, held, at(660), DAY, None)
    assert found == Audit((600 * 2 + 90) * GPU_SECOND, (600 * 2 + 90) * GPU_SECOND)
    assert found.ratio == 1.0


def test_what_the_ledger_lost_or_counts_twice_shows():
    assert audit([listed("a"), listed("b")], account(("a", 0, None, 1)), at(660), DAY, None).ratio == 0.5
    assert audit([listed("a")], account(("a", 0, None, 3)), at(660), DAY, None).ratio == 3.0


def test_the_last_minute_is_not_compared():
    just_ended = listed("a", runs=((0, 650),), ended=True)
    assert audit([just_ended], account(("a", 0, None, 1)), at(660), DAY, None).ratio == 1.0
    just_begun = listed("b", runs=((610, None),))
    assert audit([just_begun], account(), at(660), DAY, None).ratio is None


def test_a_pod_runs_from_the_first_start_to_the_last_end_of_its_containers():
    pod = listed("a", runs=((0, 10), (20, 500), (15, 300)), ended=True)
    assert audit([pod], account(("a", 0, 500, 1)), at(660), DAY, None) == Audit(500 * GPU_SECOND, 500 * GPU_SECOND)
    between_runs = listed("a", runs=((0, 10), (20, 500)))
    assert audit([between_runs], account(("a", 0, None, 1)), at(660), DAY, None).expected == 600 * GPU_SECOND


def test_only_the_window_counts():
    pod = listed("a", runs=((0, 4000),), ended=True)
    found = audit([pod], account(("a", 0, 4000, 1)), at(3660), timedelta(hours=1) / 2, None)
    assert found == Audit(1800 * GPU_SECOND, 1800 * GPU_SECOND)
    assert audit([pod], account(("a", 0, 4000, 1)), at(9000), timedelta(hours=1), None).ratio is None


@pytest.mark.parametrize(
    "left_out",
    [listed("x", conclusive=False), listed("x", gpus=0), listed("x", runs=())],
    ids=["a status that does not tell", "another resource", "never ran"],
)
def test_pods_that_tell_nothing_are_left_out_on_both_sides(left_out):
    held = account(("x", 0, None, 5), ("a", 0, None, 1))
    assert audit([left_out, listed("a")], held, at(660), DAY, None) == Audit(600 * GPU_SECOND, 600 * GPU_SECOND)


def test_runs_that_began_under_another_selector_are_left_out():
    pods = [listed("early"), listed("late", runs=((300, None),))]
    held = account(("early", 200, None, 1), ("late", 300, None, 1))
    assert audit(pods, held, at(660), DAY, at(200)) == Audit(300 * GPU_SECOND, 300 * GPU_SECOND)
    assert audit(pods[1:], held, at(660), DAY, at(300)).ratio == 1.0


def test_usage_where_there_should_be_none_is_infinitely_wrong():
    ended = listed("a", runs=((100, 100),), ended=True)
    assert audit([ended], account(("a", 0, None, 1)), at(660), DAY, None).ratio == float("inf")


def test_runs_of_pods_that_are_not_listed_are_named():
    held = account(("a", 0, None, 1), ("gone", 0, None, 1), ("ended", 0, 10, 1))
    assert ghosts([listed("a")], held) == {"gone"}


@pytest.mark.parametrize(
    ("changed", "ledger", "since"),
    [
        (None, "u", None),
        (at(50), "u", at(50)),
        (None, "of an earlier budget", at(10)),
        (at(50), "of an earlier budget", at(50)),
        (at(5), "of an earlier budget", at(10)),
    ],
)
def test_since_when_a_budget_selects_its_pods(changed, ledger, since):
    audited = AuditedBudget(
        namespace="n", name="b", uid="u", resource_version=1, created=at(10), selector_changed=changed
    )
    assert audited.selected_since(ledger) == since
    assert audited.key == ("n", "b")
