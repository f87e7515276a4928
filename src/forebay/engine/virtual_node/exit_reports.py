"""Exit codes of remote commands, read from the logs of their containers: one stream each, opened once.

The end of each log is kept for those who ask for it when its container is gone (`log_tails`). What was read is kept
in memory only. The next leader reads the logs from their beginning, and finds the same.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import ExitStack, aclosing
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.engine.virtual_node.log_tails import LogTails
from forebay.engine.virtual_node.opening_order import OpeningOrder
from forebay.offload.exit_code import ExitReport, nonce_of, read_report
from forebay.offload.record_progress import ReportedExit
from forebay.providers.base import (
    InstanceGone,
    LogLine,
    ProviderError,
    RateLimited,
    RunsContainers,
    TellsIdleContainers,
)

log = structlog.get_logger(__name__)

#: Seconds before a stream that failed is opened again; doubled with each failure.
_FIRST_RETRY: Final = 2.0
_LAST_RETRY: Final = 60.0
#: Seconds after which a stream has brought what was written before it was opened: what comes later was just written.
_CAUGHT_UP: Final = 5.0
#: A line that was just written is told later than that only by a clock that is behind.
_MOST_LAG: Final = timedelta(seconds=30)
#: Streams for whose answer the provider is waited at the same time.
_MOST_OPENING: Final = 8
_FOLLOWED: Final = frozenset({InstanceState.LAUNCHED, InstanceState.RUNNING, InstanceState.FINISHED})


class _Line(NamedTuple):
    line: LogLine
    #: Whether it was written just now.
    fresh: bool


class UnreadableLog(NamedTuple):
    """A log that cannot be opened, since when, and what the provider said last."""

    since: datetime
    error: str


class ExitReports:
    """Follows the logs of containers while they run. `changed` is called at each report."""

    def __init__(
        self,
        provider_of: Callable[[GPUInstance], RunsContainers | None],
        clock: Callable[[], datetime],
        changed: Callable[[], None],
        tails: LogTails | None = None,
    ) -> None:
        self._provider_of = provider_of
        self._tails = tails or LogTails(clock)
        self._clock = clock
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: A new leader opens them all: a crowd that waits for the provider's rate limit would keep others waiting too.
        self._opening = OpeningOrder(_MOST_OPENING)
        self._reports: dict[str, ReportedExit] = {}
        self._unreadable: dict[str, UnreadableLog] = {}
        #: Logs that are opened again after a pause, and the states of all containers when `follow` was last called.
        self._resting: dict[str, asyncio.Event] = {}
        self._states: dict[str, InstanceState] = {}

    @property
    def reports(self) -> Mapping[str, ReportedExit]:
        """What was reported so far, by UID of the record."""
        return self._reports

    @property
    def unreadable(self) -> Mapping[str, UnreadableLog]:
        """Logs that the provider does not return, by UID of the record."""
        return self._unreadable

    def follow(self, records: Iterable[GPUInstance]) -> None:
        """Follows the containers of these records until all is known of their end, and no others any more."""
        own = {each.uid: each for each in records if not each.spec.delivers.has_node}
        self._reports = {uid: each for uid, each in self._reports.items() if uid in own}
        wanted = {uid: record for uid, record in own.items() if _is_followed(record, self._reports.get(uid))}
        for uid in self._tasks.keys() - wanted.keys():
            self._tasks.pop(uid).cancel()
            self._unreadable.pop(uid, None)
        for uid, record in wanted.items():
            # A provider may have no log of a container before it runs.
            if uid in self._resting and self._states.get(uid) is not record.state:
                self._resting[uid].set()
            if uid not in self._tasks and record.status is not None and record.status.instance_id is not None:
                task = asyncio.create_task(self._read(record, record.status.instance_id), name=f"log of {uid}")
                self._tasks[uid] = task
        self._states = {uid: record.state for uid, record in wanted.items()}

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, record: GPUInstance, instance_id: str) -> None:
        pause = _FIRST_RETRY
        while True:
            provider = self._provider_of(record)
            try:
                if provider is not None and await self._follow_once(record, provider, instance_id):
                    return
            except InstanceGone as error:
                # Not there yet, or no more: what the listing shows decides.
                self._not_read(record.uid, error)
            except ProviderError as error:
                log.warning("log not followed", instance=record.metadata.name, error=str(error))
                if not isinstance(error, RateLimited):
                    self._not_read(record.uid, error)
            pause = _FIRST_RETRY if await self._woken(record.uid, pause) else min(pause * 2, _LAST_RETRY)

    async def _woken(self, uid: str, pause: float) -> bool:
        """Rests for so many seconds; whether the state of the container has changed before."""
        self._resting[uid] = asyncio.Event()
        try:
            async with asyncio.timeout(pause):
                await self._resting[uid].wait()
        except TimeoutError:
            return False
        finally:
            del self._resting[uid]
        return True

    def _not_read(self, uid: str, error: ProviderError) -> None:
        known = self._unreadable.get(uid)
        self._unreadable[uid] = UnreadableLog(self._clock() if known is None else known.since, str(error))

    async def _follow_once(self, record: GPUInstance, provider: RunsContainers, instance_id: str) -> bool:
        """Reads the log from its beginning; whether the command has reported its end."""
        uid = record.uid
        pod = next((ref.uid for ref in record.spec.pods), "")
        nonce = nonce_of(uid)
        found = ReportedExit()
        if (known := self._reports.get(uid)) is not None:
            self._reports[uid] = replace(known, whole=False)
        async with aclosing(self._lines(provider, instance_id, uid, pod)) as lines:
            async for each in lines:
                report = read_report(each.line.text, nonce)
                if report is not None and self._reported(uid, found := _with_report(found, report, each, self._clock)):
                    return True
        # The container has ended. Where it runs again, its log is read again too.
        known = self._reports.get(uid, found)
        self._reports[uid] = replace(known if known.restarts > found.restarts else found, whole=True)
        self._changed()
        return False

    def _reported(self, uid: str, found: ReportedExit) -> bool:
        """Notes what the command has reported; whether that was its end."""
        known = self._reports.get(uid)
        # Of a log that is read again, only what is new counts.
        if known is None or found.restarts > known.restarts or found.exit_code is not None:
            self._reports[uid] = found
            self._changed()
        return found.exit_code is not None

    async def _lines(
        self, provider: RunsContainers, instance_id: str, uid: str, pod: str
    ) -> AsyncGenerator[_Line, None]:
        """The lines of one log, which are kept as well. Few of them are opened at the same time."""
        tells_idle = provider if isinstance(provider, TellsIdleContainers) else None

        async def place() -> ExitStack:
            return await self._opening.place(
                lambda: tells_idle is not None and instance_id in tells_idle.idle_containers()
            )

        time = asyncio.get_running_loop().time
        opening, follows, since = await place(), False, time()

        def opened() -> None:
            nonlocal follows, since
            since = time()
            self._unreadable.pop(uid, None)
            opening.close()
            if not follows:
                self._tails.begin(pod)
            follows = True

        async def turn() -> None:
            nonlocal opening
            opening = await place()

        try:
            async for line in provider.logs(instance_id, follow=True, opened=opened, turn=turn):
                self._tails.add(pod, line)
                yield _Line(line, fresh=time() > since + _CAUGHT_UP)
        finally:
            opening.close()
            self._tails.end(pod)


def _is_followed(record: GPUInstance, known: ReportedExit | None) -> bool:
    """Whether the log may still tell something of the command's end."""
    if record.state not in _FOLLOWED or (known is not None and known.exit_code is not None):
        return False
    # The provider says itself how it ended, or the log was read to its end.
    told = (known is not None and known.whole) or (record.status is not None and record.status.exit_code is not None)
    return record.state is not InstanceState.FINISHED or not told


def _with_report(found: ReportedExit, report: ExitReport, read: _Line, clock: Callable[[], datetime]) -> ReportedExit:
    at = read.line.at
    if report.restarts:
        times = () if at is None else (*found.restarted[-1:], at)
        return replace(found, restarts=found.restarts + 1, last_exit_code=report.exit_code, restarted=times)
    return replace(found, exit_code=report.exit_code, at=_written(at, clock(), fresh=read.fresh))


def _written(told: datetime | None, now: datetime, *, fresh: bool) -> datetime:
    """When a line was written that is read now, whatever the clock of its host is worth: usage is counted until then,
    and the Job controller waits from then on before it replaces a failed pod.
    """
    if told is None or told > now or (fresh and told < now - _MOST_LAG):
        return now
    return told
