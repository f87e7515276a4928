"""What enforcement remembers of its actions, and for how long."""

from datetime import timedelta

import pytest

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.engine.apply.pending_enforcement import REFUSED_FOR, PendingEnforcement
from tests.unit.budgets.factories import at, pod

KEY = ("default", "team-a")


def test_a_pod_whose_eviction_was_refused_is_tried_again_after_that_time():
    pending = PendingEnforcement()
    pending.refused(pod(), at(0))
    assert pending.blocked(at(0) + REFUSED_FOR - timedelta(microseconds=1)) == {"uid-train"}
    assert pending.blocked(at(0) + REFUSED_FOR) == frozenset()


@pytest.mark.parametrize(("minutes", "spared"), [(29.9, True), (30, False)])
def test_an_owner_whose_pod_was_evicted_is_remembered_for_half_an_hour(minutes, spared):
    pending = PendingEnforcement()
    pending.done(KEY, pod(job="train"), EnforcementAction.EVICT, at(0))
    assert ("uid-of-job-train" in pending.backoffs(at(minutes * 60))) is spared


def test_each_replacement_that_is_evicted_is_spared_for_twice_as_long():
    pending = PendingEnforcement()
    until = []
    for number in range(4):
        pending.done(KEY, pod(job="train", created=at(number)), EnforcementAction.EVICT, at(number))
        (found,) = pending.backoffs(at(number)).values()
        until.append(found.until - at(number))
    assert until[1:] == [2 * each for each in until[:-1]]
    assert pending.counts[KEY, EnforcementAction.EVICT] == 4


def test_a_paused_pod_is_not_a_reason_to_spare_the_next():
    pending = PendingEnforcement()
    pending.done(KEY, pod(job="train"), EnforcementAction.PAUSE, at(0))
    pending.done(KEY, pod("bare"), EnforcementAction.EVICT, at(0))
    assert pending.backoffs(at(1)) == {}
    assert pending.enforced == {KEY: at(0)}
