"""Annotations of Jobs that run remotely: in which container their latest pod runs, for how much, and what failed."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import structlog

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.engine.views import Views
from forebay.engine.virtual_node.pod_statuses import price_of, same_objects
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, KubeError, NotFound
from forebay.kube.jobs import JOBS, Job
from forebay.lifecycle.cooldown import cooldown_end
from forebay.model.quantities import UsdPerHour
from forebay.model.workloads import Pod
from forebay.net.transport import TransportError
from forebay.offload.binding import job_marks
from forebay.offload.record_progress import did_anything

log = structlog.get_logger(__name__)

#: Time between two changes of one Job. Each makes the next status of its controller a conflict, whose decision (that it
#: has succeeded by its policy, say) is then lost, although its pods are deleted already.
_PAUSE: Final = timedelta(seconds=30)
#: For so long a new Job is not changed: its controller writes its first statuses then, and perhaps the only one.
_NEW: Final = timedelta(seconds=5)
#: So long before its deadline, and until it has ended, a Job is not changed: the pods that its controller deletes then
#: would look as if they had failed, once its own reason is lost.
_BEFORE_DEADLINE: Final = timedelta(seconds=5)


class JobMarks:
    """Keeps the annotations as the predecessor's users know them. What failed is told as long as its records exist."""

    def __init__(
        self, client: Client, views: Views, job_of: Callable[[Pod], Job | None], clock: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._views = views
        self._job_of = job_of
        #: Jobs and records, by UID of the Job, that were found to be in accord.
        self._seen: dict[str, tuple[object, ...]] = {}
        self._clock = clock
        #: When Jobs were last changed, by UID.
        self._changed: dict[str, datetime] = {}

    async def sync(self, records: Iterable[GPUInstance]) -> None:
        of_job: dict[str, tuple[Job, list[GPUInstance]]] = {}
        for record in sorted(records, key=_created):
            ref = record.spec.pods[0] if record.spec.pods else None
            pod = None if ref is None else self._views.pods.get((ref.namespace, ref.name))
            if pod is not None and ref is not None and pod.uid == ref.uid and (job := self._job_of(pod)) is not None:
                of_job.setdefault(job.uid, (job, []))[1].append(record)
        self._seen = {uid: each for uid, each in self._seen.items() if uid in of_job}
        self._changed = {uid: each for uid, each in self._changed.items() if uid in of_job}
        for uid, (job, own) in of_job.items():
            if not same_objects(self._seen.get(uid, ()), (job, *own)):
                await self._mark(job, own)

    async def _mark(self, job: Job, records: list[GPUInstance]) -> None:
        seen = job.metadata.annotations
        changed = {key: value for key, value in _marks(records).items() if seen.get(key) != value}
        if not changed:
            self._seen[job.uid] = (job, *records)
            return
        now = self._clock()
        created = job.metadata.creation_timestamp
        if created is not None and now < created + _NEW:
            return
        if job.deadline is not None and now >= job.deadline - _BEFORE_DEADLINE:
            return
        if job.uid in self._changed and now < self._changed[job.uid] + _PAUSE:
            return
        self._changed[job.uid] = now
        patch = writes.merge_patch({"metadata": {"uid": job.uid, "annotations": changed}})
        try:
            await self._client.patch(JOBS, job.metadata.name, patch, job.metadata.namespace)
        except (NotFound, Conflict):
            return
        except (KubeError, TransportError) as error:
            log.warning("job not marked", job="/".join(job.key), error=str(error))


def _marks(records: list[GPUInstance]) -> dict[str, str | None]:
    """Annotations by the records of one Job, the latest last."""
    launched = [each for each in records if _instance_id(each) is not None]
    latest = _instance_id(launched[-1]) if launched else None
    price = price_of(launched[-1], latest) if launched else None
    failed: list[datetime] = [
        end for each in records if not did_anything(each) and (end := cooldown_end(each)) is not None
    ]
    runs = any(each.state is not InstanceState.GONE for each in launched)
    return job_marks(
        latest,
        None if price is None else UsdPerHour(str(price)),
        failures=len(failed),
        retry_at=None if runs else max(failed, default=None),
    )


def _created(record: GPUInstance) -> tuple[float, str]:
    made = record.metadata.creation_timestamp
    return made.timestamp() if made is not None else 0.0, record.metadata.name


def _instance_id(record: GPUInstance) -> str | None:
    return record.status.instance_id if record.status is not None else None
