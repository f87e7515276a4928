"""Decisions about budgets and their pods become requests. What was done is counted only when it is."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from forebay.api.gpu_workload_budget import EnforcementAction, GPUWorkloadBudget
from forebay.api.names import (
    BUDGET_GATE,
    PAUSED_AT_ANNOTATION,
    PAUSED_BY_ANNOTATION,
    PAUSED_LABEL,
    PAUSED_RATE_ANNOTATION,
    USAGE_FINALIZER,
)
from forebay.api.parts import Condition, Truth
from forebay.budgets.accounts import BudgetKey
from forebay.budgets.admission import Release
from forebay.budgets.enforcement import CONDITION, CannotPause, Evict, Pause, Resume
from forebay.budgets.usage import thousandths
from forebay.engine.apply.events import Events
from forebay.engine.apply.pending_enforcement import PendingEnforcement
from forebay.engine.apply.records import StatusNotStored
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Forbidden, Invalid, NotFound, TooManyRequests
from forebay.kube.jobs import JOBS
from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
from forebay.kube.pods import BY_OWNER, PODS
from forebay.kube.subresources import evict
from forebay.kube.types import reference
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.reconcile.decisions import AddUsageFinalizer, BudgetDecision, PodEvent, RemoveUsageFinalizer, ReportBudget


class BudgetActions:
    def __init__(
        self,
        client: Client,
        views: Views,
        announcements: Events,
        actions: PendingEnforcement,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._views = views
        self._announcements = announcements
        self._actions = actions
        self._clock = clock

    async def act(self, decision: BudgetDecision) -> None:
        match decision:
            case ReportBudget():
                await self._report(decision)
            case Evict():
                await self._evict(decision)
            case Pause():
                await self._pause(decision)
            case Resume():
                await self._resume(decision)
            case CannotPause():
                self._tell_both(decision)
            case Release():
                await self._release(decision)
            case AddUsageFinalizer():
                await self._finalizers(decision.pod, (*decision.pod.finalizers, USAGE_FINALIZER))
            case RemoveUsageFinalizer():
                others = (each for each in decision.pod.finalizers if each != USAGE_FINALIZER)
                await self._finalizers(decision.pod, tuple(others))

    async def _report(self, decision: ReportBudget) -> None:
        key = (decision.namespace, decision.name)
        before = self._views.budgets.get(key)
        if before is None or before.resource_version != decision.resource_version:
            return
        # Labels first: from then on new pods are held back, and whoever reads the status can rely on it.
        labelled = before
        if any(before.metadata.labels.get(name) != value for name, value in decision.labels.items()):
            metadata = {**_guard(before), "labels": dict(decision.labels)}
            labelled = await self._patch(decision, {"metadata": metadata}, None)
        status = {
            "observedGeneration": decision.generation,
            "conditions": decision.conditions,
            **decision.figures,
        }
        after = await self._patch(decision, {"metadata": _guard(labelled), "status": status}, "status")
        if after.resource_version == labelled.resource_version and _said(after) != decision.conditions:
            raise StatusNotStored(
                f"GPUWorkloadBudget {'/'.join(key)}: the API server kept nothing of what was written to its status. "
                "Its CustomResourceDefinition is of another release than this Forebay: apply the one of this release"
            )
        self._announce(before, after)
        if decision.forewarned is not None:
            about = reference(GPU_WORKLOAD_BUDGETS, after)
            self._announcements.about(about, Reason.QUOTA_FORECAST, decision.forewarned, warning=True)

    async def _patch(
        self, decision: ReportBudget, change: dict[str, Any], subresource: str | None
    ) -> GPUWorkloadBudget:
        changed = await self._client.patch(
            GPU_WORKLOAD_BUDGETS, decision.name, writes.merge(change), decision.namespace, subresource=subresource
        )
        self._views.budgets.observe(changed)
        return changed

    def _announce(self, before: GPUWorkloadBudget, after: GPUWorkloadBudget) -> None:
        """Where a condition has changed; that a budget is within its quota is news only when it was not."""
        said = {each.type: each for each in _said(before)}
        about = reference(GPU_WORKLOAD_BUDGETS, after)
        for each in _said(after):
            was = said.get(each.type)
            if was is not None and (was.status, was.reason) == (each.status, each.reason):
                continue
            if each.type == CONDITION and each.status is Truth.TRUE:
                self._announcements.about(about, Reason.QUOTA_EXCEEDED, each.message, warning=True)
            elif each.type == CONDITION and was is not None:
                self._announcements.about(about, Reason.WITHIN_BUDGET, each.message)
            elif each.type == "Degraded" and each.status is Truth.TRUE:
                self._announcements.about(about, Reason(each.reason), each.message, warning=True)

    async def _evict(self, decision: Evict) -> None:
        pod = decision.pod
        try:
            await evict(self._client, pod.name, pod.namespace, uid=pod.uid)
        except TooManyRequests as error:
            if not error.by_disruption_budget:
                raise
            self._actions.refused(pod, self._clock())
            sentence = f"Pod {pod.name} is to be evicted for its budget {decision.budget[1]}, but {error.message}"
            self._say(decision.budget, pod, Reason.EVICTION_BLOCKED, sentence)
            return
        self._actions.done(decision.budget, pod, EnforcementAction.EVICT, self._clock())
        self._say(decision.budget, pod, decision.reason, decision.sentence)

    async def _pause(self, decision: Pause) -> None:
        pod, job, now = decision.pod, decision.job, self._clock()
        notes = {PAUSED_BY_ANNOTATION: decision.budget[1], PAUSED_AT_ANNOTATION: now.isoformat(timespec="seconds")}
        rate = {PAUSED_RATE_ANNOTATION: str(self._rate(decision))}
        metadata = {"uid": job.uid, "labels": {PAUSED_LABEL: "true"}, "annotations": {**notes, **rate}}
        patch = writes.merge({"metadata": metadata, "spec": {"suspend": True}})
        try:
            suspended = await self._client.patch(JOBS, job.name, patch, pod.namespace)
        except (NotFound, Conflict, Forbidden, Invalid) as error:
            self._actions.refused(pod, now)
            sentence = f"Job {job.name} cannot be suspended for its budget {decision.budget[1]}: {error}"
            self._say(decision.budget, pod, Reason.CANNOT_PAUSE, sentence)
            return
        self._views.paused_jobs.observe(suspended)
        self._actions.done(decision.budget, pod, EnforcementAction.PAUSE, now)
        self._say(decision.budget, pod, decision.reason, decision.sentence)
        self._announcements.about(reference(JOBS, suspended), decision.reason, decision.sentence, warning=True)
        await self._note(pod, notes)

    async def _note(self, pod: Pod, notes: dict[str, str]) -> None:
        try:
            patch = writes.merge({"metadata": {"uid": pod.uid, "annotations": notes}})
            self._views.pods.observe(await self._client.patch(PODS, pod.name, patch, pod.namespace))
        except (NotFound, Conflict):
            return  # the Job controller was faster

    def _rate(self, decision: Pause) -> int:
        """What the pods of the Job ask for together."""
        budget = self._views.budgets.get(decision.budget)
        pods = self._views.pods.by(BY_OWNER, decision.job.uid)
        if budget is None or not pods:
            return 1000
        return sum(thousandths(pod.shape, budget.spec.gpu_resource_name) for pod in pods if not pod.phase.ended) or 1000

    async def _resume(self, decision: Resume) -> None:
        notes = dict.fromkeys((PAUSED_BY_ANNOTATION, PAUSED_AT_ANNOTATION, PAUSED_RATE_ANNOTATION))
        metadata = {"uid": decision.job.uid, "labels": {PAUSED_LABEL: None}, "annotations": notes}
        patch = writes.merge({"metadata": metadata, "spec": {"suspend": False}})
        job = await self._client.patch(JOBS, decision.job.name, patch, decision.namespace)
        # Still in the view until the watch takes it out; but no longer as one that is suspended.
        self._views.paused_jobs.observe(job)
        self._actions.resumed(decision.budget, self._clock())
        self._announcements.about(reference(JOBS, job), decision.reason, decision.sentence)

    async def _release(self, decision: Release) -> None:
        pod = decision.pod
        gates = [{"$patch": "delete", "name": BUDGET_GATE}]
        patch = writes.strategic({"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}})
        self._views.pods.observe(await self._client.patch(PODS, pod.name, patch, pod.namespace))
        self._announcements.about(reference(PODS, pod), decision.reason, decision.sentence)

    async def _finalizers(self, pod: Pod, finalizers: tuple[str, ...]) -> None:
        metadata = {"uid": pod.uid, "resourceVersion": str(pod.resource_version), "finalizers": finalizers or None}
        changed = await self._client.patch(PODS, pod.name, writes.merge({"metadata": metadata}), pod.namespace)
        self._views.pods.observe(changed)

    def _tell_both(self, decision: CannotPause) -> None:
        told = PodEvent(pod=decision.pod, reason=decision.reason, sentence=decision.sentence, warning=True)
        if self._announcements.pod_event(told):
            self._say_budget(decision.budget, decision.reason, decision.sentence)

    def _say(self, budget: BudgetKey, pod: Pod, reason: Reason, sentence: str) -> None:
        self._announcements.about(reference(PODS, pod), reason, sentence, warning=True)
        self._say_budget(budget, reason, sentence)

    def _say_budget(self, key: BudgetKey, reason: Reason, sentence: str) -> None:
        budget = self._views.budgets.get(key)
        if budget is not None:
            self._announcements.about(reference(GPU_WORKLOAD_BUDGETS, budget), reason, sentence, warning=True)


def _guard(budget: GPUWorkloadBudget) -> dict[str, str]:
    return {"uid": budget.uid, "resourceVersion": str(budget.resource_version)}


def _said(budget: GPUWorkloadBudget) -> tuple[Condition, ...]:
    return () if budget.status is None else budget.status.conditions
