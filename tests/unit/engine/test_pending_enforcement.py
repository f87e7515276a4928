"""What enforcement remembers of its actions, and for how long."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.api.meta import ObjectMeta
from forebay.api.names import PAUSED_AT_ANNOTATION, PAUSED_BY_ANNOTATION, PAUSED_RATE_ANNOTATION
from forebay.engine.apply.pending_enforcement import REFUSED_FOR, PendingEnforcement, paused
from forebay.kube.jobs import Job, JobSpec
from forebay.model.workloads import Phase
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


class View:
    """The informer's view of pods."""

    def __init__(self, *pods):
        self._pods = {each.key: each for each in pods}

    def get(self, key):
        return self._pods.get(key)


def test_a_budget_waits_until_the_view_shows_what_it_stopped_or_ten_seconds_have_passed():
    def awaited(now, *seen):
        pending = PendingEnforcement()
        pending.done(KEY, pod(), EnforcementAction.EVICT, at(0))
        return pending.awaiting(at(now), View(*seen)) == {KEY}

    assert awaited(9.9, pod())
    assert not awaited(10, pod())
    assert not awaited(1)
    assert not awaited(1, pod(deleted=at(1)))
    assert not awaited(1, pod(phase=Phase.SUCCEEDED))
    assert not awaited(1, msgspec.structs.replace(pod(), uid="another"))


def test_a_budget_waits_after_it_resumed_a_job_until_its_usage_shows():
    pending = PendingEnforcement()
    pending.resumed(KEY, at(0))
    assert pending.awaiting(at(9.9), View()) == {KEY}
    assert pending.awaiting(at(10), View()) == frozenset()


def test_a_replacement_is_spared_for_ten_seconds_at_first_and_five_minutes_at_most():
    pending = PendingEnforcement()
    pending.done(KEY, pod(job="train"), EnforcementAction.EVICT, at(0))
    pending.done(KEY, pod("older", job="train", created=at(-5)), EnforcementAction.EVICT, at(1))
    (first,) = pending.backoffs(at(1)).values()
    assert (first.since, first.until) == (at(0), at(11)), "the second was there before, and replaces none"
    for number in range(2, 40):
        pending.done(KEY, pod(job="train", created=at(number)), EnforcementAction.EVICT, at(number))
    (last,) = pending.backoffs(at(39)).values()
    assert last.until == at(39 + 300)


def test_an_alert_counts_as_an_action():
    pending = PendingEnforcement()
    pending.alerted(KEY, at(5))
    pending.alerted(KEY, at(6))
    assert (pending.enforced, pending.counts) == ({KEY: at(6)}, {(KEY, EnforcementAction.ALERT_ONLY): 2})


def job(name="train", *, suspend=True, deleted=None, **annotations):
    metadata = ObjectMeta(
        name=name,
        namespace="team",
        uid=f"uid-{name}",
        creation_timestamp=at(-100),
        deletion_timestamp=deleted,
        annotations=annotations,
    )
    return Job(metadata=metadata, spec=JobSpec(suspend=suspend))


def test_a_paused_job_is_read_from_its_annotations():
    told = {
        PAUSED_AT_ANNOTATION: at(7).isoformat(),
        PAUSED_RATE_ANNOTATION: "4000",
        PAUSED_BY_ANNOTATION: "quota",
    }
    (found,) = paused([job("running", suspend=False, **told), job("going", deleted=at(1), **told), job(**told)])
    assert (found.namespace, found.job.name, found.budget) == ("team", "train", ("team", "quota"))
    assert (found.since, found.rate) == (at(7), 4000)
    (local,) = paused([job(**{**told, PAUSED_AT_ANNOTATION: "2030-01-01T00:00:00"})])
    assert local.since == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("edited", [{PAUSED_AT_ANNOTATION: "yesterday"}, {PAUSED_RATE_ANNOTATION: "many"}])
def test_a_job_whose_annotations_were_edited_counts_as_paused_since_its_creation(edited):
    told = {PAUSED_AT_ANNOTATION: at(7).isoformat(), PAUSED_RATE_ANNOTATION: "4000", **edited}
    (found,) = paused([job(**told)])
    assert (found.since, found.rate, found.budget) == (at(-100), 1000, ("team", ""))
