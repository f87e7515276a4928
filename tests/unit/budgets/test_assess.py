"""How a budget stands, what may still begin, and until when the rest waits."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.budgets.accounts import Accounts
from forebay.budgets.admission import Admission, Held, Release, release
from forebay.budgets.assessment import Assessor, QuotaLimits, headroom
from forebay.budgets.usage import seconds
from forebay.model.quantities import GpuHours, Usd, UsdPerHour
from forebay.model.reasons import Reason
from tests.unit.budgets.scenes import START, at, budget, pod

T0 = seconds(START)
KEY = ("default", "team-a")
HOUR = 3600
GATE = ("forebay.dev/budget",)


def world(*pods, budgets=None, when=0):
    """Assessed at `when` seconds."""
    budgets = budgets or [budget()]
    accounts = Accounts()
    for each in budgets:
        accounts.open(each, at(when))
    for each in pods:
        accounts.see(each, at(when))
    return accounts, Assessor().assess(budgets, accounts, at(when)), {each.key: each for each in budgets}


def standing(*pods, when=0, **fields):
    _, found, _ = world(*pods, budgets=[budget(**fields)], when=when)
    return found[KEY]


def asking(*pods, budgets=None, when=0):
    accounts, standings, by_key = world(*pods, budgets=budgets, when=when)
    return Admission(accounts, by_key, standings, at(when))


def test_a_budget_says_what_is_used_what_is_left_and_how_fast_it_goes():
    found = standing(pod(gpus=8, started=0), pod("done", 2, started=0, finished=HOUR), when=2 * HOUR)
    assert (found.consumed, found.remaining) == (GpuHours.parse(18), GpuHours.parse(82))
    assert (found.tracked, found.burn) == (2, 8)
    assert not found.exceeded
    assert found.reason is Reason.WITHIN_BUDGET
    assert found.sentence == "18 GPU-h of 100 GPU-h used in the last 24h."


def test_exceeded_means_reached_to_the_microsecond():
    one = pod(gpus=1, started=0)
    assert not standing(one, hours="1", when=HOUR - 0.000001).exceeded
    found = standing(one, hours="1", when=HOUR)
    assert found.exceeded
    assert (found.remaining, found.reason) == (GpuHours.zero(), Reason.QUOTA_REACHED)


def test_the_forecast_is_when_the_quota_is_reached_at_the_present_rate():
    assert standing(pod(gpus=8, started=0), when=HOUR).exhausted == at(12.5 * HOUR)
    assert standing(pod(gpus=4, started=0), when=HOUR).exhausted is None
    assert standing(pod(gpus=5, started=0), when=HOUR).exhausted == at(20 * HOUR)
    assert standing(when=HOUR).exhausted is None
    assert standing(pod(gpus=8, started=0), hours="1", when=HOUR).exhausted == at(HOUR)


def test_the_forecast_knows_that_what_was_used_leaves_the_window():
    # 10 GPUs for an hour leave the window while 5 go on: they free room before it is used up, so it never is.
    before = pod("before", 10, started=0, finished=HOUR)
    now = pod("now", 4, started=20 * HOUR)
    assert standing(before, now, hours="97", when=20 * HOUR).exhausted is None
    assert standing(before, now, hours="24", when=20 * HOUR).exhausted == at(23.5 * HOUR)
    # 24 h after the first use ten an hour leave and four come; when these have gone, four come again.
    assert standing(before, now, hours="27", when=20 * HOUR).exhausted == at(26.75 * HOUR)


def test_a_forecast_is_kept_until_the_books_change():
    accounts, _, _ = world(pod(gpus=8, started=0), when=0)
    budgets, assessor = [budget()], Assessor()
    assert assessor.assess(budgets, accounts, at(10))[KEY].exhausted == at(12.5 * HOUR)
    assert assessor.assess(budgets, accounts, at(20))[KEY].exhausted == at(12.5 * HOUR)
    accounts.see(pod("more", 8, started=20), at(20))
    assert assessor.assess(budgets, accounts, at(20))[KEY].exhausted == at(20 + (100 * HOUR - 160) / 16)
    assert assessor.assess([budget(hours="8")], accounts, at(20))[KEY].exhausted == at(20 + (8 * HOUR - 160) / 16)
    assert assessor.assess([], accounts, at(20)) == {}


def test_what_runs_is_reckoned_to_go_on_for_an_hour():
    accounts, _, _ = world(pod(gpus=8, started=0), when=HOUR)
    found = headroom(accounts.get(KEY), QuotaLimits.of(budget().spec.quota), at(HOUR))
    assert found.gpu_hours == GpuHours.parse(84)
    assert found.until == at(2 * HOUR)
    assert found.usd is None


def test_room_counts_what_will_have_left_the_window_by_then():
    steady = pod(gpus=4, started=0)
    accounts, _, _ = world(steady, when=48 * HOUR)
    assert headroom(accounts.get(KEY), QuotaLimits.of(budget().spec.quota), at(48 * HOUR)).gpu_hours == GpuHours.parse(
        4
    )


def test_pods_are_admitted_as_far_as_there_is_room_and_each_takes_its_share():
    admission = asking(budgets=[budget(hours="20")])
    answers = [admission.ask(pod(f"p{number}", 8)) for number in range(4)]
    assert [each is None for each in answers] == [True, True, True, False]
    held = answers[3]
    assert (held.budget, held.reason) == (KEY, Reason.HELD_BY_BUDGET)
    assert "0 GPU-h of 20 GPU-h are not spoken for" in held.sentence
    assert "when pods before it have ended" in held.sentence


def test_capacity_that_is_on_its_way_counts_before_anybody_else():
    admission = asking(budgets=[budget(hours="8")])
    admission.commit(pod("coming", 8))
    assert admission.ask(pod("next", 1)) is not None


def test_a_used_up_budget_holds_new_pods_and_says_until_when():
    done = pod("done", 8, started=0, finished=HOUR)
    held = asking(done, budgets=[budget(hours="8")], when=2 * HOUR).ask(pod("next", 6))
    # Six GPUs for five minutes are half a GPU-hour, which eight have used in 3 min 45 s.
    assert held.until == at(24 * HOUR + 225)
    assert "not before 2026-03-03 12:03:45 UTC" in held.sentence
    assert "raise spec.quota" in held.sentence


def test_a_quota_smaller_than_five_minutes_of_a_pod_lets_it_begin_when_it_is_all_there():
    tiny = [budget(hours="10m")]
    assert asking(budgets=tiny).ask(pod(gpus=8)) is None
    used = pod("used", 1, started=0, finished=1)
    assert asking(used, budgets=tiny, when=10).ask(pod(gpus=8)) is not None


def test_the_strictest_of_several_budgets_holds_and_alerts_hold_nobody():
    done = pod("done", 8, started=0, finished=HOUR)
    wide, narrow = budget("wide", hours="1000"), budget("narrow", hours="8", window=48)
    narrower = budget("narrower", hours="8", window=72)
    held = asking(done, budgets=[wide, narrow, narrower], when=2 * HOUR).ask(pod("next"))
    assert held.budget == ("default", "narrower")
    alerting = budget("narrow", hours="8", action=EnforcementAction.ALERT_ONLY)
    assert asking(done, budgets=[wide, alerting], when=2 * HOUR).ask(pod("next")) is None


def test_a_pod_refused_by_one_budget_takes_nothing_from_another():
    done = pod("done", 8, started=0, finished=HOUR, labels={"team": "a", "app": "x"})
    budgets = [budget("app", hours="8", labels={"app": "x"}), budget("team", hours="16")]
    admission = asking(done, budgets=budgets, when=2 * HOUR)
    assert admission.ask(pod("refused", 8, labels={"team": "a", "app": "x"})) is not None
    assert admission.ask(pod("other", 8)) is None


def test_gated_pods_are_released_oldest_first_and_none_overtakes():
    done = pod("done", 8, started=0, finished=HOUR)
    gated = [
        pod("young", 1, gates=GATE, created=at(300)),
        pod("old", 8, gates=GATE, created=at(100)),
        pod("middle", 4, gates=GATE, created=at(200)),
        pod("free", 4, created=at(50)),
        pod("going", 4, gates=GATE, created=at(50), deleted=at(90)),
    ]
    found = release(gated, asking(done, budgets=[budget(hours="9")], when=2 * HOUR))
    assert [(type(each), each.pod.name) for each in found] == [(Release, "old"), (Held, "middle"), (Held, "young")]
    found = release(gated, asking(done, budgets=[budget(hours="8")], when=2 * HOUR))
    assert [type(each) for each in found] == [Held] * 3
    assert len({each.until for each in found}) == 1


def test_dollars_are_asked_before_anything_is_bought():
    admission = asking(budgets=[budget(hours=None, usd="10")])
    assert admission.ask(pod()) is None
    assert admission.ask_to_spend([pod()], UsdPerHour(6)) is None
    assert admission.ask_to_spend([pod("other")], UsdPerHour(3)) is None
    held = admission.ask_to_spend([pod("third")], UsdPerHour(24))
    never = admission.ask_to_spend([pod("fourth")], UsdPerHour(11), timedelta(hours=1))
    assert "is more than its whole quota of $10.00" in never.sentence
    assert "It cannot go on with this quota" in never.sentence
    assert held.pod.name == "third"
    assert "$24.00/h for at least 5m is more than the $1.00 of $10.00 that are not spoken for" in held.sentence


def test_minimum_billing_must_be_paid_whole():
    admission = asking(budgets=[budget(hours=None, usd="10")])
    assert admission.ask_to_spend([pod()], UsdPerHour(6), minimum=timedelta(hours=2)) is not None
    assert admission.ask_to_spend([pod()], UsdPerHour(5), minimum=timedelta(hours=2)) is None
    assert admission.ask(pod("next")) is not None


def test_a_pod_that_no_budget_counts_is_nobodys_business():
    admission = asking(budgets=[budget(hours="1m")])
    assert admission.ask(pod(labels={})) is None
    assert admission.ask_to_spend([pod(labels={})], UsdPerHour(100)) is None


@pytest.mark.parametrize("usd", ["1", "0.50"])
def test_dollars_alone_can_use_a_budget_up(usd):
    one = budget(hours=None, usd=usd)
    accounts, _, _ = world(budgets=[one])
    accounts.get(KEY).money.begin("instance", T0, UsdPerHour(1).units, T0)
    found = Assessor().assess([one], accounts, at(1800))[KEY]
    assert found.consumed_usd == Usd("0.50")
    assert found.exceeded is (usd == "0.50")
    assert found.burn_usd == UsdPerHour(1)
    assert found.exhausted == at(3600 if usd == "1" else 1800)
    assert found.sentence == f"$0.50 of {Usd(usd)} used in the last 24h."


@pytest.mark.law
@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 8)), st.integers(0, 20 * HOUR), st.booleans()), max_size=5),
    st.lists(st.sampled_from((1, 2, 8)), max_size=12),
    st.integers(1, 60),
)
def test_never_more_is_begun_than_the_budget_has_for_an_hour_but_for_the_last_to_come(history, asked, quota):
    """Until the last one, all that runs and was admitted could go on for an hour within the quota."""
    pods = [
        pod(f"h{number}", gpus, started=start, finished=start + HOUR if over else None)
        for number, (gpus, start, over) in enumerate(history)
    ]
    now, one = 21 * HOUR, budget(hours=str(quota))
    accounts, standings, by_key = world(*pods, budgets=[one], when=now)
    admission = Admission(accounts, by_key, standings, at(now))
    admitted = [gpus for number, gpus in enumerate(asked) if admission.ask(pod(f"p{number}", gpus)) is None]
    if standings[KEY].exceeded:
        assert admitted == []
    most = headroom(accounts.get(KEY), QuotaLimits.of(one.spec.quota), at(now)).gpu_hours
    assert most <= max(GpuHours.parse(quota) - standings[KEY].consumed, GpuHours.zero())
    assert sum(admitted[:-1]) <= max(most.hours, 0)
