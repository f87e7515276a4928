"""Headscale: a control server of one's own, by its own API, which is not Tailscale's.

The client's id is the Headscale user (name or number) that keys belong to, its secret an API key. Keys have no name
there, so each has one more tag, by which it is found.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import msgspec

from forebay.join.base import JoinError, JoinRejected
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

_REMEDY: Final = (
    "the Secret must hold an API key of Headscale (headscale apikeys create) as the client secret, and a user of "
    "Headscale as the client id"
)
#: Headscale reports some missing objects as errors of its own.
_SERVER_ERROR: Final = 500


class _User(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


class _Users(msgspec.Struct, frozen=True):
    users: tuple[_User, ...] = ()


class _Key(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    key: str = ""
    acl_tags: tuple[str, ...] = ()


class _Made(msgspec.Struct, frozen=True, rename="camel"):
    pre_auth_key: _Key


class _Keys(msgspec.Struct, frozen=True, rename="camel"):
    pre_auth_keys: tuple[_Key, ...] = ()


class _Node(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    name: str = ""
    tags: tuple[str, ...] = ()
    valid_tags: tuple[str, ...] = ()
    forced_tags: tuple[str, ...] = ()


class _Nodes(msgspec.Struct, frozen=True):
    nodes: tuple[_Node, ...] = ()


class HeadscaleTailnet:
    """A Headscale server at a URL."""

    def __init__(self, transport: Transport, redactor: Redactor, clock: Callable[[], datetime], *, url: str) -> None:
        self._transport = transport
        self._redactor = redactor
        self._clock = clock
        self._api = f"{url.rstrip('/')}/api/v1"

    async def create_key(
        self, client: TailnetClient, name: str, tags: Sequence[str], *, ephemeral: bool, ttl: timedelta
    ) -> TailnetKey:
        body = {
            "user": await self._user(client),
            "reusable": False,
            "ephemeral": ephemeral,
            # A key without an expiration counts as expired.
            "expiration": (self._clock() + ttl).isoformat().replace("+00:00", "Z"),
            "aclTags": sorted({*tags, _own_tag(name)}),
        }
        answer = await self._call(client, "POST", "/preauthkey", "Creation of a Headscale key", body)
        made = answer.decoded(_Made, "the creation of a key").pre_auth_key
        if not made.key:
            raise JoinError("Headscale created a key and did not say it.")
        self._redactor.register(made.key)
        return TailnetKey(id=made.id, secret=SecretText(made.key))

    async def keys_named(self, client: TailnetClient, name: str) -> Sequence[str]:
        user = await self._user(client)
        answer = await self._call(client, "GET", f"/preauthkey?user={user}", "Listing of Headscale keys")
        found = answer.decoded(_Keys, "the list of keys").pre_auth_keys
        return [each.id for each in found if _own_tag(name) in each.acl_tags]

    async def delete_key(self, client: TailnetClient, key_id: str) -> None:
        try:
            await self._call(client, "DELETE", f"/preauthkey?id={quote(key_id)}", "Deletion of a Headscale key")
        except NotInTailnet:
            return

    async def devices(self, client: TailnetClient) -> Sequence[TailnetDevice]:
        answer = await self._call(client, "GET", "/node", "Listing of Headscale nodes")
        return [
            TailnetDevice(id=each.id, hostname=each.name, tags=each.tags or each.valid_tags or each.forced_tags)
            for each in answer.decoded(_Nodes, "the list of nodes").nodes
        ]

    async def delete_device(self, client: TailnetClient, device_id: str) -> None:
        try:
            await self._call(client, "DELETE", f"/node/{quote(device_id)}", "Deletion of a Headscale node")
        except NotInTailnet:
            return

    async def _user(self, client: TailnetClient) -> str:
        if client.id.isdecimal():
            return client.id
        answer = await self._call(client, "GET", f"/user?name={quote(client.id)}", "Reading of the Headscale user")
        users = [each.id for each in answer.decoded(_Users, "the list of users").users if each.name == client.id]
        if not users:
            raise JoinRejected(f"Headscale has no user {client.id}: {_REMEDY}.")
        return users[0]

    async def _call(
        self, client: TailnetClient, method: str, path: str, what: str, body: Mapping[str, Any] | None = None
    ) -> TailnetAnswer:
        headers = {"Authorization": f"Bearer {client.secret.reveal()}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        encoded = None if body is None else msgspec.json.encode(body)
        request = Request(method=method, url=f"{self._api}{path}", headers=Headers(headers), body=encoded)
        answer = await send(self._transport, request)
        if answer.status == _SERVER_ERROR and b"record not found" in answer.body:
            raise NotInTailnet(f"{what}: there is none")
        return checked_answer(answer, what, _REMEDY)


def _own_tag(name: str) -> str:
    return f"tag:{name}"
