"""Statuses of remote pods, and the end of pods whose container is proven gone: what their kubelet would do."""

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import MANAGED_MARK
from forebay.engine.turns import each_in_turn
from forebay.engine.virtual_node.pod_containers import WHOLE_PODS, WholePod
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, KubeError, NotFound
from forebay.kube.own_kinds import GPU_INSTANCES
from forebay.model.quantities import UsdPerHour
from forebay.model.workloads import Phase, Pod
from forebay.net.transport import TransportError
from forebay.offload.binding import pod_marks
from forebay.offload.pod_status import pod_status, unsupported_status
from forebay.offload.record_progress import ReportedExit, remote_container, without_record

log = structlog.get_logger(__name__)

_NOTHING: Final = ReportedExit()
#: Pods written to at the same time.
_MOST_AT_ONCE: Final = 8


class _Known(msgspec.Struct, frozen=True):
    """What does not change of a bound pod."""

    #: Images of its containers, by name.
    images: Mapping[str, str]
    bound: datetime
    #: Whether a shell around its command reports the exit code.
    has_command: bool = False


class RemotePods:
    """Writes statuses of pods on the virtual node, and deletes pods once it is proven that nothing runs for them."""

    def __init__(self, client: Client, clock: Callable[[], datetime]) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[str, _Known] = {}
        #: What was written last, by UID of the pod: the same is not written again.
        self._written: dict[str, bytes] = {}
        #: What that rested on. Objects never change: where they are the same, a thousand pods cost next to nothing.
        self._seen: dict[str, tuple[object, ...]] = {}

    def reports_exit_code(self, uid: str) -> bool:
        """Whether the end of the pod shows in its log, as far as the pod was read."""
        known = self._known.get(uid)
        return known is not None and known.has_command

    async def sync(
        self, pods: Iterable[Pod], records: Iterable[GPUInstance], reports: Mapping[str, ReportedExit]
    ) -> None:
        """One round over all pods of the virtual node. `reports` are by UID of the record.

        A failed write costs only its own pod its turn, until the next round.
        """
        of_pod: dict[str, list[GPUInstance]] = defaultdict(list)
        for record in records:
            for ref in record.spec.pods:
                of_pod[ref.uid].append(record)
        current = tuple(pods)
        rests_on = {
            pod.uid: (pod, *(own := of_pod.get(pod.uid, ())), *(reports.get(each.uid) for each in own))
            for pod in current
        }
        changed = [pod for pod in current if not same_objects(self._seen.get(pod.uid, ()), rests_on[pod.uid])]

        async def sync_pod(pod: Pod) -> None:
            try:
                await self._sync(pod, of_pod.get(pod.uid, []), reports)
                self._seen[pod.uid] = rests_on[pod.uid]
            except (NotFound, Conflict):
                # Gone, or another pod of that name: the informer will show it.
                return
            except (KubeError, TransportError) as error:
                log.warning("remote pod not updated", pod=f"{pod.namespace}/{pod.name}", error=str(error))

        await each_in_turn(sync_pod, changed, _MOST_AT_ONCE)
        here = {pod.uid for pod in current}
        self._known = {uid: each for uid, each in self._known.items() if uid in here}
        self._written = {uid: each for uid, each in self._written.items() if uid in here}
        self._seen = {uid: each for uid, each in self._seen.items() if uid in here}

    async def _sync(self, pod: Pod, records: list[GPUInstance], reports: Mapping[str, ReportedExit]) -> None:
        is_over = pod.deleted is not None and all(each.state is InstanceState.GONE for each in records)
        if await self._may_have_a_record(pod, records):
            return
        if not pod.phase.ended:
            # A Job that replaces failed pods only waits for the phase: without it, it would keep the pod forever.
            await self._write(pod, records, reports)
        if is_over:
            await self._remove(pod)

    async def _may_have_a_record(self, pod: Pod, records: list[GPUInstance]) -> bool:
        """Whether a pod that has run and seems to have no GPUInstance has one that the view does not show yet."""
        if records or not _has_run(pod):
            return False
        return any(
            ref.uid == pod.uid for each in (await self._client.list_all(GPU_INSTANCES)).items for ref in each.spec.pods
        )

    async def _write(self, pod: Pod, records: list[GPUInstance], reports: Mapping[str, ReportedExit]) -> None:
        known = await self._about(pod)
        status, marks = self._wanted(pod, known, records, reports)
        body = msgspec.json.encode((status, marks), order="sorted")
        if self._written.get(pod.uid) == body:
            return
        # The UID is a precondition: another pod of that name has a status of its own.
        if marks:
            patch = writes.merge_patch({"metadata": {"uid": pod.uid, **marks}})
            await self._client.patch(WHOLE_PODS, pod.name, patch, pod.namespace)
        patch = writes.strategic_merge_patch({"metadata": {"uid": pod.uid}, "status": status})
        await self._client.patch(WHOLE_PODS, pod.name, patch, pod.namespace, subresource="status")
        self._written[pod.uid] = body

    def _wanted(
        self, pod: Pod, known: _Known, records: list[GPUInstance], reports: Mapping[str, ReportedExit]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Status and marks of the pod, by what is known now."""
        # One that Forebay has bound waits, perhaps for longer than the records of its first attempts are kept.
        if not records and pod.deleted is None and MANAGED_MARK not in pod.labels:
            return unsupported_status(known.images, known.bound), {}
        name, image = next(iter(known.images.items()))
        if not records and _has_run(pod):
            return pod_status(without_record(name, image, known.bound), known.bound, self._clock()), {}
        report = next((reports[each.uid] for each in records if each.uid in reports), _NOTHING)
        remote = remote_container(
            records, name, image, report, has_command=known.has_command, deleted=pod.deleted is not None
        )
        price = next((found for each in records if (found := price_of(each, remote.id)) is not None), None)
        marks = pod_marks(remote.id, UsdPerHour(str(price)) if price is not None else None) if records else {}
        return pod_status(remote, known.bound, self._clock()), marks.get("metadata", {})

    async def _about(self, pod: Pod) -> _Known:
        known = self._known.get(pod.uid)
        if known is None:
            whole = await self._client.get(WHOLE_PODS, pod.name, pod.namespace)
            if whole.uid != pod.uid:
                raise Conflict(f"pod {pod.name} is another one by now", status=409)
            containers = whole.spec.get("containers", ())
            images = {each["name"]: each.get("image", "") for each in containers}
            has_command = any(each.get("command") for each in containers)
            known = self._known[pod.uid] = _Known(images, bound_at(whole) or pod.created, has_command)
        return known

    async def _remove(self, pod: Pod) -> None:
        """Deletes the object of a pod that was deleted, now that nothing runs for it any more."""
        await self._client.delete(WHOLE_PODS, pod.name, pod.namespace, uid=pod.uid, grace_seconds=0)


def _has_run(pod: Pod) -> bool:
    """Whether Forebay has written of a pod that its container runs."""
    return pod.phase is Phase.RUNNING and pod.deleted is None and MANAGED_MARK in pod.labels


def same_objects(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))


def price_of(record: GPUInstance, instance_id: str | None) -> str | int | None:
    """Price of the record, if it is the one of that instance."""
    status = record.status
    if status is None or instance_id is None or status.instance_id != instance_id:
        return None
    return status.hourly_price or record.spec.hourly_price


def bound_at(pod: WholePod) -> datetime | None:
    """When the scheduler, or Forebay, bound the pod, as its condition says; None where it does not say."""
    for each in pod.status.get("conditions", ()):
        if each.get("type") == "PodScheduled" and each.get("status") == "True" and each.get("lastTransitionTime"):
            return datetime.fromisoformat(each["lastTransitionTime"])
    return None
