"""Decisions about budgets as the API server gets them: what is written, what is told, and what a refusal leads to."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.api.parts import Condition, Truth
from forebay.budgets.admission import Release
from forebay.budgets.enforcement import Alert, CannotPause, Evict, Pause, Resume
from forebay.embedded.api.kinds import EVENT_KIND, JOB_KIND, POD_KIND
from forebay.embedded.controllers.nodes import register_node
from forebay.engine.apply.budgets import BudgetActions
from forebay.engine.apply.events import Events
from forebay.engine.apply.pending_enforcement import PendingEnforcement
from forebay.engine.apply.records import StatusNotStored
from forebay.kube.errors import ApiError
from forebay.kube.events import EventRecorder
from forebay.model.reasons import Reason
from forebay.model.workloads import Owner
from forebay.net.clock import now
from forebay.net.transport import TransportError
from forebay.reconcile.decisions import AddUsageFinalizer, RemovePauseAnnotations, RemoveUsageFinalizer, ReportBudget
from tests.engine.views_world import watched_cluster
from tests.net.faults import Answer, LoseAnswer, Reset

QUOTA = ("default", "quota")
MARK = "forebay.dev/exceeded"


class Acted:
    def __init__(self, watched, recorder):
        self.watched, self.pending = watched, PendingEnforcement()
        events = Events(recorder, watched.views)
        self.actions = BudgetActions(watched.client, watched.views, events, self.pending, now)
        self.kind = watched.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        register_node(watched.store, "n1", allocatable={"pods": 10, "nvidia.com/gpu": 8}, labels={}, taints=[])
        spec = {"selector": {"matchLabels": {"team": "a"}}, "quota": {"gpuHours": "1", "windowHours": 24}}
        spec["enforcement"] = {"action": "Evict"}
        watched.store.create(self.kind, {"metadata": {"name": "quota", "namespace": "default"}, "spec": spec})

    async def pod(self, name="train", **spec):
        self.watched.pod(name, **spec)
        await asyncio.sleep(1)
        return self.watched.views.pods.get(("default", name))

    def job(self, gpus=2):
        container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        return self.watched.store.create(JOB_KIND, {"metadata": {"name": "work", "namespace": "default"}, "spec": spec})

    def stored(self, kind, name):
        return self.watched.store.find(kind, "default", name)

    async def told(self):
        """Object, type and reason of each event."""
        await asyncio.sleep(2)
        return {
            ((each.get("regarding") or each["involvedObject"])["name"], each["type"], each["reason"])
            for each in self.watched.store.list(EVENT_KIND)
            if each["reason"] in set(Reason)
        }

    async def notes(self):
        await asyncio.sleep(2)
        return [each.get("note") or each["message"] for each in self.watched.store.list(EVENT_KIND)]

    async def report(self, *conditions, at=None, **fields):
        await asyncio.sleep(1)
        budget = self.watched.views.budgets.get(QUOTA)
        known = {"resource_version": budget.resource_version, "figures": {"trackedPods": 3}, "labels": {}}
        await self.actions.act(
            ReportBudget(
                namespace="default",
                name="quota",
                uid=budget.uid,
                generation=1,
                conditions=tuple(
                    Condition(type=kind, status=truth, reason=reason, message="m", last_transition_time=at or now())
                    for kind, truth, reason in conditions
                ),
                reason=Reason.QUOTA_EXCEEDED,
                sentence="s",
                **{**known, **fields},
            )
        )
        return self.stored(self.kind, "quota")


@asynccontextmanager
async def acted():
    async with watched_cluster() as watched, EventRecorder(watched.client, instance="one") as recorder:
        yield Acted(watched, recorder)


FULL, FREE = ("QuotaExceeded", Truth.TRUE, "QuotaReached"), ("QuotaExceeded", Truth.FALSE, "BelowQuota")


async def test_a_budget_gets_its_label_its_status_and_an_event_when_its_quota_is_used_up_and_when_it_is_not_any_more():
    async with acted() as it:
        fresh = await it.report(FREE)
        assert fresh["status"]["trackedPods"] == 3
        assert it.watched.views.budgets.get(QUOTA).status.tracked_pods == 3, "before the watch brings it"
        assert await it.told() == set(), "a new budget that has room is no news"
        full = await it.report(FULL, labels={MARK: "true"})
        assert full["metadata"]["labels"][MARK] == "true"
        assert await it.told() == {("quota", "Warning", "QuotaExceeded")}
        both = await it.report(FULL, labels={MARK: "true", f"{MARK}-twice": "true"})
        assert both["metadata"]["labels"] == {MARK: "true", f"{MARK}-twice": "true"}
        at = now()
        once, twice = [await it.report(FULL, labels={MARK: "true"}, at=at) for _ in range(2)]
        assert twice["metadata"]["resourceVersion"] == once["metadata"]["resourceVersion"], "nothing is new"
        again = await it.report(FULL, labels={MARK: None})
        assert MARK not in again["metadata"].get("labels", {})
        await it.report(FREE)
        assert ("quota", "Normal", "WithinBudget") in await it.told()


async def test_a_budget_that_changed_meanwhile_is_not_written_and_trouble_and_forecasts_are_warnings():
    async with acted() as it:
        old = await it.report(FREE, resource_version=1)
        assert "status" not in old or "trackedPods" not in old["status"]
        await it.report(("Degraded", Truth.TRUE, "InvalidSelector"), forecast_warning="Used up at noon.")
        assert await it.told() == {("quota", "Warning", "InvalidSelector"), ("quota", "Warning", "QuotaForecast")}
        await it.report(("Degraded", Truth.FALSE, "Ready"))
        await it.report(("Degraded", Truth.FALSE, "Ready"), ("Accounted", Truth.TRUE, "Exact"))
        assert len(await it.told()) == 2, "its end is no event, nor is another condition"
        await it.report(("Degraded", Truth.FALSE, "Ready"), FULL)
        assert ("quota", "Warning", "QuotaExceeded") in await it.told()


async def test_a_job_that_is_paused_for_a_budget_that_is_gone_counts_as_one_gpu():
    async with acted() as it:
        pod, job = await it.pod(), it.job()
        owner = Owner("Job", "work", job["metadata"]["uid"])
        gone = ("default", "gone")
        await asyncio.sleep(2)
        await it.actions.act(Pause(pod=pod, job=owner, budget=gone, reason=Reason.PAUSED, sentence="Over quota."))
        assert it.stored(JOB_KIND, "work")["metadata"]["annotations"]["forebay.dev/paused-rate"] == "1000"


async def test_a_status_that_the_api_server_drops_names_the_definition_of_another_release():
    async with acted() as it:
        await it.report(FREE)
        stored = msgspec.json.encode(it.stored(it.kind, "quota"))
        it.watched.faults[:] = [lambda request: Answer(200, body=stored) if "/status" in request.url else None]
        with pytest.raises(StatusNotStored, match="CustomResourceDefinition is of another release"):
            await it.report(FULL)
        it.watched.faults.clear()
        await it.report(FULL)


async def test_an_eviction_counts_when_the_api_server_accepts_it_and_a_refusal_is_told_and_remembered():
    async with acted() as it:
        victim = await it.pod(nodeName="n1")
        decision = Evict(pod=victim, budget=QUOTA, reason=Reason.EVICTED, sentence="Over quota.")
        it.watched.refuse(lambda request: "/eviction" in request.url, 403)
        await it.actions.act(decision)
        assert it.pending.blocked(now()) == {victim.uid}
        assert it.pending.counts == {}
        assert await it.told() == {("train", "Warning", "EvictionBlocked"), ("quota", "Warning", "EvictionBlocked")}
        it.watched.faults.clear()
        await it.actions.act(decision)
        assert it.pending.counts == {(QUOTA, EnforcementAction.EVICT): 1}
        assert ("train", "Warning", "Evicted") in await it.told()


@pytest.mark.parametrize(
    ("fault", "noted"), [(LoseAnswer(), True), (Answer(503), True), (Answer(404), False), (Reset(), False)]
)
async def test_an_action_whose_outcome_nobody_knows_is_noted_as_one_that_may_have_been_taken(fault, noted):
    async with acted() as it:
        victim, began = await it.pod(nodeName="n1"), now()
        it.watched.faults[:] = [lambda request: fault if "/eviction" in request.url else None]
        with pytest.raises((TransportError, ApiError)):
            await it.actions.act(Evict(pod=victim, budget=QUOTA, reason=Reason.EVICTED, sentence="Over quota."))
        assert (it.pending.counts, QUOTA in it.pending.enforced) == ({}, noted)
        assert all(at >= began for at in it.pending.enforced.values())


async def test_a_paused_job_is_marked_and_resumed_without_its_marks():
    async with acted() as it:
        job = it.job()
        await asyncio.sleep(2)
        (made,) = it.watched.store.list(POD_KIND)
        pod = it.watched.views.pods.get(("default", made["metadata"]["name"]))
        owner = Owner("Job", "work", job["metadata"]["uid"])
        await it.actions.act(Pause(pod=pod, job=owner, budget=QUOTA, reason=Reason.PAUSED, sentence="Over quota."))
        paused = it.stored(JOB_KIND, "work")
        marks = {key.rpartition("/")[2]: value for key, value in paused["metadata"]["annotations"].items()}
        assert paused["spec"]["suspend"] is True
        assert (marks["paused-by"], marks["paused-rate"]) == ("quota", "2000"), marks
        assert it.pending.counts == {(QUOTA, EnforcementAction.PAUSE): 1}
        assert [each.spec.suspend for each in it.watched.views.paused_jobs.values()] == [True], "before the watch"
        name = pod.name
        assert await it.told() >= {(each, "Warning", "Paused") for each in ("work", name, "quota")}
        await it.actions.act(
            Resume(namespace="default", job=owner, budget=QUOTA, reason=Reason.RESUMED, sentence="Room again.")
        )
        resumed = it.stored(JOB_KIND, "work")
        assert resumed["spec"]["suspend"] is False
        assert not any("paused" in key for key in resumed["metadata"].get("annotations", {}))
        assert not any("paused" in key for key in resumed["metadata"].get("labels", {}))
        assert all(not each.spec.suspend for each in it.watched.views.paused_jobs.values())
        assert it.pending.awaiting(now(), it.watched.views.pods) == {QUOTA}
        assert "Room again." in await it.notes()


async def test_a_job_that_is_gone_cannot_be_paused_and_that_is_told():
    async with acted() as it:
        pod = await it.pod()
        gone = Owner("Job", "gone", "u")
        await it.actions.act(Pause(pod=pod, job=gone, budget=QUOTA, reason=Reason.PAUSED, sentence="Over quota."))
        assert it.pending.blocked(now()) == {pod.uid}
        assert {("train", "Warning", "CannotPause"), ("quota", "Warning", "CannotPause")} == await it.told()


async def test_a_pod_of_another_owner_is_asked_to_pause_once_and_the_mark_goes_again():
    async with acted() as it:
        pod = await it.pod()
        cannot = CannotPause(pod=pod, budget=QUOTA, reason=Reason.CANNOT_PAUSE, sentence="No Job.")
        await it.actions.act(cannot)
        assert await it.told() == {("train", "Warning", "CannotPause"), ("quota", "Warning", "CannotPause")}
        asked = it.stored(POD_KIND, "train")["metadata"]
        assert set(asked["annotations"]) == {"budget.zxuhan.dev/paused-at", "budget.zxuhan.dev/paused-by"}
        assert {each[1] for each in await it.told()} == {"Warning"}
        await asyncio.sleep(1)
        known = it.watched.views.pods.get(("default", "train"))
        await it.actions.act(CannotPause(pod=known, budget=QUOTA, reason=Reason.CANNOT_PAUSE, sentence="No Job."))
        assert it.stored(POD_KIND, "train")["metadata"]["resourceVersion"] == asked["resourceVersion"]
        await it.actions.act(RemovePauseAnnotations(pod=known))
        assert not it.stored(POD_KIND, "train")["metadata"].get("annotations")


async def test_a_gate_is_removed_a_finalizer_comes_and_goes_and_an_alert_counts():
    async with acted() as it:
        gates = [{"name": "forebay.dev/budget"}, {"name": "x/other"}]
        held = await it.pod(schedulingGates=gates)
        await it.actions.act(Release(pod=held, reason=Reason.WITHIN_BUDGET, sentence="Room again."))
        assert it.stored(POD_KIND, "train")["spec"]["schedulingGates"] == [{"name": "x/other"}]
        assert await it.told() == {("train", "Normal", "WithinBudget")}
        counted = it.watched.views.pods.get(("default", "train"))
        await it.actions.act(AddUsageFinalizer(pod=counted))
        (finalizer,) = it.stored(POD_KIND, "train")["metadata"]["finalizers"]
        assert finalizer.startswith("forebay.dev/")
        await it.actions.act(RemoveUsageFinalizer(pod=it.watched.views.pods.get(("default", "train"))))
        assert not it.stored(POD_KIND, "train")["metadata"].get("finalizers")
        await it.actions.act(Alert(budget=QUOTA, reason=Reason.QUOTA_EXCEEDED, sentence="s"))
        assert it.pending.counts == {(QUOTA, EnforcementAction.ALERT_ONLY): 1}


async def test_a_paused_job_whose_pods_use_nothing_any_more_counts_as_one_gpu():
    async with acted() as it:
        pod = await it.pod()
        it.job(gpus=0)
        await asyncio.sleep(2)
        owner = Owner("Job", "work", it.stored(JOB_KIND, "work")["metadata"]["uid"])
        await it.actions.act(Pause(pod=pod, job=owner, budget=QUOTA, reason=Reason.PAUSED, sentence="Over quota."))
        assert it.stored(JOB_KIND, "work")["metadata"]["annotations"]["forebay.dev/paused-rate"] == "1000"
