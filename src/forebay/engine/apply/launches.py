"""Launch and terminate calls to providers: the only place where money is spent.

The attempt is recorded first, as a compare-and-swap, so that of several leaders only one calls the provider. The
outcome is recorded afterwards. Where that fails, or this process ends, the record still shows an attempt without an
outcome, and `lifecycle` resolves it by the provider's listing before anything is called again.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, SecondaryResource
from forebay.engine.apply.container_preparation import ContainerPreparation
from forebay.engine.apply.container_specs import ContainerNotReady, ContainerSpecs, PodLost
from forebay.engine.apply.events import Events
from forebay.engine.apply.join_credentials import JoinCredentials
from forebay.engine.apply.launch_requests import launch_request
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.apply.records import Records
from forebay.engine.apply.registry_credentials import RegistryCredentials
from forebay.engine.counts import Counts
from forebay.engine.sources.sources import Sources
from forebay.join.base import JoinError, JoinRejected
from forebay.kube.errors import Conflict, KubeError, NotFound
from forebay.kube.lease import Elector
from forebay.lifecycle import call_outcomes
from forebay.lifecycle.facts import machine_sources, serving_source, source_of
from forebay.lifecycle.launch import with_request
from forebay.lifecycle.secondary_resources import noted
from forebay.lifecycle.steps import Launch, Terminate
from forebay.lifecycle.transitions import whole_seconds
from forebay.model.reasons import Reason
from forebay.model.sources import Failure, FailureKind, FailureScope
from forebay.net.transport import TransportError
from forebay.providers.base import Provider, ProviderError

log = structlog.get_logger(__name__)

#: Seconds between tries to record an outcome. After the last, `lifecycle` resolves the attempt by a listing.
_RETRY_AFTER: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Seconds that a record stays busy after an attempt could not be recorded. The end of a call wakes the loop, which
#: would otherwise repeat the decision in a hot loop while the API server refuses it or the informer is behind.
_BUSY_AFTER_FAILURE: Final = 2.0


class Launches:
    """Starts launch and terminate calls as tasks, and records their outcomes."""

    def __init__(
        self,
        *,
        records: Records,
        sources: Sources,
        provider_calls: ProviderCalls,
        events: Events,
        elector: Elector,
        join_credentials: JoinCredentials,
        container_specs: ContainerSpecs,
        registry_credentials: RegistryCredentials,
        cluster: str,
        clock: Callable[[], datetime],
        counts: Counts,
    ) -> None:
        self._records = records
        self._sources = sources
        self._provider_calls = provider_calls
        self._events = events
        self._elector = elector
        self._join_credentials = join_credentials
        self._containers = ContainerPreparation(container_specs, registry_credentials, self._note)
        self._cluster = cluster
        self._clock = clock
        self._counts = counts

    def launch(self, step: Launch) -> None:
        self._provider_calls.start(step.record.metadata.name, self._launch(step))

    def terminate(self, step: Terminate) -> None:
        self._provider_calls.start(step.record.metadata.name, self._terminate(step))

    async def _launch(self, step: Launch) -> None:
        if not self._elector.still_leader():
            return
        prepared = await self._containers.prepare(step.record)
        if prepared is None:
            return
        # Noted in the same write as the attempt: whatever is made for it can be found and deleted by its name.
        planned = self._join_credentials.plan(step.record, step.status.attempt or 1)
        noting = noted(step.status, (*(each.resource for each in planned), *prepared.resources))
        registers_as = self._join_credentials.provider_id(step.record)
        called = step.status.attempted_at if prepared.container is None else whole_seconds(self._clock())
        status = replace(noting, provider_id=registers_as, attempted_at=called)
        claimed = await self._claim(replace(step, record=prepared.record, status=status))
        if claimed is None:
            return
        record, provider = claimed
        self._events.transition(record, step.reason, step.sentence)
        if prepared.error is not None:
            await self._record_prevented(record, prepared.error)
            return
        try:
            record, values = await self._join_credentials.make(record, planned)
            boot = await self._join_credentials.boot_payload(record, values, provider.capabilities())
        except JoinError as error:
            kind = FailureKind.REJECTED if isinstance(error, JoinRejected) else FailureKind.UNAVAILABLE
            # The class says how machines join: every other offer of this source would meet the same.
            failure = Failure(kind=kind, sentence=str(error), scope=FailureScope.SOURCE)
            self._join_credentials.failed()
            revision = self._sources.revision(source_of(record))
            await self._record_outcome(
                record, lambda seen: call_outcomes.launch_failed(seen, failure, self._clock(), revision)
            )
            return
        if not self._elector.still_leader():
            # What was prepared took long. Whoever leads now has seen the attempt, and resolves it by a listing.
            return
        request = launch_request(record, self._cluster, boot=boot, container=prepared.container)
        began = time.monotonic()
        try:
            async with asyncio.timeout(_call_timeout(provider)):
                instance = await provider.launch(request)
        except (ProviderError, TimeoutError) as error:
            failure = _failure(error, step.record, provider)
            self._count(record, "launch", began, failure)
            revision = self._sources.revision(source_of(record))
            await self._record_outcome(
                record, lambda seen: call_outcomes.launch_failed(seen, failure, self._clock(), revision)
            )
        else:
            self._count(record, "launch", began)
            capabilities = provider.capabilities()
            await self._record_outcome(
                record, lambda seen: call_outcomes.launch_succeeded(seen, instance, self._clock(), capabilities)
            )

    async def _record_prevented(self, record: GPUInstance, error: ContainerNotReady | PodLost) -> None:
        why, lost = str(error), isinstance(error, PodLost)
        passing = isinstance(error, ContainerNotReady) and error.passing
        log.warning("container not launched", instance=record.metadata.name, error=why)
        await self._record_outcome(
            record,
            lambda seen: call_outcomes.launch_prevented(seen, why, self._clock(), pod_lost=lost, passing=passing),
        )

    async def _note(self, record: GPUInstance, resources: tuple[SecondaryResource, ...]) -> GPUInstance | None:
        """The record with resources that are about to be made, before any attempt; None where it has changed."""
        kept = record.status.secondary_resources if record.status is not None else ()
        if all(each in kept for each in resources):
            return record
        return await self._written(record, noted(with_request(record, self._clock()), resources))

    async def _terminate(self, step: Terminate) -> None:
        claimed = await self._claim(step)
        if claimed is None:
            return
        record, provider = claimed
        began = time.monotonic()
        try:
            async with asyncio.timeout(_call_timeout(provider)):
                await provider.terminate(step.instance_id)
        except (ProviderError, TimeoutError) as error:
            answered, failure = self._clock(), _failure(error, step.record, provider)
            self._count(record, "terminate", began, failure)
            capabilities = provider.capabilities()
            await self._record_outcome(
                record, lambda seen: call_outcomes.termination_failed(seen, failure, answered, capabilities)
            )
        else:
            # Writing it down may take a while, and some providers bill until now.
            answered = self._clock()
            self._count(record, "terminate", began)
            await self._record_outcome(record, lambda seen: call_outcomes.termination_accepted(seen, answered))

    def _count(self, record: GPUInstance, call: str, began: float, failure: Failure | None = None) -> None:
        """Counts and logs a call that has ended; `failure` is None for one that the provider accepted."""
        provider = record.spec.provider
        spent = self._counts.call_seconds
        spent[provider, call] = spent.get((provider, call), 0.0) + time.monotonic() - began
        self._counts.calls[provider, call, "Accepted" if failure is None else failure.kind] += 1
        called = log.bind(call=call, provider=provider, instance=record.metadata.name)
        if failure is None:
            called.info("provider call accepted")
        else:
            called.warning("provider call failed", outcome=str(failure.kind), error=failure.sentence)

    async def _claim(self, step: Launch | Terminate) -> tuple[GPUInstance, Provider] | None:
        """Records the attempt. Returns the record and its provider to the one winner, None to everybody else."""
        provider = self._sources.provider(serving_source(step.record, machine_sources(self._sources.states())))
        if provider is None or not self._elector.still_leader():
            return None
        record = await self._written(step.record, step.status)
        # The write may have taken long: another replica may lead by now, and has seen this attempt.
        return None if record is None or not self._elector.still_leader() else (record, provider)

    async def _written(self, record: GPUInstance, status: GPUInstanceStatus) -> GPUInstance | None:
        """The record with this status; None, after a pause, where it has changed or could not be written."""
        try:
            return await self._records.write(record, status)
        except (Conflict, NotFound):
            pass
        except (KubeError, TransportError) as error:
            # Perhaps stored, perhaps not: either way no provider was called. The next tick sees which.
            log.warning("attempt not recorded", instance=record.metadata.name, error=str(error))
        await asyncio.sleep(_BUSY_AFTER_FAILURE)
        return None

    async def _record_outcome(self, record: GPUInstance, outcome: Callable[[GPUInstance], GPUInstanceStatus]) -> None:
        before = record.status or GPUInstanceStatus()
        for pause in (*_RETRY_AFTER, None):
            try:
                written = await self._records.write_outcome(record, outcome)
            except (KubeError, TransportError) as error:
                log.warning("outcome not recorded", instance=record.metadata.name, error=str(error))
                if pause is None:
                    return
                await asyncio.sleep(pause)
                continue
            if written is not None and written.status is not None:
                after = written.status
                if (after.state, after.message) != (before.state, before.message) and after.reason is not None:
                    self._events.transition(written, Reason(after.reason), after.message or "")
            return


def _call_timeout(provider: Provider) -> float:
    return provider.capabilities().call_timeout.total_seconds()


def _failure(error: ProviderError | TimeoutError, record: GPUInstance, provider: Provider) -> Failure:
    if isinstance(error, ProviderError):
        return error.failure()
    sentence = f"{record.spec.provider} did not answer within {_call_timeout(provider):.0f} s."
    return Failure(kind=FailureKind.OUTCOME_UNKNOWN, sentence=sentence)
