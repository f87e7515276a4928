"""Which pods and Jobs enforcement stops and resumes, and that enforcement comes to an end."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.budgets.accounts import Accounts
from forebay.budgets.assessment import Assessor
from forebay.budgets.enforcement import (
    Alert,
    CannotPause,
    Evict,
    EvictionBackoff,
    Pause,
    PausedJob,
    Resume,
    enforce,
    exceeded_since,
)
from forebay.budgets.usage import seconds
from forebay.model.quantities import UsdPerHour
from forebay.model.workloads import Owner, Phase
from tests.unit.budgets.factories import at, budget, pod

KEY = ("default", "team-a")
HOUR = 3600


def enforced(
    *pods, when=HOUR, grace=30, since=0, last=None, blocked=(), paused=(), gated=True, backoffs=None, **fields
):
    """Result at `when` for a budget that has been used up since `since` and acted at `last`."""
    one = budget(**{"hours": "1", "grace": grace, **fields}, since=at(since))
    accounts = Accounts()
    account = accounts.open(one, at(when))
    for each in pods:
        accounts.see(each, at(when))
    standing = Assessor().assess([one], accounts, at(when))[KEY]
    return enforce(
        one,
        account,
        standing,
        at(when),
        since=exceeded_since(one),
        last_action=None if last is None else at(last),
        blocked=blocked,
        paused=paused,
        backoffs=backoffs or {},
        gated=gated,
    )


def test_no_pod_is_stopped_within_the_grace_period_which_a_restart_does_not_restart():
    early = enforced(pod(gpus=8, started=0), when=HOUR, since=HOUR - 10)
    assert early.decisions == ()
    assert early.requeue_at == at(HOUR + 20)
    (evicted,) = enforced(pod(gpus=8, started=0), when=HOUR, since=HOUR - 30).decisions
    assert evicted.pod.name == "train"


def test_the_running_pod_with_the_largest_usage_is_evicted_then_the_first_by_name():
    pods = [
        pod("completed", 8, started=0, finished=HOUR - 1),
        pod("b", 2, started=0),
        pod("a", 2, started=0),
        pod("small", 1, started=0),
        pod("late", 8, started=HOUR - 60),
    ]
    (evicted,) = enforced(*pods).decisions
    assert isinstance(evicted, Evict)
    assert evicted.pod.name == "a"
    assert "of its running pods this one has used the most (2 GPU-h)" in evicted.sentence
    (evicted,) = enforced(*pods, blocked={"uid-a"}).decisions
    assert evicted.pod.name == "b"


def test_one_pod_at_a_time_and_a_stuck_one_is_not_waited_for_forever():
    going = pod("going", 8, started=0, deleted=at(HOUR + 10))
    other = pod("other", 1, started=0)
    waiting = enforced(going, other, when=HOUR, last=HOUR - 20)
    assert waiting.decisions == ()
    assert waiting.requeue_at == at(HOUR + 40)
    (evicted,) = enforced(going, other, when=HOUR + 40, last=HOUR - 20).decisions
    assert evicted.pod.name == "other"


@pytest.mark.parametrize("ends", [HOUR + 15, HOUR + 600, HOUR + 30 * 86_400], ids=["soon", "later", "in-30-days"])
def test_a_terminating_pod_that_somebody_else_deleted_shields_no_other_pod(ends):
    going = pod("going", 8, started=0, deleted=at(ends))
    (evicted,) = enforced(going, pod("other", 1, started=0), when=HOUR).decisions
    assert evicted.pod.name == "other"


def test_a_pod_whose_end_takes_long_is_not_waited_for_even_after_an_action():
    going = pod("going", 8, started=0, deleted=at(HOUR + 600))
    (evicted,) = enforced(going, pod("other", 1, started=0), when=HOUR, last=HOUR - 1).decisions
    assert evicted.pod.name == "other"


def test_no_further_pod_is_stopped_if_what_terminating_pods_free_is_enough():
    day = 24 * HOUR
    earlier = pod("earlier", 8, started=0, finished=HOUR)
    going = pod("going", 8, started=day - HOUR, deleted=at(day + HOUR))
    small = pod("small", 1, started=day - 60)
    # 16 GPU-hours are used; 8 GPUs leave the window each second, and only `small` goes on.
    found = enforced(earlier, going, small, when=day, hours="16", last=day - 5)
    assert found.decisions == ()
    assert found.requeue_at is not None
    (evicted,) = enforced(earlier, going, small, when=day, hours="15", last=day - 5).decisions
    assert evicted.pod.name == "small"


def test_pods_that_go_on_do_not_count_as_freed_with_those_that_end():
    # In a minute the other pod alone is still over the quota, whatever the one that ends frees.
    going = pod("going", 1, started=HOUR - 10, deleted=at(3 * HOUR))
    (evicted,) = enforced(going, pod("other", 1, started=0)).decisions
    assert evicted.pod.name == "other"


def test_replacements_of_an_evicted_pod_are_spared_for_a_while_and_others_are_not():
    web = Owner("ReplicaSet", "web", "uid-of-web")
    replacement = pod("replacement", 8, started=0, owner=web, created=at(0))
    backoffs = {web.uid: EvictionBackoff(since=at(-10), until=at(HOUR + 50))}
    alone = enforced(replacement, backoffs=backoffs)
    assert (alone.decisions, alone.requeue_at) == ((), at(HOUR + 50))
    (evicted,) = enforced(replacement, pod("other", 1, started=0), backoffs=backoffs).decisions
    assert evicted.pod.name == "other"
    (evicted,) = enforced(replacement, backoffs=backoffs, when=HOUR + 50).decisions
    assert evicted.pod.name == "replacement"
    older = pod("older", 8, started=0, owner=web, created=at(-20))
    (evicted,) = enforced(older, replacement, backoffs=backoffs).decisions
    assert evicted.pod.name == "older"


@pytest.mark.parametrize(
    "spared",
    [
        pod("ended", 8, started=0, finished=60),
        pod("waiting", 8),
        pod("static", 8, started=0, mirror=True),
        pod("stranger", 8, started=0, labels={}),
        pod("no-gpu", 0, started=0),
    ],
    ids=lambda each: each.name,
)
def test_pods_that_use_nothing_or_cannot_be_evicted_are_not_stopped(spared):
    done = pod("done", 8, started=0, finished=HOUR - 1)
    assert enforced(done, spared).decisions == ()


def test_alert_only_stops_no_pod():
    alert_only = {"action": EnforcementAction.ALERT_ONLY, "since": HOUR - 100}
    (alert,) = enforced(pod(gpus=8, started=0), **alert_only).decisions
    assert isinstance(alert, Alert)
    assert enforced(pod(gpus=8, started=0), **alert_only, last=HOUR - 50).decisions == ()
    assert enforced(pod(gpus=8, started=0), **alert_only, last=HOUR - 70).decisions == (), "when the grace ended"
    assert enforced(pod(gpus=8, started=0), **alert_only, last=HOUR - 71).decisions, "an earlier excess"
    early = enforced(pod(gpus=8, started=0), **alert_only, grace=200)
    assert (early.decisions, early.requeue_at) == ((), at(HOUR + 100))


def test_pausing_suspends_the_job_and_reports_pods_without_one():
    bare = pod("bare", 8, started=0)
    replica = pod("replica", 4, started=0, owner=Owner("ReplicaSet", "web", "uid-of-web"))
    worker = pod("worker", 2, started=0, job="train")
    found = enforced(bare, replica, worker, pod("next", 1, started=0, job="other"), action=EnforcementAction.PAUSE)
    first, second, third = found.decisions
    assert isinstance(first, CannotPause)
    assert "has no controller" in first.sentence
    assert "belongs to ReplicaSet web" in second.sentence
    assert "set spec.enforcement.action to Evict" in second.sentence
    assert isinstance(third, Pause)
    assert third.job.name == "train"


def paused(job="train", since=0, rate=1000, name="team-a"):
    return PausedJob(
        namespace="default",
        job=Owner("Job", job, f"uid-of-job-{job}"),
        budget=("default", name),
        since=at(since),
        rate=rate,
    )


def test_a_job_that_is_paused_is_not_paused_again():
    worker = pod("worker", 8, started=0, job="train")
    assert enforced(worker, action=EnforcementAction.PAUSE, paused=[paused()]).decisions == ()
    other = pod("other", 1, started=0, job="other")
    (found,) = enforced(worker, other, action=EnforcementAction.PAUSE, paused=[paused()]).decisions
    assert found.job.name == "other"


def test_jobs_are_resumed_one_at_a_time_when_the_budget_has_enough_headroom():
    jobs = [paused("second", since=50, rate=8000), paused("first", since=20, rate=8000), paused("x", name="other")]
    done = pod("done", 1, started=0, finished=HOUR)
    fields = {"action": EnforcementAction.PAUSE, "hours": "1", "paused": jobs}
    (found,) = enforced(done, when=25 * HOUR, **fields).decisions
    assert isinstance(found, Resume)
    assert found.job.name == "first"
    early = enforced(done, when=24 * HOUR + 1, **fields)
    assert early.decisions == ()
    assert early.requeue_at == at(24 * HOUR + 8 * 300)


@pytest.mark.parametrize(("spent", "resumed"), [(49 * HOUR, True), (49 * HOUR + 1, False)])
def test_a_job_is_resumed_when_a_fiftieth_of_the_dollars_is_free(spent, resumed):
    one, when = budget(hours=None, usd="50", window=100, action=EnforcementAction.PAUSE), at(60 * HOUR)
    accounts = Accounts()
    account = accounts.open(one, when)
    account.money.record("uid-done", seconds(at(0)), seconds(at(spent)), UsdPerHour("1").units)
    standing = Assessor().assess([one], accounts, when)[KEY]
    found = enforce(one, account, standing, when, since=None, paused=[paused()])
    assert bool(found.decisions) is resumed


def test_a_budget_that_only_alerts_now_resumes_all_its_jobs_without_waiting_for_headroom():
    jobs = [paused("one"), paused("two"), paused("x", name="other")]
    found = enforced(pod(gpus=8, started=0), action=EnforcementAction.ALERT_ONLY, paused=jobs).decisions
    assert [each.job.name for each in found if isinstance(each, Resume)] == ["one", "two"]


class Cluster:
    """Pods that end when they are evicted, unless a PodDisruptionBudget refuses a number of times."""

    def __init__(self, pods, quota, action):
        self.now = 10 * HOUR
        self.pods = {each.name: each for each in pods}
        self.refusals = {}
        self.budget = budget(hours=quota, action=action, grace=0, window=24, since=at(self.now))
        self.accounts = Accounts()
        self.account = self.accounts.open(self.budget, at(self.now))
        self.paused = []
        self.blocked = set()
        self.stopped = []

    def step(self):
        for each in self.pods.values():
            self.accounts.see(each, at(self.now))
        standing = Assessor().assess([self.budget], self.accounts, at(self.now))[KEY]
        found = enforce(
            self.budget,
            self.account,
            standing,
            at(self.now),
            since=exceeded_since(self.budget),
            blocked=self.blocked,
            paused=self.paused,
        )
        self.blocked = set()
        for decision in found.decisions:
            if isinstance(decision, Evict):
                if self.refusals.get(decision.pod.name, 0) > 0:
                    self.refusals[decision.pod.name] -= 1
                    self.blocked.add(decision.pod.uid)
                else:
                    self.delete([decision.pod.name])
            elif isinstance(decision, Pause):
                self.paused.append(paused(decision.job.name, self.now))
                self.delete([each.name for each in self.pods.values() if each.owner == decision.job])
        return standing, found

    def delete(self, names):
        for name in names:
            assert name not in self.stopped
            self.stopped.append(name)
            self.pods[name] = msgspec.structs.replace(self.pods[name], deleted=at(self.now + 5))

    def wait(self, seconds):
        self.now += seconds
        for name, each in self.pods.items():
            if each.deleted is not None and each.phase is Phase.RUNNING and at(self.now) >= each.deleted:
                self.pods[name] = msgspec.structs.replace(each, phase=Phase.FAILED, finished=each.deleted)

    @property
    def running(self):
        return {name for name, each in self.pods.items() if each.phase is Phase.RUNNING}


@pytest.mark.law
@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 8)), st.integers(0, 9 * HOUR), st.integers(0, 4)), max_size=8),
    st.sampled_from(("1", "10", "60")),
    st.sampled_from((EnforcementAction.EVICT, EnforcementAction.PAUSE)),
)
def test_enforcement_ends(lives, quota, action):
    pods = [
        pod(f"p{number}", gpus, started=start, job=f"job-{number // 2}")
        for number, (gpus, start, _) in enumerate(lives)
    ]
    cluster = Cluster(pods, quota, action)
    cluster.refusals = {f"p{number}": times for number, (_, _, times) in enumerate(lives)}
    for _ in range(100):
        standing, found = cluster.step()
        if not standing.exceeded or not cluster.running:
            break
        assert found.decisions or found.requeue_at is not None or cluster.blocked
        cluster.wait(10)
    assert not standing.exceeded or not cluster.running
    assert len(cluster.stopped) == len(set(cluster.stopped))


def test_the_condition_says_since_when():
    assert exceeded_since(budget()) is None
    assert exceeded_since(budget(since=at(5))) == at(0) + timedelta(seconds=5)


JOB = Owner("Job", "work", "uid-job")


@pytest.mark.parametrize(
    ("created", "gated", "decided"),
    [
        (0, True, Evict),
        # Nothing holds the pod that the Job would create for it.
        (0, False, Pause),
        # The gate did not hold this one: its template names a node.
        (HOUR - 60, True, Pause),
    ],
)
def test_a_job_that_would_only_create_another_running_pod_is_suspended(created, gated, decided):
    running = msgspec.structs.replace(pod(gpus=8, started=HOUR - 50), owner=JOB, created=at(created))
    full = pod("completed", 8, started=0, finished=HOUR - 100)
    (found,) = enforced(full, running, since=HOUR - 90, gated=gated).decisions
    assert isinstance(found, decided)


def test_a_deployment_is_not_suspended_for_want_of_a_gate():
    replica = msgspec.structs.replace(pod(gpus=8, started=0), owner=Owner("ReplicaSet", "web", "uid-web"))
    (found,) = enforced(replica, gated=False).decisions
    assert isinstance(found, Evict)


def test_a_job_that_was_suspended_instead_of_an_eviction_is_left_alone():
    running = msgspec.structs.replace(pod(gpus=8, started=0), owner=JOB)
    paused = PausedJob(namespace="default", job=JOB, budget=KEY, since=at(HOUR - 5))
    assert enforced(running, gated=False, paused=[paused]).decisions == ()


@pytest.mark.parametrize(("usd", "stopped"), [("30", ["other"]), ("60", [])])
def test_what_terminating_pods_free_is_enough_only_if_the_dollars_are_as_well(usd, stopped):
    # In a minute, usage will be back within its quota; dollars do not leave the window so soon.
    when = 24 * HOUR
    one = budget(hours="8.1", usd=usd, grace=0, since=at(0))
    accounts = Accounts()
    account = accounts.open(one, at(when))
    for each in (
        pod("earlier", 8, started=0, finished=HOUR),
        pod("going", 8, started=when - 60, deleted=at(when + HOUR)),
        pod("other", 1, started=when - 60),
    ):
        accounts.see(each, at(when))
    account.money.record("machine", seconds(at(when - HOUR)), seconds(at(when)), UsdPerHour("40").units)
    standing = Assessor().assess([one], accounts, at(when))[KEY]
    found = enforce(one, account, standing, at(when), since=exceeded_since(one), last_action=None)
    assert [each.pod.name for each in found.decisions] == stopped
