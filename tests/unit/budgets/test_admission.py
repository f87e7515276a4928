"""Which pods and launches budgets admit, and until when the others wait."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.budgets.admission import Admission, Held, Release, release
from forebay.budgets.assessment import QuotaLimits, headroom
from forebay.model.quantities import GpuHours, UsdPerHour
from forebay.model.reasons import Reason
from tests.unit.budgets.factories import assessed, at, budget, pod

KEY = ("default", "team-a")
HOUR = 3600
GATE = ("forebay.dev/budget",)


def admission_of(*pods, budgets=None, when=0):
    accounts, standings, by_key = assessed(*pods, budgets=budgets, when=when)
    return Admission(accounts, by_key, standings, at(when))


def test_pods_are_admitted_as_far_as_there_is_headroom_and_each_takes_its_share():
    admission = admission_of(budgets=[budget(hours="20")])
    answers = [admission.admit(pod(f"p{number}", 8)) for number in range(4)]
    assert [each is None for each in answers] == [True, True, True, False]
    held = answers[3]
    assert (held.budget, held.reason) == (KEY, Reason.HELD_BY_BUDGET)
    assert "has too little headroom for the pod: 0 GPU-h left of 20 GPU-h in 24h." in held.sentence
    assert "until pods before it have ended" in held.sentence


def test_what_is_left_and_is_not_enough_is_compared_with_what_the_pod_takes():
    done = pod("done", 8, started=0, finished=HOUR)
    some_left, all_needed = (
        admission_of(done, budgets=[budget(hours=quota)], when=2 * HOUR).admit(pod("next", gpus))
        for quota, gpus in (("8.1", 6), ("8.1", 240))
    )
    assert (
        "0.1 GPU-h left of 8.1 GPU-h in 24h, and 5m of the pod take 0.5 GPU-h. The pod starts not" in some_left.sentence
    )
    assert "0.1 GPU-h left of 8.1 GPU-h in 24h, and a pod that takes more than that in 5m starts" in all_needed.sentence


def test_pods_with_launching_capacity_come_first():
    admission = admission_of(budgets=[budget(hours="8")])
    admission.reserve(pod("launching", 8))
    assert admission.admit(pod("next", 1)) is not None


def test_a_used_up_budget_holds_new_pods_and_says_until_when():
    done = pod("done", 8, started=0, finished=HOUR)
    held = admission_of(done, budgets=[budget(hours="8")], when=2 * HOUR).admit(pod("next", 6))
    # Six GPUs for five minutes are half a GPU-hour, which eight have used in 3 min 45 s.
    assert held.until == at(24 * HOUR + 225)
    assert "not before 2026-03-03 12:03:45 UTC" in held.sentence
    assert "raise spec.quota" in held.sentence


@pytest.mark.parametrize(("quota", "words"), [({"hours": "8"}, "0 GPU-h left of 8 GPU-h"), ({"hours": "7"}, "0 GPU-h")])
def test_a_pod_that_was_admitted_goes_on_until_its_budget_is_used_up(quota, words):
    done = pod("done", 8, started=0, finished=HOUR)
    bound = pod("bound", node="n1")
    wide = admission_of(done, budgets=[budget(hours="8100m")], when=2 * HOUR)
    wide.reserve(bound)
    assert wide.admit_again(bound) is None
    assert wide.admit(pod("next")) is not None
    held = admission_of(done, budgets=[budget(**quota)], when=2 * HOUR).admit_again(bound)
    assert (held.budget, held.reason, held.pod) == (KEY, Reason.HELD_BY_BUDGET, bound)
    assert words in held.sentence


def test_a_quota_smaller_than_five_minutes_of_a_pod_admits_it_while_nothing_is_used():
    tiny = [budget(hours="10m")]
    assert admission_of(budgets=tiny).admit(pod(gpus=8)) is None
    used = pod("used", 1, started=0, finished=1)
    assert admission_of(used, budgets=tiny, when=10).admit(pod(gpus=8)) is not None


def test_the_strictest_of_several_budgets_holds_and_alerts_hold_no_pod():
    done = pod("done", 8, started=0, finished=HOUR)
    wide, narrow = budget("wide", hours="1000"), budget("narrow", hours="8", window=48)
    narrower = budget("narrower", hours="8", window=72)
    held = admission_of(done, budgets=[wide, narrow, narrower], when=2 * HOUR).admit(pod("next"))
    assert held.budget == ("default", "narrower")
    alerting = budget("narrow", hours="8", action=EnforcementAction.ALERT_ONLY)
    assert admission_of(done, budgets=[wide, alerting], when=2 * HOUR).admit(pod("next")) is None


def test_a_pod_refused_by_one_budget_takes_nothing_from_another():
    done = pod("done", 8, started=0, finished=HOUR, labels={"team": "a", "app": "x"})
    budgets = [budget("app", hours="8", labels={"app": "x"}), budget("team", hours="16")]
    admission = admission_of(done, budgets=budgets, when=2 * HOUR)
    assert admission.admit(pod("refused", 8, labels={"team": "a", "app": "x"})) is not None
    assert admission.admit(pod("other", 8)) is None


def test_gated_pods_are_released_oldest_first_and_none_overtakes():
    done = pod("done", 8, started=0, finished=HOUR)
    gated = [
        pod("young", 1, gates=GATE, created=at(300)),
        pod("old", 8, gates=GATE, created=at(100)),
        pod("middle", 4, gates=GATE, created=at(200)),
        pod("free", 4, created=at(50)),
        pod("going", 4, gates=GATE, created=at(50), deleted=at(90)),
    ]
    found = release(gated, admission_of(done, budgets=[budget(hours="9")], when=2 * HOUR))
    assert [(type(each), each.pod.name) for each in found] == [(Release, "old"), (Held, "middle"), (Held, "young")]
    found = release(gated, admission_of(done, budgets=[budget(hours="8")], when=2 * HOUR))
    assert [type(each) for each in found] == [Held] * 3
    assert len({each.until for each in found}) == 1


def test_dollar_budgets_admit_each_launch():
    admission = admission_of(budgets=[budget(hours=None, usd="10")])
    assert admission.admit(pod()) is None
    assert admission.admit_launch([pod()], UsdPerHour(6)) is None
    assert admission.admit_launch([pod("other")], UsdPerHour(3)) is None
    held = admission.admit_launch([pod("third")], UsdPerHour(24))
    never = admission.admit_launch([pod("fourth")], UsdPerHour(11), timedelta(hours=1))
    assert "$11.00/h is paid for at least 60m, which is more than the whole quota of $10.00 in 24h" in never.sentence
    assert "The pod cannot start with this quota" in never.sentence
    assert held.pod.name == "third"
    assert "$1.00 left of $10.00 in 24h, and a machine at $24.00/h is paid for at least 5m" in held.sentence


def test_a_machine_that_is_launching_and_not_billed_yet_takes_its_share_of_the_dollars():
    admission = admission_of(budgets=[budget(hours=None, usd="10")])
    admission.reserve_launch([pod()], UsdPerHour(10))
    assert admission.admit_launch([pod("other")], UsdPerHour(24)) is not None


def test_a_launch_needs_headroom_for_its_minimum_billing():
    admission = admission_of(budgets=[budget(hours=None, usd="10")])
    assert admission.admit_launch([pod()], UsdPerHour(6), minimum=timedelta(hours=2)) is not None
    assert admission.admit_launch([pod()], UsdPerHour(5), minimum=timedelta(hours=2)) is None
    assert admission.admit(pod("next")) is not None


def test_a_pod_that_no_budget_selects_is_admitted():
    admission = admission_of(budgets=[budget(hours="1m")])
    assert admission.admit(pod(labels={})) is None
    assert admission.admit_launch([pod(labels={})], UsdPerHour(100)) is None


@pytest.mark.law
@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 8)), st.integers(0, 20 * HOUR), st.booleans()), max_size=5),
    st.lists(st.sampled_from((1, 2, 8)), max_size=12),
    st.integers(1, 60),
)
def test_no_more_is_admitted_than_the_budget_has_for_an_hour_but_for_the_last_pod(history, asked, quota):
    """Until the last one, all that runs and was admitted could go on for an hour within the quota."""
    pods = [
        pod(f"h{number}", gpus, started=start, finished=start + HOUR if over else None)
        for number, (gpus, start, over) in enumerate(history)
    ]
    now, one = 21 * HOUR, budget(hours=str(quota))
    accounts, standings, by_key = assessed(*pods, budgets=[one], when=now)
    admission = Admission(accounts, by_key, standings, at(now))
    admitted = [gpus for number, gpus in enumerate(asked) if admission.admit(pod(f"p{number}", gpus)) is None]
    if standings[KEY].exceeded:
        assert admitted == []
    most = headroom(accounts.get(KEY), QuotaLimits.of(one.spec.quota), at(now)).gpu_hours
    assert most <= max(GpuHours.parse(quota) - standings[KEY].consumed, GpuHours.zero())
    assert sum(admitted[:-1]) <= max(most.hours, 0)


SIZES = (("huge", 1000, 0), ("small", 1, 60))


def test_a_gated_pod_that_nothing_can_place_holds_nobody_back():
    done = pod("done", 1, started=0, finished=HOUR)
    huge, small = (pod(name, gpus, gates=GATE, created=at(age)) for name, gpus, age in SIZES)
    admission = admission_of(done, budgets=[budget(hours="9")], when=2 * HOUR)
    first, second = release([huge, small], admission, unplaceable=lambda each: each.name == "huge")
    assert isinstance(first, Held)
    assert isinstance(second, Release)
    admission = admission_of(done, budgets=[budget(hours="9")], when=2 * HOUR)
    assert all(isinstance(each, Held) for each in release([huge, small], admission))
