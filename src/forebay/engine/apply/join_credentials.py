"""Join credentials around a launch: noted in the record first, then made; deleted when nothing needs them any more."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState, SecondaryResource
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.names import TAILSCALE_DEVICE
from forebay.engine.apply.join_payloads import JoinPayloads, registers_as
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.apply.records import Records
from forebay.engine.views import Views
from forebay.join.base import JoinCredential, JoinError
from forebay.join.methods import JoinMethods
from forebay.kube.errors import KubeError
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.secondary_resources import deleted, noted
from forebay.lifecycle.steps import DeleteResources
from forebay.lifecycle.transitions import with_condition
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities
from forebay.net.transport import TransportError
from forebay.providers.base import BootPayload

log = structlog.get_logger(__name__)

#: Seconds for one credential to be made or deleted.
_TIMEOUT: Final = 30.0
#: States in which the machine has entered its networks.
_JOINED: Final = frozenset({InstanceState.JOINED, InstanceState.READY})
#: Condition of a GPUInstance: False where its machine joins with a token that others share.
_OWN_TOKEN: Final = "OwnJoinToken"  # noqa: S105 (a condition)


#: Deletes a secondary resource of a record. Raises `JoinError`.
Revoke = Callable[[GPUInstance, SecondaryResource], Awaitable[None]]


class Planned(NamedTuple):
    """What will be made for one launch call."""

    credential: JoinCredential
    resource: SecondaryResource


class JoinCredentials:
    def __init__(
        self,
        methods: JoinMethods,
        payloads: JoinPayloads,
        *,
        records: Records,
        views: Views,
        provider_calls: ProviderCalls,
        clock: Callable[[], datetime],
        others: Mapping[str, Revoke] | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`others`: what deletes secondary resources that are no join credentials, by their kind."""
        self._others = others or {}
        self._on_failure = on_failure
        self._methods = methods
        self._payloads = payloads
        self._records = records
        self._views = views
        self._provider_calls = provider_calls
        self._clock = clock

    def plan(self, record: GPUInstance, attempt: int) -> tuple[Planned, ...]:
        needed = self._methods.needed(record, self._class_of(record))
        return tuple(Planned(each, each.planned(record, attempt)) for each in needed)

    def provider_id(self, record: GPUInstance) -> str | None:
        """The spec.providerID that the machine will be told to register with, if any."""
        return registers_as(record, self._class_of(record))

    async def make(self, record: GPUInstance, planned: tuple[Planned, ...]) -> tuple[GPUInstance, Mapping[str, str]]:
        """Makes what was planned and noted. Returns the record with their ids, and the secret values by variable.
        Raises `JoinError`: what was made by then is deleted like the rest.
        """
        values: dict[str, str] = {}
        made: list[SecondaryResource] = []
        note: str | None = None
        for credential, resource in planned:
            try:
                async with asyncio.timeout(_TIMEOUT):
                    result = await credential.make(record, resource)
            except TimeoutError as error:
                raise JoinError(f"{resource.kind} {resource.name} was not created within {_TIMEOUT:.0f} s.") from error
            log.info("join credential created", kind=resource.kind, name=resource.name, instance=record.metadata.name)
            values.update(result.values)
            made.append(result.resource)
            note = result.note or note
        if tuple(made) == tuple(each.resource for each in planned) and note is None:
            return record, values
        try:
            written = await self._records.write_outcome(
                record, lambda seen: _with(seen, tuple(made), note, self._clock())
            )
        except (KubeError, TransportError) as error:
            raise JoinError(f"The ids of join credentials could not be recorded: {error}") from error
        if written is None:
            raise JoinError("The record was changed by somebody else while its join credentials were created.")
        return written, values

    async def boot_payload(
        self, record: GPUInstance, values: Mapping[str, str], capabilities: Capabilities
    ) -> BootPayload | None:
        """What the record's machine is told at its first boot, with the secret values of its credentials; None where
        the class says nothing. Raises `JoinError`.
        """
        node_class = self._class_of(record)
        if node_class is None or not policy_of(record).joins_as_new_node:
            return None
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._payloads.payload(record, node_class, values, capabilities)
        except TimeoutError as error:
            raise JoinError(f"What a machine needs to join could not be read within {_TIMEOUT:.0f} s.") from error

    def failed(self) -> None:
        """A machine could not be told how to join."""
        self._on_failure()

    def delete(self, step: DeleteResources) -> None:
        self._provider_calls.start(step.record.metadata.name, self._delete(step))

    async def _delete(self, step: DeleteResources) -> None:
        gone: list[SecondaryResource] = []
        failed: dict[SecondaryResource, str] = {}
        for resource in step.resources:
            try:
                await self._revoke(step.record, resource)
                gone.append(resource)
            except JoinError as error:
                failed[resource] = str(error)
        tied = await self._tied(step.record)
        called = log.bind(instance=step.record.metadata.name)
        for resource in gone:
            called.info("secondary resource deleted", kind=resource.kind, name=resource.name)
        for resource, why in failed.items():
            called.warning("secondary resource not deleted", kind=resource.kind, name=resource.name, error=why)
        try:
            await self._records.write_outcome(
                step.record, lambda seen: deleted(_tied_to(seen, tied), tuple(gone), failed, self._clock())
            )
        except (KubeError, TransportError) as error:
            # The resources are still noted: they are deleted again, which does no harm.
            called.warning("deletion not recorded", error=str(error))

    async def _tied(self, record: GPUInstance) -> tuple[SecondaryResource, ...]:
        """Devices of a machine that has joined, with their ids, so that no other of the name is ever taken for them."""
        devices, status = self._methods.device(self._class_of(record)), record.status
        if devices is None or status is None or record.state not in _JOINED:
            return ()
        unknown = [each for each in status.secondary_resources if each.kind == TAILSCALE_DEVICE and each.id is None]
        found = []
        for each in unknown:
            try:
                async with asyncio.timeout(_TIMEOUT):
                    found.append(await devices.found(each))
            except (JoinError, TimeoutError) as error:
                # Its name is noted, by which it is found when it is deleted.
                log.warning("tailnet device not read", instance=record.metadata.name, error=str(error))
        return tuple(each for each in found if each.id is not None)

    async def _revoke(self, record: GPUInstance, resource: SecondaryResource) -> None:
        if (revoke := self._others.get(resource.kind)) is not None:
            await revoke(record, resource)
            return
        credential = self._methods.of_kind(resource.kind, self._class_of(record))
        if credential is None:
            raise JoinError(
                f"Neither the class nor this release of Forebay says how a {resource.kind} is deleted: put "
                "tailscaleConfig back into the class, or upgrade."
            )
        try:
            async with asyncio.timeout(_TIMEOUT):
                await credential.revoke(resource)
        except TimeoutError as error:
            raise JoinError(f"no answer within {_TIMEOUT:.0f} s") from error

    def _class_of(self, record: GPUInstance) -> GPUNodeClass | None:
        name = record.spec.node_class_name
        return self._views.classes.get(("", name)) if name is not None else None


def _tied_to(record: GPUInstance, devices: tuple[SecondaryResource, ...]) -> GPUInstance:
    if record.status is None or not devices:
        return record
    return GPUInstance(metadata=record.metadata, spec=record.spec, status=noted(record.status, devices))


def _with(
    record: GPUInstance, made: tuple[SecondaryResource, ...], note: str | None, now: datetime
) -> GPUInstanceStatus:
    status = noted(record.status or GPUInstanceStatus(), made)
    if note is None:
        return status
    return with_condition(status, _OWN_TOKEN, holds=False, reason=Reason.SHARED_JOIN_TOKEN, sentence=note, now=now)
