"""Remote pods beside the reconcile loop: which pods may leave, the virtual node, exit codes and statuses.

Nothing of it runs, and no Job is watched, before some provider offers remote containers: a cluster without one pays
nothing for them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Final, NamedTuple, NoReturn, cast

import structlog

from forebay.api.gpu_instance import GPUInstance
from forebay.api.names import MANAGED_MARK, VIRTUAL_NODE
from forebay.demand.planned_pods import live_containers, runs_remotely
from forebay.engine.boundary import LoggedBugs
from forebay.engine.counts import Counts
from forebay.engine.sources.sources import Sources
from forebay.engine.turns import each_in_turn
from forebay.engine.views import Views
from forebay.engine.virtual_node.daemon_pods import DaemonPods
from forebay.engine.virtual_node.exit_reports import ExitReports
from forebay.engine.virtual_node.job_marks import JobMarks
from forebay.engine.virtual_node.log_port import LogPort, PortServer
from forebay.engine.virtual_node.log_tails import LogTails
from forebay.engine.virtual_node.node_keeper import VirtualNodeKeeper
from forebay.engine.virtual_node.pod_containers import WHOLE_PODS, manifest_of
from forebay.engine.virtual_node.pod_statuses import RemotePods
from forebay.engine.virtual_node.remote_logs import RemoteLogs
from forebay.engine.virtual_node.unreadable_logs import unreadable_logs
from forebay.kube.client import Client
from forebay.kube.errors import Forbidden, KubeError, NotFound
from forebay.kube.informer import Informer
from forebay.kube.jobs import JOBS, Job
from forebay.kube.pod_indexes import BY_NODE
from forebay.lifecycle.facts import source_of
from forebay.model.kept import among
from forebay.model.sources import Source
from forebay.model.workloads import Pod
from forebay.net.transport import TransportError
from forebay.offload.departure import MarkedJob, PortablePod
from forebay.offload.marks import is_managed
from forebay.offload.translation import obstacles, pull_secrets
from forebay.offload.virtual_node import LogEndpoint
from forebay.providers.base import RunsContainers
from forebay.reconcile.decisions import PodEvent

log = structlog.get_logger(__name__)

#: Seconds after which everything is looked at again without a change: writes that failed are repeated then.
_ROUND: Final = 10.0
#: Pods that are read in one round: the statuses of running ones must not wait for a crowd of new ones.
_MOST_READS: Final = 50
_MOST_AT_ONCE: Final = 8

_GRANT: Final = "Grant what remote Jobs need: offload.enabled of the chart, or forebay manifests install --offload on."


class Offloading(NamedTuple):
    """What a tick needs to know of pods that may run remotely, or do."""

    portable: Mapping[str, PortablePod]
    stranded: tuple[Pod, ...]
    unread: frozenset[str] = frozenset()
    #: Why no Job can run remotely at all, as a sentence.
    prevented: str | None = None


class _Read(NamedTuple):
    image: str
    obstacles: tuple[str, ...]
    pull_secrets: tuple[str, ...]


class RemoteWork:
    """Runs while this process leads. `look` is called at each tick, and starts it as soon as there is a reason to."""

    def __init__(
        self,
        client: Client,
        server: str,
        views: Views,
        sources: Sources,
        *,
        identity: str,
        still_leader: Callable[[], bool],
        clock: Callable[[], datetime],
        counts: Counts,
        port_server: PortServer | None = None,
        tell: Callable[[PodEvent], object] = lambda _: None,
    ) -> None:
        self._client = client
        self._counts = counts
        self._tell = tell
        self._views = views
        self._sources = sources
        self._still_leader = still_leader
        self._clock = clock
        self._jobs: Informer[Job] = Informer(client.transport, server, JOBS, wake=views.wake)
        self._tails = LogTails(clock)
        self._reports = ExitReports(self._provider_of, clock, self._changed_now, self._tails)
        logs = RemoteLogs(views, self._provider_of, self._tails, lambda: self._reports.reports)
        self._keeper = VirtualNodeKeeper(client, identity, still_leader, clock, self._endpoint)
        opened = self._keeper.wake
        self._port = None if port_server is None else LogPort(client, logs, port_server, clock, opened)
        self._statuses = RemotePods(client, clock)
        self._daemons = DaemonPods(client, views)
        self._job_marks = JobMarks(client, views, self._job_of, clock)
        self._read: dict[str, _Read] = {}
        #: When pods that could not be read are tried again, by the clock of the event loop.
        self._failed: dict[str, float] = {}
        self._wanted: dict[str, Pod] = {}
        self._needed = asyncio.Event()
        self._changed = asyncio.Event()

    def look(self, sources: Iterable[Source], pending: Iterable[Pod], records: Sequence[GPUInstance]) -> Offloading:
        """Pods of marked Jobs, as far as they are read. The next tick knows those that are not yet."""
        if not self._needed.is_set():
            if not (any(map(_offers_containers, sources)) or among(records, runs_remotely)):
                return Offloading({}, ())
            self._needed.set()
        self._changed.set()
        if not self._jobs.synced:
            # Where Jobs cannot be listed at all, their pods are served by nodes meanwhile.
            trying = self._jobs.last_error is None
            if trying:
                return Offloading({}, (), frozenset(pod.uid for pod in pending if _is_of_job(pod)))
            why = f"The operator cannot list Jobs, so none runs remotely: {self._jobs.last_error}. {_GRANT}"
            return Offloading({}, (), prevented=why)
        live = live_containers(records)
        stranded = tuple(
            pod
            for pod in self._views.pods.by(BY_NODE, VIRTUAL_NODE)
            if _was_of_job(pod) and pod.uid not in live and pod.deleted is None and not pod.phase.ended
        )
        jobs = {pod.uid: (pod, job) for pod in (*pending, *stranded) if (job := self._job_of(pod)) is not None}
        self._wanted = {uid: pod for uid, (pod, _) in jobs.items()}
        self._read = {uid: each for uid, each in self._read.items() if uid in jobs}
        portable = {
            uid: PortablePod(job=_marked(job), **read._asdict())
            for uid, (_, job) in jobs.items()
            if (read := self._read.get(uid)) is not None
        }
        return Offloading(portable, stranded, frozenset(jobs.keys() - portable.keys()))

    async def run(self) -> NoReturn:
        await self._needed.wait()
        log.info("remote containers are offered", node=VIRTUAL_NODE)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._jobs)
            stack.push_async_callback(self._reports.close)
            beside = [asyncio.create_task(self._keeper.run(), name="virtual node")]
            if self._port is not None:
                beside.append(asyncio.create_task(self._port.run(), name="port of the virtual node"))
            for task in beside:
                stack.push_async_callback(_ended, task)
            while True:
                self._changed.clear()
                await self._round_or_pause()
                try:
                    async with asyncio.timeout(_ROUND):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    async def _round_or_pause(self) -> None:
        with LoggedBugs("remote pods not looked after", self._counts):
            await self._round()
            return
        await asyncio.sleep(_ROUND)

    async def _round(self) -> None:
        if not self._still_leader() or self._views.error() is not None:
            return
        records = tuple(each for each in self._views.instances.values() if not each.spec.delivers.has_node)
        self._reports.follow(records)
        pods = tuple(self._views.pods.by(BY_NODE, VIRTUAL_NODE))
        self._tails.keep(pod.uid for pod in pods)
        self._tell_unreadable_logs(records)
        # A new leader has all of it to do at once, and none may wait for the others.
        async with asyncio.TaskGroup() as together:
            together.create_task(self._statuses.sync(pods, records, self._reports.reports))
            together.create_task(self._daemons.sync())
            together.create_task(self._read_pods())
            together.create_task(self._job_marks.sync(records))

    def _tell_unreadable_logs(self, records: Iterable[GPUInstance]) -> None:
        events = unreadable_logs(
            records,
            self._reports.unreadable,
            lambda namespace, name: self._views.pods.get((namespace, name)),
            self._statuses.reports_exit_code,
            self._clock(),
        )
        for event in events:
            self._tell(event)

    async def _read_pods(self) -> None:
        """Reads whole pods that may leave: informers keep only what planning needs of a pod."""
        now = asyncio.get_running_loop().time()
        self._failed = {uid: retry for uid, retry in self._failed.items() if uid in self._wanted}
        new = [pod for uid, pod in self._wanted.items() if self._failed.get(uid, 0.0) <= now and not self._is_read(uid)]
        if len(new) > _MOST_READS:
            del new[_MOST_READS:]
            self._changed.set()
        await each_in_turn(self._read_pod, new, _MOST_AT_ONCE)

    def _is_read(self, uid: str) -> bool:
        return uid in self._read and uid not in self._failed

    async def _read_pod(self, pod: Pod) -> None:
        before = self._read.get(pod.uid)
        await self._try_to_read(pod)
        if self._read.get(pod.uid) != before:
            self._views.wake.set()

    async def _try_to_read(self, pod: Pod) -> None:
        self._failed[pod.uid] = asyncio.get_running_loop().time() + _ROUND
        try:
            whole = await self._client.get(WHOLE_PODS, pod.name, pod.namespace)
        except NotFound:
            return
        except (KubeError, TransportError) as error:
            log.warning("pod not read", pod=f"{pod.namespace}/{pod.name}", error=str(error))
            # A node may serve it meanwhile. It is read again after a while.
            granted = f" {_GRANT}" if isinstance(error, Forbidden) else ""
            self._read[pod.uid] = _Read("", (f"Forebay could not read the pod: {error}.{granted}",), ())
            return
        if whole.uid == pod.uid:
            manifest, containers = manifest_of(whole), whole.spec.get("containers") or [{}]
            image = containers[0].get("image", "")
            self._read[pod.uid] = _Read(image, obstacles(manifest), pull_secrets(manifest))
            del self._failed[pod.uid]

    def _job_of(self, pod: Pod) -> Job | None:
        if pod.owner is None or not _is_of_job(pod):
            return None
        job = self._jobs.get((pod.namespace, pod.owner.name))
        if job is None or job.uid != pod.owner.uid or not is_managed(job.metadata.labels, job.metadata.annotations):
            return None
        return job

    def _provider_of(self, record: GPUInstance) -> RunsContainers | None:
        key = source_of(record)
        provider = self._sources.provider(key)
        return cast("RunsContainers", provider) if hasattr(provider, "logs") else None

    def _endpoint(self) -> LogEndpoint | None:
        return None if self._port is None else self._port.endpoint()

    def _changed_now(self) -> None:
        self._changed.set()


def _is_of_job(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind == "Job"


def _was_of_job(pod: Pod) -> bool:
    """Whether a Job had the pod when Forebay bound it: one that is deleted without its pods leaves them ownerless."""
    return _is_of_job(pod) or (pod.owner is None and MANAGED_MARK in pod.labels)


def _offers_containers(source: Source) -> bool:
    deliveries = source.capabilities.deliveries
    if all(each.has_node for each in deliveries):
        return False
    return not deliveries[0].has_node or any(not source.delivery_of(each).has_node for each in source.offers or ())


def _marked(job: Job) -> MarkedJob:
    meta = job.metadata
    assert meta.creation_timestamp is not None, "every object of an API server has one"
    return MarkedJob(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid,
        created=meta.creation_timestamp,
        labels=meta.labels,
        annotations=meta.annotations,
        suspended=job.spec.suspend,
        deleted=meta.deletion_timestamp is not None,
    )


async def _ended(task: "asyncio.Task[NoReturn]") -> None:
    task.cancel()
    await asyncio.wait({task})
