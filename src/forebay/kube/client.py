"""A typed client of the API server. Raises `ApiError` for an error response, `TransportError` without a response."""

import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from forebay.kube import errors, writes
from forebay.kube.calls import MAX_THROTTLE_WAIT, ApiCalls
from forebay.kube.lists import Page
from forebay.kube.resources import Resource, T
from forebay.kube.responses import ResponseDecoder, decode_plain, is_status
from forebay.kube.writes import FIELD_MANAGER, Patch
from forebay.net.transport import Transport

_WRITE: Final = {"fieldManager": FIELD_MANAGER}


class Version(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    git_version: str = ""


class _ServedResource(msgspec.Struct, frozen=True):
    name: str
    verbs: tuple[str, ...] = ()


class _ResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_ServedResource, ...] = ()


class Client:
    def __init__(
        self,
        transport: Transport,
        base_url: str,
        *,
        max_throttle_wait: float = MAX_THROTTLE_WAIT,
        rng: random.Random | None = None,
    ) -> None:
        self.transport = transport
        self._responses = ResponseDecoder()
        self._calls = ApiCalls(transport, base_url, max_throttle_wait=max_throttle_wait, rng=rng)

    @property
    def server_time(self) -> datetime | None:
        """Time on the API server's clock when it last responded to this client; None if it has not said."""
        return self._calls.server_time

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        body, call = await self._calls.body("GET", _object_path(resource, name, namespace))
        return self._responses.object(resource, body, call)

    async def list_page(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int | None = None,
        continue_token: str = "",
    ) -> Page[T]:
        """One page of a list, or with a token its next page. Raises `Expired` when the token is too old."""
        params = {"labelSelector": labels, "fieldSelector": fields, "continue": continue_token}
        if limit is not None:
            params["limit"] = str(limit)
        body, call = await self._calls.body("GET", resource.path(namespace), params)
        return self._responses.page(resource, body, call)

    async def list_all(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
    ) -> Page[T]:
        """The complete list, all pages from one resourceVersion."""
        page = await self.list_page(resource, namespace, labels=labels, fields=fields, limit=limit)
        items = page.items
        try:
            while page.continue_token:
                page = await self.list_page(
                    resource, namespace, labels=labels, fields=fields, limit=limit, continue_token=page.continue_token
                )
                items += page.items
        except errors.Expired:
            # The pages took longer than the server keeps their version. A list without a limit cannot expire.
            return await self.list_page(resource, namespace, labels=labels, fields=fields)
        return Page(items=items, resource_version=page.resource_version)

    async def create(
        self,
        resource: Resource[T],
        created: T | Mapping[str, Any],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Creates the object; with `dry_run` the server only says whether it would."""
        path = _collection_path(resource, namespace or writes.key_of(created)[0])
        params = {**_WRITE, "dryRun": "All"} if dry_run else _WRITE
        body, call = await self._calls.body("POST", path, params, writes.encode_object(resource, created))
        return self._responses.object(resource, body, call)

    async def update(self, resource: Resource[T], updated: T) -> T:
        """Replaces the object. Raises `Conflict` when it has changed since it was read."""
        if not resource.complete:
            raise TypeError(
                f"an update would erase the fields of {resource.kind} that Forebay does not decode; patch it instead"
            )
        if not updated.resource_version:
            raise ValueError(
                f"{resource.kind} {updated.key} has no resourceVersion; read the object before updating it"
            )
        namespace, name = updated.key
        path = _object_path(resource, name, namespace)
        body, call = await self._calls.body("PUT", path, _WRITE, writes.encode_object(resource, updated))
        return self._responses.object(resource, body, call)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Patch,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> T:
        path = _object_path(resource, name, namespace, subresource)
        body, call = await self._calls.body("PATCH", path, _WRITE, patch.body, content_type=patch.content_type)
        return self._responses.object(resource, body, call)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> T | None:
        """The object if the server returned it (finalizers or a grace period may keep it), else None."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", **writes.preconditions(uid)}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = _object_path(resource, name, namespace)
        body, call = await self._calls.body("DELETE", path, body=msgspec.json.encode(options))
        return None if is_status(body) else self._responses.object(resource, body, call)

    async def post_subresource(
        self, resource: Resource[T], name: str, namespace: str, subresource: str, body: Mapping[str, Any]
    ) -> None:
        """Creates a subresource (such as an eviction) whose response holds nothing but success."""
        path = _object_path(resource, name, namespace, subresource)
        await self._calls.body("POST", path, _WRITE, msgspec.json.encode(body))

    async def version(self) -> Version:
        body, call = await self._calls.body("GET", "/version")
        return decode_plain(body, Version, call)

    async def served(self, api_version: str) -> Mapping[str, frozenset[str]]:
        """Verbs by resource of a group and version; empty if the server does not serve that version."""
        try:
            body, call = await self._calls.body(
                "GET", f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            )
        except errors.NotFound:
            return {}
        return {item.name: frozenset(item.verbs) for item in decode_plain(body, _ResourceList, call).resources}

    async def close(self) -> None:
        await self.transport.close()


def _collection_path(resource: Resource[T], namespace: str | None) -> str:
    if resource.namespaced and not namespace:
        raise errors.BadRequest(f"{resource.kind} is namespaced and no namespace was given", status=400)
    return resource.path(namespace)


def _object_path(resource: Resource[T], name: str, namespace: str | None, subresource: str | None = None) -> str:
    _collection_path(resource, namespace)
    return resource.path(namespace, name, subresource)
