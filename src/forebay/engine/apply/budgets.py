"""Applies decisions about budgets, their pods and Jobs. An action counts only after the API server accepted it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from forebay.api.gpu_workload_budget import EnforcementAction, GPUWorkloadBudget
from forebay.api.names import (
    BUDGET_GATE,
    PAUSE_REQUESTED_AT_ANNOTATION,
    PAUSE_REQUESTED_BY_ANNOTATION,
    PAUSED_AT_ANNOTATION,
    PAUSED_BY_ANNOTATION,
    PAUSED_LABEL,
    PAUSED_RATE_ANNOTATION,
    USAGE_FINALIZER,
)
from forebay.api.parts import Condition, Truth
from forebay.budgets.admission import Release
from forebay.budgets.budget_accounts import BudgetKey
from forebay.budgets.enforcement import CONDITION, Alert, CannotPause, Evict, Pause, RemovePauseMarks, Resume
from forebay.budgets.usage import thousandths
from forebay.engine.apply.events import Events
from forebay.engine.apply.pending_enforcement import REFUSED_FOR, PendingEnforcement
from forebay.engine.apply.records import StatusNotStored
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from forebay.kube.eviction import evict_pod, is_refusal
from forebay.kube.jobs import JOBS
from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
from forebay.kube.pod_indexes import BY_OWNER
from forebay.kube.pods import PODS
from forebay.kube.types import reference
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.net.transport import NeverSent, TransportError
from forebay.reconcile.decisions import (
    AddUsageFinalizer,
    BudgetDecision,
    PodEvent,
    RemovePauseAnnotations,
    RemoveUsageFinalizer,
    ReportBudget,
)

#: Metadata without what marks a Job as paused.
_UNMARKED: Final[Mapping[str, Any]] = {
    "labels": {PAUSED_LABEL: None},
    "annotations": dict.fromkeys((PAUSED_BY_ANNOTATION, PAUSED_AT_ANNOTATION, PAUSED_RATE_ANNOTATION)),
}


class BudgetActions:
    """Applies `BudgetDecision`s, one function for each type."""

    def __init__(
        self,
        client: Client,
        views: Views,
        events: Events,
        actions: PendingEnforcement,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._views = views
        self._events = events
        self._actions = actions
        self._clock = clock

    async def act(self, decision: BudgetDecision) -> None:
        match decision:
            case ReportBudget():
                await self._report(decision)
            case Evict():
                with self._noted_if_unknown(decision.budget):
                    await self._evict(decision)
            case Pause():
                with self._noted_if_unknown(decision.budget):
                    await self._pause(decision)
            case Resume():
                await self._resume(decision)
            case RemovePauseMarks():
                await self._remove_pause_marks(decision)
            case CannotPause():
                await self._cannot_pause(decision)
            case Alert():
                self._actions.alerted(decision.budget, self._clock())
            case Release():
                await self._release(decision)
            case AddUsageFinalizer():
                await self._finalizers(decision.pod, (*decision.pod.finalizers, USAGE_FINALIZER))
            case RemoveUsageFinalizer():
                others = (each for each in decision.pod.finalizers if each != USAGE_FINALIZER)
                await self._finalizers(decision.pod, tuple(others))
            case RemovePauseAnnotations():
                await self._annotate(decision.pod, dict.fromkeys(_requested(("", ""), self._clock())))

    @contextmanager
    def _noted_if_unknown(self, budget: BudgetKey) -> Iterator[None]:
        """Notes an action whose outcome nobody knows: what it has stopped is waited for before another pod is."""
        try:
            yield
        except (TransportError, ApiError) as error:
            refused = isinstance(error, ApiError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            if not refused and not isinstance(error, NeverSent):
                self._actions.may_have_acted(budget, self._clock())
            raise

    async def _report(self, decision: ReportBudget) -> None:
        key = (decision.namespace, decision.name)
        before = self._views.budgets.get(key)
        if before is None or before.resource_version != decision.resource_version:
            return
        # Labels first: from then on the admission policy gates new pods, and readers of the status can rely on that.
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
        if after.resource_version == labelled.resource_version and _conditions(after) != decision.conditions:
            raise StatusNotStored(
                f"GPUWorkloadBudget {'/'.join(key)}: the API server dropped every field written to the status. The "
                "CustomResourceDefinition is of another release than this Forebay: apply the one of this release"
            )
        self._condition_events(before, after)
        if decision.forecast_warning is not None:
            about = reference(GPU_WORKLOAD_BUDGETS, after)
            self._events.about(about, Reason.QUOTA_FORECAST, decision.forecast_warning, warning=True)

    async def _patch(
        self, decision: ReportBudget, change: dict[str, Any], subresource: str | None
    ) -> GPUWorkloadBudget:
        changed = await self._client.patch(
            GPU_WORKLOAD_BUDGETS, decision.name, writes.merge_patch(change), decision.namespace, subresource=subresource
        )
        self._views.budgets.observe(changed)
        return changed

    def _condition_events(self, before: GPUWorkloadBudget, after: GPUWorkloadBudget) -> None:
        """Emit an event for each changed condition; WithinBudget only after the quota was exceeded."""
        earlier = {each.type: each for each in _conditions(before)}
        about = reference(GPU_WORKLOAD_BUDGETS, after)
        for each in _conditions(after):
            was = earlier.get(each.type)
            if was is not None and (was.status, was.reason) == (each.status, each.reason):
                continue
            if each.type == CONDITION and each.status is Truth.TRUE:
                self._events.about(about, Reason.QUOTA_EXCEEDED, each.message, warning=True)
            elif each.type == CONDITION and was is not None:
                self._events.about(about, Reason.WITHIN_BUDGET, each.message)
            elif each.type == "Degraded" and each.status is Truth.TRUE:
                self._events.about(about, Reason(each.reason), each.message, warning=True)

    async def _evict(self, decision: Evict) -> None:
        pod = decision.pod
        try:
            await evict_pod(self._client, pod.name, pod.namespace, uid=pod.uid)
        except ApiError as error:
            if not is_refusal(error):
                raise
            self._actions.refused(pod, self._clock())
            sentence = _refused(f"Eviction of pod {pod.name}", decision.budget, error.message)
            self._pod_and_budget_event(decision.budget, pod, Reason.EVICTION_BLOCKED, sentence)
            return
        self._actions.done(decision.budget, pod, EnforcementAction.EVICT, self._clock())
        self._pod_and_budget_event(decision.budget, pod, decision.reason, decision.sentence)

    async def _pause(self, decision: Pause) -> None:
        pod, job, now = decision.pod, decision.job, self._clock()
        annotations = {
            PAUSED_BY_ANNOTATION: decision.budget[1],
            PAUSED_AT_ANNOTATION: now.isoformat(timespec="seconds"),
        }
        rate = {PAUSED_RATE_ANNOTATION: str(self._rate(decision))}
        metadata = {"uid": job.uid, "labels": {PAUSED_LABEL: "true"}, "annotations": {**annotations, **rate}}
        patch = writes.merge_patch({"metadata": metadata, "spec": {"suspend": True}})
        try:
            suspended = await self._client.patch(JOBS, job.name, patch, pod.namespace)
        except (NotFound, Conflict, Forbidden, Invalid) as error:
            self._actions.refused(pod, now)
            sentence = _refused(f"Suspension of Job {job.name}", decision.budget, str(error))
            self._pod_and_budget_event(decision.budget, pod, Reason.CANNOT_PAUSE, sentence)
            return
        self._views.paused_jobs.observe(suspended)
        self._actions.done(decision.budget, pod, EnforcementAction.PAUSE, now)
        self._pod_and_budget_event(decision.budget, pod, decision.reason, decision.sentence)
        self._events.about(reference(JOBS, suspended), decision.reason, decision.sentence, warning=True)
        await self._annotate(pod, {**annotations, **_requested(decision.budget, now)})

    async def _annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        try:
            patch = writes.merge_patch({"metadata": {"uid": pod.uid, "annotations": annotations}})
            self._views.pods.observe(await self._client.patch(PODS, pod.name, patch, pod.namespace))
        except (NotFound, Conflict):
            return  # the pod is deleted already

    def _rate(self, decision: Pause) -> int:
        """Request of all pods of the Job together, in thousandths."""
        budget = self._views.budgets.get(decision.budget)
        pods = self._views.pods.by(BY_OWNER, decision.job.uid)
        if budget is None or not pods:
            return 1000
        return sum(thousandths(pod.shape, budget.spec.gpu_resource_name) for pod in pods if not pod.phase.ended) or 1000

    async def _resume(self, decision: Resume) -> None:
        metadata = {"uid": decision.job.uid, **_UNMARKED}
        patch = writes.merge_patch({"metadata": metadata, "spec": {"suspend": False}})
        job = await self._client.patch(JOBS, decision.job.name, patch, decision.namespace)
        # The Job stays in the view until the watch removes it, but no longer as a suspended one.
        self._views.paused_jobs.observe(job)
        self._actions.resumed(decision.budget, self._clock())
        self._events.about(reference(JOBS, job), decision.reason, decision.sentence)

    async def _remove_pause_marks(self, decision: RemovePauseMarks) -> None:
        metadata = {"uid": decision.job.uid, "resourceVersion": decision.resource_version, **_UNMARKED}
        patch = writes.merge_patch({"metadata": metadata})
        try:
            job = await self._client.patch(JOBS, decision.job.name, patch, decision.namespace)
        except (NotFound, Conflict):
            return  # gone, or changed since: the next tick looks at it as it is then
        self._views.paused_jobs.observe(job)

    async def _release(self, decision: Release) -> None:
        pod = decision.pod
        gates = [{"$patch": "delete", "name": BUDGET_GATE}]
        patch = writes.strategic_merge_patch({"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}})
        self._views.pods.observe(await self._client.patch(PODS, pod.name, patch, pod.namespace))
        self._events.about(reference(PODS, pod), decision.reason, decision.sentence)

    async def _finalizers(self, pod: Pod, finalizers: tuple[str, ...]) -> None:
        metadata = {"uid": pod.uid, "resourceVersion": str(pod.resource_version), "finalizers": finalizers or None}
        changed = await self._client.patch(PODS, pod.name, writes.merge_patch({"metadata": metadata}), pod.namespace)
        self._views.pods.observe(changed)

    async def _cannot_pause(self, decision: CannotPause) -> None:
        event = PodEvent(pod=decision.pod, reason=decision.reason, sentence=decision.sentence, warning=True)
        if self._events.pod_event(event):
            self._budget_event(decision.budget, decision.reason, decision.sentence)
        # One request is enough: of two budgets, neither takes the other's place. Once the first one no longer needs it,
        # `RemovePauseAnnotations` ends the request, and the other may ask.
        if PAUSE_REQUESTED_BY_ANNOTATION not in decision.pod.annotations:
            await self._annotate(decision.pod, _requested(decision.budget, self._clock()))

    def _pod_and_budget_event(self, budget: BudgetKey, pod: Pod, reason: Reason, sentence: str) -> None:
        self._events.about(reference(PODS, pod), reason, sentence, warning=True)
        self._budget_event(budget, reason, sentence)

    def _budget_event(self, key: BudgetKey, reason: Reason, sentence: str) -> None:
        budget = self._views.budgets.get(key)
        if budget is not None:
            self._events.about(reference(GPU_WORKLOAD_BUDGETS, budget), reason, sentence, warning=True)


def _refused(action: str, budget: BudgetKey, why: str) -> str:
    return (
        f"{action} for GPUWorkloadBudget {budget[1]} refused: {why.removesuffix('.')}. Forebay tries other pods first, "
        f"and this one again in {human(REFUSED_FOR)}."
    )


def _requested(budget: BudgetKey, at: datetime) -> dict[str, str]:
    """Annotations that ask whoever runs the pod to pause."""
    return {
        PAUSE_REQUESTED_BY_ANNOTATION: budget[1],
        PAUSE_REQUESTED_AT_ANNOTATION: at.isoformat(timespec="seconds"),
    }


def _guard(budget: GPUWorkloadBudget) -> dict[str, str]:
    """Metadata that makes a patch fail if the budget was changed or replaced meanwhile."""
    return {"uid": budget.uid, "resourceVersion": str(budget.resource_version)}


def _conditions(budget: GPUWorkloadBudget) -> tuple[Condition, ...]:
    return () if budget.status is None else budget.status.conditions
