"""Writer of the condition CAPACITY_CONDITION. Beside the loop: writes to thousands of pods must delay nobody."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NoReturn

import structlog

from forebay.api.names import CAPACITY_CONDITION
from forebay.engine.boundary import LoggedBugs
from forebay.engine.counts import Counts
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from forebay.kube.pods import PODS
from forebay.kube.right_of_way import RightOfWay
from forebay.model.workloads import Pod
from forebay.net import clock
from forebay.net.transport import TransportError
from forebay.reconcile.decisions import CapacityChange, ReportCapacity

log = structlog.get_logger(__name__)

#: Seconds between writes, one at a time: 50 pods a second, as fast as kube-scheduler marks them Unschedulable.
_INTERVAL: Final = 0.02
#: Between writes that only refresh a message: 5 pods a second.
_REFRESH_INTERVAL: Final = 0.2
#: Seconds that a reason must last to be written: most pods of a small cluster are placed sooner.
_LASTS: Final = 1.0
#: Pause after a write that failed, in seconds, and until a pod is tried again whose condition was refused.
_PAUSE: Final = 5.0
_REFUSED_FOR: Final = 600.0


class CapacityConditions:
    """Writes the conditions that the latest tick wants, for as long as this process leads."""

    def __init__(
        self, client: Client, views: Views, still_leader: Callable[[], bool], counts: Counts, way: RightOfWay
    ) -> None:
        self._client = client
        self._views = views
        self._still_leader = still_leader
        self._counts = counts
        self._way = way
        self._changes: OrderedDict[str, CapacityChange] = OrderedDict()
        self._refreshes: OrderedDict[str, CapacityChange] = OrderedDict()
        self._wanted = asyncio.Event()
        #: Pods (by UID) whose condition the API server refused, as a policy may, and when (by the loop's clock).
        self._refused: dict[str, float] = {}
        #: Conditions written.
        self.written = 0

    def __len__(self) -> int:
        """Conditions that are not written yet."""
        return len(self._changes) + len(self._refreshes)

    def report(self, report: ReportCapacity) -> None:
        """Replaces what is still to be written: the latest tick knows best."""
        self._changes = OrderedDict((each.pod.uid, each) for each in report.changes)
        self._refreshes = OrderedDict((each.pod.uid, each) for each in report.refreshes)
        wanted = self._changes.keys() | self._refreshes.keys()
        self._refused = {uid: at for uid, at in self._refused.items() if uid in wanted}
        self._wanted.set()

    async def run(self) -> NoReturn:
        while True:
            await self._wanted.wait()
            await asyncio.sleep(_LASTS)
            self._wanted.clear()
            while self._changes or self._refreshes:
                await self._way.give()
                queue, interval = self._changes, _INTERVAL
                if not queue:
                    queue, interval = self._refreshes, _REFRESH_INTERVAL
                if not queue:
                    break  # meanwhile a tick wants none of it any more
                _, change = queue.popitem(last=False)
                pod = self._outdated(change)
                if pod is None:
                    continue
                await asyncio.sleep(interval if await self._try(pod, change) else _PAUSE)

    def _outdated(self, change: CapacityChange) -> Pod | None:
        """The pod as it is now, where its condition still has to be written."""
        pod = self._views.pods.get(change.pod.key)
        if pod is None or pod.uid != change.pod.uid:
            return None
        # One that waits for a remote container is bound already.
        if pod.node is None if change.bound else pod.node != change.pod.node:
            return None
        if pod.capacity == (None if change.bound else change.text) or not self._still_leader():
            return None
        refused = self._refused.get(pod.uid)
        if refused is not None and asyncio.get_running_loop().time() - refused < _REFUSED_FOR:
            return None
        return pod

    async def _try(self, pod: Pod, change: CapacityChange) -> bool:
        """Writes the condition. False where the API server is unwell, or would not have it from us at all."""
        # A bug must not end the task: nobody else would write the other pods' conditions.
        with LoggedBugs("capacity condition not written", self._counts, pod="/".join(pod.key)):
            return await self._write(pod, change)
        return False

    async def _write(self, pod: Pod, change: CapacityChange) -> bool:
        try:
            changed = await self._client.patch(PODS, pod.name, _patch(pod, change), pod.namespace, subresource="status")
        except (NotFound, Conflict):
            return True  # deleted, or another pod of that name
        except (Invalid, Forbidden) as error:
            self._refused[pod.uid] = asyncio.get_running_loop().time()
            log.warning("capacity condition refused", pod="/".join(pod.key), error=str(error))
            return True
        except (KubeError, TransportError) as error:
            log.warning("capacity condition not written", pod="/".join(pod.key), error=str(error))
            return False
        self.written += 1
        self._views.pods.observe(changed)
        return True


def _patch(pod: Pod, change: CapacityChange) -> writes.Patch:
    now = clock.now().isoformat(timespec="seconds").replace("+00:00", "Z")
    condition: dict[str, Any] = {
        "type": CAPACITY_CONDITION,
        "status": "True" if change.bound else "False",
        "reason": str(change.reason),
        "message": change.message,
        "lastProbeTime": now,
    }
    if change.bound or pod.capacity is None:
        condition["lastTransitionTime"] = now
    return writes.strategic_merge_patch({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})
