"""Asking providers to start and to end machines: the only place where money moves.

The attempt is written down first, as a compare-and-swap, so that of several that want to ask only one does. What came
of it is written afterwards; where that fails, or this process ends, the record says that somebody asked, and
`lifecycle` finds out before anybody asks again.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus
from forebay.engine.apply.events import Events
from forebay.engine.apply.launch_requests import launch_request
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.apply.records import Records
from forebay.engine.counts import Counts
from forebay.engine.sources.sources import CALL_LIMIT, Sources
from forebay.kube.errors import Conflict, KubeError, NotFound
from forebay.kube.lease import Elector
from forebay.lifecycle import call_outcomes
from forebay.lifecycle.steps import Launch, Terminate
from forebay.model.reasons import Reason
from forebay.model.sources import Failure, FailureKind
from forebay.net.transport import TransportError
from forebay.providers.base import Provider, ProviderError
from forebay.reconcile.orders import source_of

log = structlog.get_logger(__name__)

#: Seconds between tries to write down what a provider answered. After these it is found out anew.
_PERSISTENCE: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Seconds that a record stays busy after an attempt that could not be written: the end of an errand wakes the loop,
#: which would decide the same at once, and again, for as long as the server refuses or the view is behind.
_BEFORE_ANOTHER: Final = 2.0


class Launches:
    def __init__(
        self,
        *,
        records: Records,
        sources: Sources,
        errands: ProviderCalls,
        announcements: Events,
        elector: Elector,
        cluster: str,
        clock: Callable[[], datetime],
        counts: Counts,
    ) -> None:
        self._records = records
        self._sources = sources
        self._errands = errands
        self._announcements = announcements
        self._elector = elector
        self._cluster = cluster
        self._clock = clock
        self._counts = counts

    def launch(self, step: Launch) -> None:
        self._errands.send(step.record.metadata.name, self._launch(step))

    def terminate(self, step: Terminate) -> None:
        self._errands.send(step.record.metadata.name, self._terminate(step))

    async def _launch(self, step: Launch) -> None:
        claimed = await self._claim(step)
        if claimed is None:
            return
        record, provider = claimed
        self._announcements.transition(record, step.reason, step.sentence)
        request = launch_request(record, self._cluster)
        try:
            async with asyncio.timeout(CALL_LIMIT):
                instance = await provider.launch(request)
        except (ProviderError, TimeoutError) as error:
            failure = _failure(error, step.record)
            self._count(record, "launch", failure.kind)
            await self._note(record, lambda seen: call_outcomes.launch_failed(seen, failure, self._clock()))
        else:
            self._count(record, "launch", "Accepted")
            capabilities = provider.capabilities()
            await self._note(
                record, lambda seen: call_outcomes.launch_succeeded(seen, instance, self._clock(), capabilities)
            )

    async def _terminate(self, step: Terminate) -> None:
        claimed = await self._claim(step)
        if claimed is None:
            return
        record, provider = claimed
        try:
            async with asyncio.timeout(CALL_LIMIT):
                await provider.terminate(step.instance_id)
        except (ProviderError, TimeoutError) as error:
            failure = _failure(error, step.record)
            log.warning("a machine was not ended", instance=record.metadata.name, why=failure.sentence)
            self._count(record, "terminate", failure.kind)
            await self._note(record, lambda seen: call_outcomes.termination_failed(seen, failure, self._clock()))
        else:
            self._count(record, "terminate", "Accepted")
            await self._note(record, lambda seen: call_outcomes.termination_accepted(seen, self._clock()))

    def _count(self, record: GPUInstance, call: str, outcome: str) -> None:
        self._counts.calls[record.spec.provider.value, call, outcome] += 1

    async def _claim(self, step: Launch | Terminate) -> tuple[GPUInstance, Provider] | None:
        """The record with this attempt in it, for its one winner; and whom to ask."""
        provider = self._sources.provider(source_of(step.record))
        if provider is None or not self._elector.still_leader():
            return None
        try:
            record = await self._records.write(step.record, step.status)
        except (Conflict, NotFound):
            await asyncio.sleep(_BEFORE_ANOTHER)
            return None
        except (KubeError, TransportError) as error:
            # Perhaps written, perhaps not: either way nothing was asked. The next tick sees which.
            log.warning("an attempt could not be recorded", instance=step.record.metadata.name, why=str(error))
            await asyncio.sleep(_BEFORE_ANOTHER)
            return None
        # The write may have taken long; another may lead by now, and has seen this attempt.
        return (record, provider) if self._elector.still_leader() else None

    async def _note(self, record: GPUInstance, outcome: Callable[[GPUInstance], GPUInstanceStatus]) -> None:
        before = record.status or GPUInstanceStatus()
        for pause in (*_PERSISTENCE, None):
            try:
                written = await self._records.write_outcome(record, outcome)
            except (KubeError, TransportError) as error:
                log.warning("an answer could not be recorded", instance=record.metadata.name, why=str(error))
                if pause is None:
                    return
                await asyncio.sleep(pause)
                continue
            if written is not None and written.status is not None:
                after = written.status
                if (after.state, after.message) != (before.state, before.message) and after.reason is not None:
                    self._announcements.transition(written, Reason(after.reason), after.message or "")
            return


def _failure(error: ProviderError | TimeoutError, record: GPUInstance) -> Failure:
    if isinstance(error, ProviderError):
        return error.failure()
    sentence = f"{record.spec.provider} did not answer within {CALL_LIMIT:.0f} s."
    return Failure(kind=FailureKind.OUTCOME_UNKNOWN, sentence=sentence)
