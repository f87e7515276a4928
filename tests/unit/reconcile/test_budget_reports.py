"""Status of budgets: what is written at once, and what in turn so that the API server has little to do."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_workload_budget import GPUWorkloadBudgetStatus
from forebay.api.parts import Truth
from forebay.budgets.accounts import Accounts
from forebay.budgets.assessment import Assessor
from forebay.model.reasons import Reason
from forebay.reconcile.budget_reports import report_budgets
from forebay.reconcile.isolation import Faults
from forebay.reconcile.snapshot import BudgetState, Memory, Snapshot, Uncounted
from tests.unit.budgets.factories import at, budget, pod


class Cluster:
    """Budgets with one pod each, and whoever writes their statuses."""

    def __init__(self, count, **fields):
        self.accounts, self.assessor = Accounts(), Assessor()
        self.budgets = {}
        self.memory = Memory()
        self.warnings = []
        self.reasons = {}
        for number in range(count):
            name = f"team-{number}"
            made = budget(name, labels={"team": name}, **fields)
            self.budgets[made.key] = made
            self.accounts.open(made, at())
            self.see(number, 0)

    def see(self, number, seconds, **times):
        """The pod of a budget: it runs from the beginning, or until it `finished`."""
        seen = pod(
            f"pod-{number}",
            uid=f"uid-{number}",
            labels={"team": f"team-{number}"},
            version=seconds + 1,
            started=0,
            **times,
        )
        self.accounts.see(seen, at(seconds))

    def tick(self, seconds, gate_missing=None, **state):
        """Names of the budgets whose status was written, and when the next tick is due, in seconds."""
        now = at(seconds)
        found = BudgetState(accounts=self.accounts.frozen(), **state)
        snapshot = Snapshot(
            now=now,
            budgets=tuple(self.budgets.values()),
            budget_state=found,
            memory=self.memory,
            gate_missing=gate_missing,
        )
        standings = self.assessor.assess(snapshot.budgets, self.accounts, now)
        faults = Faults()
        reports = report_budgets(snapshot, standings, {}, faults)
        assert faults.errors == {}
        self.memory = Memory(reported=reports.reported)
        for each in reports.decisions:
            self.write(each)
            self.warnings += [each.forecast_warning] if each.forecast_warning else []
            self.reasons[each.name] = each.reason
        due = None if reports.requeue_at is None else (reports.requeue_at - at()).total_seconds()
        return [each.name for each in reports.decisions], due

    def write(self, report):
        fields = {"observedGeneration": report.generation, "conditions": report.conditions, **report.figures}
        there = {_snake(name): value for name, value in fields.items() if value is not None}
        key = (report.namespace, report.name)
        labels = {name: value for name, value in report.labels.items() if value is not None}
        made = self.budgets[key]
        metadata = replace(made.metadata, labels=labels)
        self.budgets[key] = replace(made, status=GPUWorkloadBudgetStatus(**there), metadata=metadata)

    def consumed(self, name="team-0"):
        return self.budgets["default", name].status.consumed_gpu_hours


def _snake(name):
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)


def test_figures_that_change_are_written_every_five_seconds():
    cluster = Cluster(1)
    written = [second for second in range(61) if cluster.tick(second)[0]]
    assert written == list(range(0, 61, 5))
    assert cluster.consumed() == "17m"


def test_figures_that_do_not_change_are_not_written():
    cluster = Cluster(1)
    cluster.tick(0)
    cluster.see(0, 36, finished=36)
    assert cluster.tick(40) == (["team-0"], None)
    assert cluster.consumed() == "10m"
    assert all(cluster.tick(second) == ([], None) for second in range(41, 200, 7))


def test_figures_are_written_while_usage_leaves_the_window_and_no_longer():
    cluster = Cluster(1, window=1)
    cluster.see(0, 600, finished=600)
    cluster.tick(700)
    assert cluster.consumed() == "167m"
    assert cluster.tick(3500)[1] is None, "nothing is used, and nothing leaves yet"
    assert cluster.tick(3901) == (["team-0"], 3905)
    assert cluster.consumed() == "83m"
    assert cluster.tick(4300) == (["team-0"], None)
    assert cluster.consumed() == "0"


def test_dollars_are_shown_where_they_are_limited():
    hours, dollars = Cluster(1), Cluster(1, hours=None, usd="5")
    for cluster in (hours, dollars):
        cluster.tick(0)
    (mine,), (limited,) = hours.budgets.values(), dollars.budgets.values()
    assert (mine.status.consumed_usd, mine.status.remaining_usd) == (None, None)
    assert (limited.status.consumed_usd, limited.status.remaining_usd) == ("0", "5")


def test_of_many_budgets_a_hundred_are_written_in_five_seconds_each_in_its_turn():
    cluster = Cluster(300)
    assert len(cluster.tick(0)[0]) == 300, "the first status of each is written at once"
    turns = [cluster.tick(second)[0] for second in range(5, 35)]
    assert all(sum(map(len, turns[begin : begin + 5])) <= 100 for begin in range(26))
    first, second = turns[:15], turns[15:]
    assert len({name for turn in first for name in turn}) == 300
    assert [name for turn in second for name in turn] == [name for turn in first for name in turn]


def test_who_waits_for_a_turn_is_looked_at_again_soon():
    cluster = Cluster(101)
    cluster.tick(0)
    for number in range(101):
        cluster.see(number, 20, finished=20)
    assert [len(names) for names, _ in (cluster.tick(21), cluster.tick(22))] == [100, 0]
    assert cluster.tick(23)[1] == 25
    assert cluster.tick(26) == (["team-100"], None)


@pytest.mark.parametrize("ahead", [timedelta(hours=26), timedelta(seconds=1)])
def test_a_clock_that_was_ahead_holds_no_status_back(ahead):
    cluster = Cluster(1)
    cluster.tick(0)
    cluster.memory = Memory(reported=dict.fromkeys(cluster.budgets, at(30) + ahead))
    assert cluster.tick(30)[0] == ["team-0"]


def test_a_condition_and_an_enforcement_are_written_at_once():
    cluster = Cluster(1, hours="1")
    cluster.tick(3595)
    assert cluster.tick(3599)[0] == []
    assert cluster.tick(3600)[0] == ["team-0"], "used up"
    assert cluster.tick(3601)[0] == []
    assert cluster.tick(3602, enforced={("default", "team-0"): at(3602)})[0] == ["team-0"]
    assert cluster.tick(3603, enforced={("default", "team-0"): at(3602)})[0] == []


def test_the_warning_before_the_end_of_the_quota_is_given_once():
    cluster = Cluster(1, hours="2", window=24)
    for second in range(3000, 4000, 5):
        cluster.tick(second)
    (warning,) = cluster.warnings
    assert "At the rate of the last hour the budget is used up at 2026-03-02 14:00:0" in warning


def test_a_budget_that_is_deleted_or_going_is_not_written_to():
    cluster = Cluster(2)
    going = cluster.budgets["default", "team-0"]
    metadata = replace(going.metadata, deletion_timestamp=at())
    cluster.budgets["default", "team-0"] = replace(going, metadata=metadata)
    assert cluster.tick(0)[0] == ["team-1"]
    del cluster.budgets["default", "team-1"]
    cluster.tick(1)
    assert cluster.memory.reported == {}


def test_a_budget_that_is_not_counted_is_written_to_all_the_same():
    cluster = Cluster(1)
    other = budget("other", labels={"team": "other"})
    cluster.budgets[other.key] = other
    invalid = {other.key: Uncounted(Reason.INVALID_QUOTA, "spec.quota is invalid.")}
    assert cluster.tick(0, invalid=invalid)[0] == ["team-0", "other"]


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (Uncounted(Reason.INVALID_QUOTA, "spec.quota is invalid."), Reason.INVALID_QUOTA),
        (Uncounted(Reason.RECONCILE_FAILED, "See the log."), Reason.RECONCILE_FAILED),
        (None, Reason.LEDGER_UNREAD),
    ],
)
def test_a_budget_that_is_not_counted_says_why(known, reason):
    cluster = Cluster(0)
    other = budget("other", labels={"team": "other"})
    cluster.budgets[other.key] = other
    cluster.tick(0, invalid={} if known is None else {other.key: known})
    conditions = cluster.budgets[other.key].status.conditions
    assert {(each.type, each.status, each.reason) for each in conditions} == {
        ("Ready", Truth.FALSE, reason),
        ("Degraded", Truth.TRUE, reason),
    }


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        (None, "one at a time, the largest user first; new pods wait."),
        ("no policy", "largest user first, and suspends their Jobs; new pods are not held (see the condition"),
    ],
)
def test_nobody_is_told_that_new_pods_wait_where_nothing_holds_them(missing, sentence):
    cluster = Cluster(1, hours="1")
    cluster.tick(3601, gate_missing=missing)
    conditions = cluster.budgets["default", "team-0"].status.conditions
    (exceeded,) = (each for each in conditions if each.type == "QuotaExceeded")
    assert sentence in exceeded.message


def test_a_report_gives_the_reason_of_what_is_wrong_and_else_that_nothing_is():
    spent, fine = Cluster(1, hours="0.5"), Cluster(1)
    for cluster in (spent, fine):
        cluster.see(0, 3600)
        cluster.tick(3600)

    assert fine.reasons == {"team-0": "Reconciled"}
    assert spent.reasons == {"team-0": "QuotaReached"}
