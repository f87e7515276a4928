"""Exit codes of remote commands, read from the logs of their containers: one stream each, opened once.

The end of each log is kept for those who ask for it when its container is gone (`log_tails`). What was read is kept
in memory only. The next leader reads the logs from their beginning, and finds the same.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

import structlog
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.engine.virtual_node.log_tails import LogTails
from forebay.offload.exit_code import nonce_of, read_report
from forebay.offload.record_progress import ReportedExit
from forebay.providers.base import InstanceGone, ProviderError, RunsContainers

log = structlog.get_logger(__name__)

#: Seconds before a stream that failed is opened again; doubled with each failure.
_FIRST_RETRY: Final = 2.0
_LAST_RETRY: Final = 60.0
_FOLLOWED: Final = frozenset({InstanceState.LAUNCHED, InstanceState.RUNNING})


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
        self._tails = tails or LogTails()
        self._clock = clock
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reports: dict[str, ReportedExit] = {}

    @property
    def reports(self) -> Mapping[str, ReportedExit]:
        """What was reported so far, by UID of the record."""
        return self._reports

    def follow(self, records: Iterable[GPUInstance]) -> None:
        """Follows the containers of these records, and no others any more."""
        wanted = {each.uid: each for each in records if not each.spec.delivers.has_node}
        for uid in self._tasks.keys() - wanted.keys():
            self._tasks.pop(uid).cancel()
        self._reports = {uid: each for uid, each in self._reports.items() if uid in wanted}
        for uid, record in wanted.items():
            known = self._reports.get(uid)
            if uid in self._tasks or record.state not in _FOLLOWED or (known and known.exit_code is not None):
                continue
            if record.status is not None and record.status.instance_id is not None:
                task = asyncio.create_task(self._read(record, record.status.instance_id), name=f"log of {uid}")
                self._tasks[uid] = task

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
            except InstanceGone:
                # Not there yet, or no more: what the listing shows decides.
                pass
            except ProviderError as error:
                log.warning("log not followed", instance=record.metadata.name, error=str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_RETRY)

    async def _follow_once(self, record: GPUInstance, provider: RunsContainers, instance_id: str) -> bool:
        """Reads the log from its beginning; whether the command has reported its end."""
        uid = record.uid
        pod = next((ref.uid for ref in record.spec.pods), "")
        nonce = nonce_of(uid)
        found = ReportedExit()
        begun = False
        async for line in provider.logs(instance_id, follow=True):
            if not begun:
                self._tails.begin(pod)
                begun = True
            self._tails.add(pod, line)
            report = read_report(line.text, nonce)
            if report is None:
                continue
            at = line.at or self._clock()
            if report.restarts:
                found = replace(found, restarts=found.restarts + 1, last_exit_code=report.exit_code)
            else:
                found = replace(found, exit_code=report.exit_code, at=at)
            # Of a log that is read again, only what is new counts.
            known = self._reports.get(uid)
            if known is None or found.restarts > known.restarts or found.exit_code is not None:
                self._reports[uid] = found
                self._changed()
            if found.exit_code is not None:
                return True
        return False
