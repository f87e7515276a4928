"""What must be so before a container may be launched: its pod is bound, its values are read, its image can be pulled.

All of it happens before the attempt is recorded. Whoever crashes here leaves a record that says Requested, and the next
leader goes on at once; after a recorded attempt it would first have to find out what became of a call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, SecondaryResource
from forebay.engine.apply.container_specs import ContainerNotReady, ContainerSpecs, PodLost
from forebay.engine.apply.registry_credentials import RegistryCredentials
from forebay.kube.errors import KubeError
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.model.containers import ContainerSpec
from forebay.net.transport import TransportError

#: Seconds in which the container of a pod must be resolved. Much shorter than any launch deadline.
_TIMEOUT: Final = 30.0


class PreparedContainer(NamedTuple):
    #: As it is by now.
    record: GPUInstance
    #: None for a machine, and where `error` says why there is none.
    container: ContainerSpec | None = None
    #: Made beside the container, and noted in the record.
    resources: tuple[SecondaryResource, ...] = ()
    error: ContainerNotReady | PodLost | None = None


class ContainerPreparation:
    """`note` writes resources into the record before they are made; it returns None where the record has changed."""

    def __init__(
        self,
        container_specs: ContainerSpecs,
        registry_credentials: RegistryCredentials,
        note: Callable[[GPUInstance, tuple[SecondaryResource, ...]], Awaitable[GPUInstance | None]],
    ) -> None:
        self._container_specs = container_specs
        self._registry_credentials = registry_credentials
        self._note = note

    async def prepare(self, record: GPUInstance) -> PreparedContainer | None:
        """None where the record has changed meanwhile. Safe to repeat."""
        if not policy_of(record).runs_its_pod:
            return PreparedContainer(record)
        resources: tuple[SecondaryResource, ...] = ()
        try:
            pulls = await self._registry_credentials.plan(record)
            container = await self._resolved(record)
            if pulls is not None:
                resources = (pulls.resource,)
                noted = await self._note(record, resources)
                if noted is None:
                    return None
                record = noted
                container = replace(container, registry_auth=await self._registry_credentials.make(record, pulls))
        except (ContainerNotReady, PodLost) as error:
            return PreparedContainer(record, resources=resources, error=error)
        return PreparedContainer(record, container, resources)

    async def _resolved(self, record: GPUInstance) -> ContainerSpec:
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._container_specs.resolve(record)
        except TimeoutError as error:
            why = f"What the container needs could not be read within {_TIMEOUT:.0f} s."
            raise ContainerNotReady(why, passing=True) from error
        except (KubeError, TransportError) as error:
            told = f"What the container needs could not be read: {error}."
            raise ContainerNotReady(told, passing=True) from error
