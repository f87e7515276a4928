"""Tailscale's own control server: its API, version 2, by an OAuth client."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from forebay.join.base import JoinError
from forebay.join.tailnets.base import (
    NotInTailnet,
    TailnetAnswer,
    TailnetClient,
    TailnetDevice,
    TailnetKey,
    checked_answer,
    send,
)
from forebay.model.secret_text import SecretText
from forebay.net.redaction import Redactor
from forebay.net.transport import Headers, Request, Transport

TAILSCALE_API: Final = "https://api.tailscale.com/api/v2"
_REMEDY: Final = (
    "the OAuth client must exist, have the scopes auth_keys and devices:core, and own the tags of tailscaleConfig"
)
#: A token is not used in the last minute of its life.
_TOKEN_MARGIN: Final = timedelta(minutes=1)
_UNAUTHORIZED: Final = 401
#: Answer to the deletion of a device that is shared into the tailnet: not one of ours.
_NOT_OURS: Final = 501


class _Token(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: int = 3600


class _Key(msgspec.Struct, frozen=True):
    id: str
    key: str = ""
    description: str = ""


class _Keys(msgspec.Struct, frozen=True):
    keys: tuple[_Key, ...] = ()


class _Device(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    node_id: str = ""
    hostname: str = ""
    tags: tuple[str, ...] = ()


class _Devices(msgspec.Struct, frozen=True):
    devices: tuple[_Device, ...] = ()


class TailscaleTailnet:
    """The tailnet of the OAuth client. Tokens are kept in memory until shortly before they expire."""

    def __init__(
        self,
        transport: Transport,
        redactor: Redactor,
        clock: Callable[[], datetime],
        *,
        api: str = TAILSCALE_API,
    ) -> None:
        self._transport = transport
        self._redactor = redactor
        self._clock = clock
        self._api = api.rstrip("/")
        self._tokens: dict[str, tuple[str, datetime]] = {}
        self._lock = asyncio.Lock()

    async def create_key(
        self, client: TailnetClient, name: str, tags: Sequence[str], *, ephemeral: bool, ttl: timedelta
    ) -> TailnetKey:
        create = {"reusable": False, "ephemeral": ephemeral, "preauthorized": True, "tags": sorted(tags)}
        body = {
            "keyType": "auth",
            "capabilities": {"devices": {"create": create}},
            "expirySeconds": int(ttl.total_seconds()),
            "description": name,
        }
        answer = await self._call(client, "POST", "/tailnet/-/keys", "Creation of a Tailscale key", body)
        made = answer.decoded(_Key, "the creation of a key")
        if not made.key:
            raise JoinError("Tailscale created a key and did not say it.")
        self._redactor.register(made.key)
        return TailnetKey(id=made.id, secret=SecretText(made.key))

    async def keys_named(self, client: TailnetClient, name: str) -> Sequence[str]:
        # Without `all` the list has only what the client itself has made, which is all that Forebay makes.
        answer = await self._call(client, "GET", "/tailnet/-/keys?all=true", "Listing of Tailscale keys")
        found = answer.decoded(_Keys, "the list of keys").keys
        unnamed = [each.id for each in found if not each.description]
        # The list may leave out descriptions: then each key is asked for.
        asked = [await self._described(client, each) for each in unnamed]
        return [each.id for each in (*found, *(each for each in asked if each)) if each.description == name]

    async def _described(self, client: TailnetClient, key_id: str) -> _Key | None:
        try:
            answer = await self._call(client, "GET", f"/tailnet/-/keys/{quote(key_id)}", "Reading of a Tailscale key")
        except NotInTailnet:
            return None
        return answer.decoded(_Key, "the request for a key")

    async def delete_key(self, client: TailnetClient, key_id: str) -> None:
        try:
            await self._call(client, "DELETE", f"/tailnet/-/keys/{quote(key_id)}", "Deletion of a Tailscale key")
        except NotInTailnet:
            return

    async def devices(self, client: TailnetClient) -> Sequence[TailnetDevice]:
        answer = await self._call(client, "GET", "/tailnet/-/devices?fields=all", "Listing of Tailscale devices")
        found = answer.decoded(_Devices, "the list of devices").devices
        return [TailnetDevice(id=each.node_id or each.id, hostname=each.hostname, tags=each.tags) for each in found]

    async def delete_device(self, client: TailnetClient, device_id: str) -> None:
        path = f"/device/{quote(device_id)}"
        try:
            await self._call(client, "DELETE", path, "Deletion of a Tailscale device", accept=_NOT_OURS)
        except NotInTailnet:
            return

    async def _call(
        self,
        client: TailnetClient,
        method: str,
        path: str,
        what: str,
        body: Mapping[str, Any] | None = None,
        *,
        accept: int | None = None,
    ) -> TailnetAnswer:
        answer = await self._sent(client, method, path, body)
        if answer.status == _UNAUTHORIZED:
            # The token was revoked or has expired early: once more with a new one.
            self._tokens.pop(_identity(client), None)
            answer = await self._sent(client, method, path, body)
        return answer if answer.status == accept else checked_answer(answer, what, _REMEDY)

    async def _sent(
        self, client: TailnetClient, method: str, path: str, body: Mapping[str, Any] | None
    ) -> TailnetAnswer:
        headers = {"Authorization": f"Bearer {await self._token(client)}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        encoded = None if body is None else msgspec.json.encode(body)
        return await send(
            self._transport,
            Request(method=method, url=f"{self._api}{path}", headers=Headers(headers), body=encoded),
        )

    async def _token(self, client: TailnetClient) -> str:
        identity = _identity(client)
        async with self._lock:
            token, until = self._tokens.get(identity, ("", self._clock()))
            if until > self._clock():
                return token
            form = {
                "grant_type": "client_credentials",
                "client_id": client.id,
                "client_secret": client.secret.reveal(),
            }
            request = Request(
                method="POST",
                url=f"{self._api}/oauth/token",
                headers=Headers({"Content-Type": "application/x-www-form-urlencoded"}),
                body=urlencode(form).encode(),
            )
            asked = self._clock()
            try:
                answer = checked_answer(await send(self._transport, request), "Tailscale's OAuth login", _REMEDY)
            except NotInTailnet as error:
                raise JoinError(f"{error}.") from error
            made = answer.decoded(_Token, "the OAuth login")
            self._redactor.register(made.access_token)
            self._tokens[identity] = made.access_token, asked + timedelta(seconds=made.expires_in) - _TOKEN_MARGIN
            return made.access_token


def _identity(client: TailnetClient) -> str:
    return hashlib.sha256(f"{client.id}\n{client.secret.reveal()}".encode()).hexdigest()
