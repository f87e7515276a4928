"""Which pods and Jobs are stopped when a budget is used up, when, and when Jobs are resumed."""

import pytest

from forebay.embedded.api import kinds
from forebay.install.admission_policies import admission_policies
from tests.engine.budget_world import operator, passing, world


def _disruption_budget(it, labels, name="keep"):
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    it.store.create(
        it.store.kinds.named("policy/v1", "PodDisruptionBudget"),
        {"metadata": {"name": name, "namespace": "default"}, "spec": spec},
    )


async def test_the_largest_user_is_evicted_after_the_grace_period_and_the_next_after_it():
    async with world() as it, operator(it):
        it.budget(hours="0.3", grace=60)
        it.pod("small", 1, terminationGracePeriodSeconds=5)
        it.pod("large", 2, terminationGracePeriodSeconds=5)
        await passing(365)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        assert it.events("Evicted") == []
        await passing(62)
        assert ("Pod", "large", "Evicted") in it.events()
        assert ("GPUWorkloadBudget", "team-a", "Evicted") in it.events()
        await passing(30)
        assert not it.is_there("large")
        await passing(60)
        assert not it.is_there("small")
        assert len(it.told("large", "Evicted")) == len(it.told("small", "Evicted")) == 1
        assert it.status()["lastEnforcementAt"]


async def test_the_grace_period_continues_when_another_operator_takes_over():
    async with world() as it:
        it.budget(hours="0.1", grace=300)
        it.pod("train", 1, terminationGracePeriodSeconds=5)
        async with operator(it, "a"):
            await passing(500)
            assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
            assert it.is_there("train")
        async with operator(it, "b"):
            await passing(190)
            assert ("Pod", "train", "Evicted") in it.events()


async def test_eviction_does_not_refund_usage():
    async with world() as it, operator(it):
        it.budget(hours="0.1", grace=0)
        it.pod("train", 1, terminationGracePeriodSeconds=5)
        await passing(600)
        assert not it.is_there("train")
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        it.pod("another", 1, terminationGracePeriodSeconds=5)
        await passing(120)
        assert it.told("another", "Evicted")


async def test_where_a_disruption_budget_refuses_the_next_pod_is_evicted():
    async with world() as it, operator(it):
        _disruption_budget(it, {"kept": "yes"})
        it.budget(hours="0.2", grace=0)
        it.pod("kept", 2, labels={"team": "a", "kept": "yes"}, terminationGracePeriodSeconds=5)
        it.pod("other", 1, terminationGracePeriodSeconds=5)
        await passing(400)
        assert it.told("kept", "EvictionBlocked")
        assert ("GPUWorkloadBudget", "team-a", "EvictionBlocked") in it.events()
        assert it.phase("kept") == "Running"
        assert not it.is_there("other")
        it.store.delete(it.store.kinds.named("policy/v1", "PodDisruptionBudget"), "default", "keep")
        await passing(60)
        assert not it.is_there("kept")


async def test_two_disruption_budgets_on_the_largest_pod_do_not_shield_the_others():
    async with world() as it, operator(it):
        _disruption_budget(it, {"kept": "yes"}, "one")
        _disruption_budget(it, {"kept": "yes"}, "two")
        it.budget(hours="0.2", grace=0)
        it.pod("kept", 2, labels={"team": "a", "kept": "yes"}, terminationGracePeriodSeconds=5)
        it.pod("other", 1, terminationGracePeriodSeconds=5)
        await passing(400)
        assert not it.is_there("other")
        assert it.phase("kept") == "Running"
        assert "more than one PodDisruptionBudget" in it.told("kept", "EvictionBlocked")[0]
        assert ("GPUWorkloadBudget", "team-a", "EvictionBlocked") in it.events()


async def test_large_pods_with_long_grace_periods_are_evicted_together():
    async with world() as it, operator(it):
        it.budget(hours="1", grace=0)
        for number in range(4):
            slow = {"embedded.forebay.dev/stop-delay": "10000h"}
            it.pod(f"slow-{number}", 2, annotations=slow, terminationGracePeriodSeconds=30 * 86_400)
        await passing(3600 / 8 + 60)
        terminating = [it.the_pod(f"slow-{number}")["metadata"].get("deletionTimestamp") for number in range(4)]
        assert all(terminating)


async def test_alert_only_stops_no_pod_and_counts_one_alert():
    async with world() as it, operator(it) as replica:
        it.budget(hours="0.1", action="AlertOnly", grace=0)
        it.pod("train", 1)
        await passing(900)
        assert it.phase("train") == "Running"
        assert it.told("team-a", "QuotaExceeded")
        assert it.status()["lastEnforcementAt"]
        counts = {action.value: count for (_, action), count in replica.budget_accounting.actions.counts.items()}
        assert counts == {"AlertOnly": 1}


def _job(it, name="work"):
    return it.store.get(kinds.JOB_KIND, "default", name)


async def test_a_job_is_suspended_and_resumed_when_the_budget_has_headroom():
    async with world() as it, operator(it):
        it.budget(hours="0.2", window=1, action="Pause", grace=10)
        it.job("work", 1)
        await passing(800)
        job = _job(it)
        assert job["spec"]["suspend"] is True
        assert job["metadata"]["annotations"]["forebay.dev/paused-by"] == "team-a"
        assert job["metadata"]["annotations"]["forebay.dev/paused-at"]
        assert job["metadata"]["labels"]["forebay.dev/paused"] == "true"
        assert ("Job", "work", "Paused") in it.events()
        assert [each for each in it.store.list(kinds.POD_KIND) if each["status"]["phase"] == "Running"] == []
        assert len(it.told("team-a", "Paused")) == 1
        await passing(3700)
        job = _job(it)
        assert not job["spec"].get("suspend")
        assert "forebay.dev/paused-by" not in job["metadata"].get("annotations", {})
        assert "forebay.dev/paused" not in job["metadata"].get("labels", {})
        assert ("Job", "work", "Resumed") in it.events()
        assert [each["status"]["phase"] for each in it.store.list(kinds.POD_KIND)] == ["Running"]


async def test_a_pod_without_a_job_gets_an_event_that_it_cannot_be_paused():
    async with world() as it, operator(it):
        it.budget(hours="0.1", action="Pause", grace=10)
        it.pod("lone", 1)
        await passing(600)
        assert it.phase("lone") == "Running"
        (message,) = it.told("lone", "CannotPause")
        assert "has no controller" in message
        assert it.told("team-a", "CannotPause") == [message]
        assert "lastEnforcementAt" not in it.status()


PAUSED_BY, PAUSED_AT = "budget.zxuhan.dev/paused-by", "budget.zxuhan.dev/paused-at"


async def test_pods_are_asked_to_pause_as_the_predecessor_did_until_their_budget_has_headroom():
    async with world() as it, operator(it):
        it.budget(hours="0.1", window=1, action="Pause", grace=10)
        it.pod("lone", 1, runs="20m")
        it.pod("other", 1, labels={"team": "b"})
        await passing(300)
        assert PAUSED_BY not in it.the_pod("lone")["metadata"]["annotations"]
        await passing(100)
        stamped = it.the_pod("lone")["metadata"]["annotations"]
        assert stamped[PAUSED_BY] == "team-a"
        assert 10 < it.seconds(stamped[PAUSED_AT]) < 40
        version = it.the_pod("lone")["metadata"]["resourceVersion"]
        await passing(100)
        assert it.the_pod("lone")["metadata"]["resourceVersion"] == version, "stamped once"
        assert PAUSED_BY not in it.the_pod("other")["metadata"]["annotations"]
        it.change(it.kind, "team-a", lambda each: each["spec"]["quota"].update(gpuHours="1"), "default")
        await passing(10)
        assert {PAUSED_BY, PAUSED_AT}.isdisjoint(it.the_pod("lone")["metadata"]["annotations"])


async def test_a_pod_that_two_budgets_ask_to_pause_is_asked_once_and_by_the_other_when_the_first_has_headroom():
    async with world() as it, operator(it):
        it.budget("first", hours="0.1", action="Pause", grace=0)
        it.budget("second", hours="0.12", action="Pause", grace=0)
        it.pod("lone", 1)
        await passing(600)
        pod = it.the_pod("lone")
        assert pod["metadata"]["annotations"][PAUSED_BY] == "first"
        await passing(100)
        assert it.the_pod("lone")["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"], "asked once"
        it.change(it.kind, "first", lambda each: each["spec"]["quota"].update(gpuHours="1"), "default")
        await passing(20)
        assert it.the_pod("lone")["metadata"]["annotations"][PAUSED_BY] == "second"


@pytest.mark.parametrize("end", ["AlertOnly", "deleted", "labels"])
async def test_who_is_asked_to_pause_is_let_go_when_the_budget_no_longer_pauses_it(end):
    async with world() as it, operator(it):
        it.budget(hours="0.1", action="Pause", grace=0)
        it.pod("lone", 1)
        await passing(450)
        assert it.the_pod("lone")["metadata"]["annotations"][PAUSED_BY] == "team-a"
        if end == "AlertOnly":
            it.change(it.kind, "team-a", lambda each: each["spec"]["enforcement"].update(action=end), "default")
        elif end == "deleted":
            it.store.delete(it.kind, "default", "team-a")
        else:
            it.change(kinds.POD_KIND, "lone", lambda each: each["metadata"]["labels"].update(team="b"), "default")
        await passing(10)
        assert PAUSED_BY not in it.the_pod("lone")["metadata"]["annotations"]


async def test_a_job_is_resumed_when_its_budget_is_deleted():
    async with world() as it, operator(it):
        it.budget(hours="0.1", action="Pause", grace=0)
        it.job("work", 1)
        await passing(450)
        assert _job(it)["spec"]["suspend"] is True
        it.store.delete(it.kind, "default", "team-a")
        await passing(10)
        assert not _job(it)["spec"].get("suspend")


async def test_jobs_are_resumed_when_their_budget_is_changed_to_alert_only():
    async with world() as it, operator(it):
        it.budget(hours="0.1", action="Pause", grace=0)
        it.job("work", 1)
        await passing(450)
        assert _job(it)["spec"]["suspend"] is True
        it.change(it.kind, "team-a", lambda each: each["spec"]["enforcement"].update(action="AlertOnly"), "default")
        await passing(30)
        assert not _job(it)["spec"].get("suspend")
        assert "AlertOnly" in it.told("work", "Resumed")[0]


async def test_a_job_that_was_resumed_by_hand_may_be_paused_again():
    async with world() as it, operator(it):
        it.budget(hours="0.1", action="Pause", grace=0)
        it.job("work", 1)
        await passing(450)
        it.change(kinds.JOB_KIND, "work", lambda each: each["spec"].update(suspend=False), "default")
        await passing(60)
        assert _job(it)["spec"]["suspend"] is True
        assert len(it.told("work", "Paused")) == 2


async def test_a_job_that_was_resumed_and_then_suspended_by_hand_stays_suspended():
    async with world() as it, operator(it):
        it.budget(hours="0.1", window=1, action="Pause", grace=0)
        it.job("work", 1)
        await passing(450)
        assert _job(it)["spec"]["suspend"] is True
        it.change(kinds.NODE_KIND, "n1", lambda each: each["spec"].update(unschedulable=True))
        it.change(kinds.JOB_KIND, "work", lambda each: each["spec"].update(suspend=False), "default")
        await passing(5)
        marked = _job(it)["metadata"]
        assert "forebay.dev/paused" not in marked.get("labels", {})
        assert not any("paused" in each for each in marked.get("annotations", {}))
        it.change(kinds.JOB_KIND, "work", lambda each: each["spec"].update(suspend=True), "default")
        await passing(4000)
        assert it.condition("QuotaExceeded")[0] == "False"
        assert _job(it)["spec"]["suspend"] is True


@pytest.mark.parametrize("where", [{}, {"nodeName": "n1"}], ids=["scheduled", "names its node"])
async def test_a_deployment_that_is_not_held_at_the_gate_is_not_evicted_over_and_over(where):
    """The cluster of this test stores admission policies and does not run them, as one that serves none."""
    async with world() as it, operator(it):
        it.budget(hours="0.1", grace=0)
        container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        template = {
            "metadata": {"labels": {"team": "a"}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **where},
        }
        spec = {"replicas": 2, "selector": {"matchLabels": {"team": "a"}}, "template": template}
        it.store.create(kinds.REPLICA_SET_KIND, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        await passing(180)
        assert it.events("Evicted") == []
        await passing(3600)
        # Two replicas, and their replacements with a growing delay: 10 s, 20 s, ... 5 minutes.
        evicted = {name for kind, name, _ in it.events("Evicted") if kind == "Pod"}
        assert 10 < len(evicted) < 40


async def test_where_nothing_holds_new_pods_a_job_waits_instead_of_failing_and_the_budget_says_so():
    async with world() as it, operator(it):
        it.budget(hours="0.1", window=1, grace=0)
        it.job("work", 1)
        await passing(450)
        assert _job(it)["spec"]["suspend"] is True
        assert not [each for each in _job(it)["status"].get("conditions", ()) if each["type"] == "Failed"]
        assert it.events("Evicted") == []
        assert it.condition("NewPodsHeld") == ("False", "GateMissing")
        (exceeded,) = (each for each in it.status()["conditions"] if each["type"] == "QuotaExceeded")
        assert "new pods are not held (see the condition NewPodsHeld)" in exceeded["message"]
        assert "new pods wait" not in exceeded["message"]

        for each in admission_policies():
            it.store.create(it.store.kinds.named(each["apiVersion"], each["kind"]), each)
        await passing(3600)
        assert it.condition("NewPodsHeld") == ("True", "GateInstalled")
        assert it.told("work", "Resumed")


async def test_a_cluster_with_the_policies_has_no_condition_about_them():
    async with world() as it:
        for each in admission_policies():
            it.store.create(it.store.kinds.named(each["apiVersion"], each["kind"]), each)
        async with operator(it):
            it.budget()
            await passing(60)
            assert it.condition("NewPodsHeld") is None
