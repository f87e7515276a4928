"""Tailscale keys and devices of rented machines.

A key works once, for one machine, for an hour, and is deleted as soon as the machine has joined or will not. Its name,
which follows from the record and the launch call, is noted before it is made: after a lost answer the key is found by
it. The device that the machine becomes is noted by its hostname, tied to the record by its id once the machine has
joined, and deleted with the machine.
"""

import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import ClassVar, Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, ResourceLifetime, SecondaryResource
from forebay.api.joining import TailscaleConfig
from forebay.api.names import TAILSCALE_DEVICE, TAILSCALE_KEY
from forebay.bootstrap.tailscale import AUTH_KEY, hostname
from forebay.bootstrap.templates import UnusableTemplate
from forebay.join.base import JoinError, JoinRejected, Made
from forebay.join.tailnets.base import NotInTailnet, Tailnet, TailnetClient, TailnetDevice

#: Longer than any machine takes to boot.
_TTL: Final = timedelta(hours=1)

#: Reads the client of the class's tailnet. Raises `JoinError`.
ReadClient = Callable[[], Awaitable[TailnetClient]]


class TailscaleKeys:
    kind: ClassVar[str] = TAILSCALE_KEY

    def __init__(self, tailnet: Tailnet, config: TailscaleConfig, client: ReadClient) -> None:
        self._tailnet = tailnet
        self._config = config
        self._client = client

    def planned(self, record: GPUInstance, attempt: int) -> SecondaryResource:
        digest = hashlib.sha256(f"{record.uid}/{attempt}".encode()).hexdigest()[:16]
        name = f"forebay-{digest}"
        return SecondaryResource(kind=self.kind, name=name, until=ResourceLifetime.JOINED, attempt=attempt)

    async def make(self, _record: GPUInstance, planned: SecondaryResource) -> Made:
        client = await self._client()
        try:
            key = await self._tailnet.create_key(
                client, planned.name, sorted(self._config.tags), ephemeral=self._config.ephemeral, ttl=_TTL
            )
        except NotInTailnet as error:
            raise JoinRejected(f"{error}: correct tailscaleConfig, which has no such control server.") from error
        return Made(replace(planned, id=key.id), {AUTH_KEY: key.secret.reveal()})

    async def revoke(self, resource: SecondaryResource) -> None:
        client = await self._client()
        # By name where the answer to its creation was lost; a second key of the name is as unwanted as the first.
        ids = {resource.id} if resource.id is not None else set(await self._keys(client, resource.name))
        for each in sorted(ids):
            await self._tailnet.delete_key(client, each)

    async def _keys(self, client: TailnetClient, name: str) -> list[str]:
        try:
            return list(await self._tailnet.keys_named(client, name))
        except NotInTailnet as error:
            raise JoinError(f"{error}.") from error


class TailscaleDevices:
    kind: ClassVar[str] = TAILSCALE_DEVICE

    def __init__(self, tailnet: Tailnet, config: TailscaleConfig, client: ReadClient) -> None:
        self._tailnet = tailnet
        self._config = config
        self._client = client

    def planned(self, record: GPUInstance, attempt: int) -> SecondaryResource:
        try:
            name = hostname(record, self._config)
        except UnusableTemplate:
            # The payload refuses the class before anything is launched, so there is no device either.
            name = record.node_name or record.metadata.name
        return SecondaryResource(kind=self.kind, name=name, until=ResourceLifetime.GONE, attempt=attempt)

    async def make(self, _record: GPUInstance, planned: SecondaryResource) -> Made:
        """Nothing: the machine itself becomes the device."""
        return Made(planned, {})

    async def found(self, resource: SecondaryResource) -> SecondaryResource:
        """The resource with the id of its device, once exactly one device answers to its name."""
        matching = [each for each in await self._devices(await self._client()) if self._is(resource, each)]
        return replace(resource, id=matching[0].id) if len(matching) == 1 else resource

    async def revoke(self, resource: SecondaryResource) -> None:
        client = await self._client()
        ids = {each.id for each in await self._devices(client) if self._is(resource, each)}
        if resource.id is not None:
            ids.add(resource.id)
        for each in sorted(ids):
            await self._tailnet.delete_device(client, each)

    async def _devices(self, client: TailnetClient) -> list[TailnetDevice]:
        try:
            return list(await self._tailnet.devices(client))
        except NotInTailnet as error:
            raise JoinError(f"{error}.") from error

    def _is(self, resource: SecondaryResource, device: TailnetDevice) -> bool:
        """A device of the name without any of our tags is somebody else's."""
        return device.hostname.lower() == resource.name and not set(self._config.tags).isdisjoint(device.tags)
