"""The client of this suite: plain requests over a Transport, plain JSON back.

Not `forebay.kube.Client`, because this suite states what the server does; how our client reads it is tested apart.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from forebay.net.transport import Headers, Request, Response, Timeouts, Transport
from tests.contract.kube.widgets import WIDGETS

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

#: The longest that any wait in this suite may take.
PATIENCE_SECONDS = 20.0


class Refused(Exception):
    """An error answer of the server, with its status, headers and body."""

    def __init__(self, status: int, headers: Headers, body: Any) -> None:
        self.status = status
        self.headers = headers
        self.body = body if isinstance(body, dict) else {}
        self.reason = self.body.get("reason")
        self.message = self.body.get("message", "")
        self.details = self.body.get("details", {})
        super().__init__(f"{status} {self.reason}: {self.message}")

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        """(field, reason, message) of each cause."""
        causes = self.details.get("causes", [])
        return [(cause.get("field", ""), cause["reason"], cause["message"]) for cause in causes]


async def refused(call: Awaitable[Any]) -> Refused:
    """The error that the call must raise."""
    try:
        answer = await call
    except Refused as refusal:
        return refusal
    raise AssertionError(f"expected a refusal, got {answer}")


class Events:
    """A watch that is read one event at a time."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._lines = self._split()

    async def _split(self) -> AsyncIterator[Json]:
        rest = b""
        async for chunk in self._response.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield json.loads(line)

    async def next(self, seconds: float = PATIENCE_SECONDS) -> tuple[str, Json]:
        """The next event as (type, object). Raises TimeoutError without one, StopAsyncIteration at the end."""
        async with asyncio.timeout(seconds):
            event = await anext(self._lines)
        return event["type"], event["object"]

    async def until(self, true: Callable[[str, Json], bool]) -> list[tuple[str, Json]]:
        """All events up to and including the first one for which `true` holds."""
        seen = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                seen.append(await self.next())
                if true(*seen[-1]):
                    return seen

    async def close(self) -> None:
        await self._lines.aclose()
        await self._response.close()


class Collection:
    """One resource, in one namespace or in the cluster."""

    def __init__(self, api: "Api", path: str) -> None:
        self._api = api
        self.path = path

    async def create(self, body: Json, **query: object) -> Json:
        return await self._api.ask("POST", self.path, body, query=query)

    async def get(self, name: str, *parts: str, **query: object) -> Json:
        return await self._api.ask("GET", self._at(name, *parts), query=query)

    async def list(self, accept: str | None = None, **query: object) -> Json:
        return await self._api.ask("GET", self.path, query=query, accept=accept)

    async def update(self, body: Json, *parts: str, **query: object) -> Json:
        return await self._api.ask("PUT", self._at(body["metadata"]["name"], *parts), body, query=query)

    async def patch(
        self, name: str, patch: object, *parts: str, kind: str = MERGE, headers: Mapping[str, str] = {}, **query: object
    ) -> Json:
        return await self._api.ask(
            "PATCH", self._at(name, *parts), patch, query=query, content_type=kind, headers=headers
        )

    async def apply(self, body: Json, manager: str, *parts: str, **query: object) -> Json:
        query = {"fieldManager": manager, **query}
        return await self.patch(body["metadata"]["name"], body, *parts, kind=APPLY, **query)

    async def post(self, name: str, part: str, body: Json, **query: object) -> Json:
        """Create a subresource: binding, eviction."""
        return await self._api.ask("POST", self._at(name, part), body, query=query)

    async def delete(self, name: str, options: Json | None = None, **query: object) -> Json:
        return await self._api.ask("DELETE", self._at(name), options, query=query)

    async def delete_all(self, options: Json | None = None, **query: object) -> Json:
        return await self._api.ask("DELETE", self.path, options, query=query)

    @contextlib.asynccontextmanager
    async def watch(self, **query: object) -> AsyncIterator[Events]:
        response = await self._api.send("GET", self.path, query={"watch": "true", **query}, stream=True)
        if not response.ok:
            raise Refused(response.status, response.headers, json.loads(await response.read()))
        events = Events(response)
        try:
            yield events
        finally:
            await events.close()

    async def until(self, name: str, true: Callable[[Json | None], bool]) -> Json | None:
        """Watches one object until `true` holds for it; None stands for a deleted object."""
        field = f"metadata.name={name}"
        listing = await self.list(fieldSelector=field)
        seen = listing["items"][0] if listing["items"] else None
        if true(seen):
            return seen
        version = listing["metadata"]["resourceVersion"]
        async with self.watch(fieldSelector=field, resourceVersion=version) as events:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not true(seen):
                    kind, seen = await events.next()
                    seen = None if kind == "DELETED" else seen
        return seen

    async def gone(self, name: str) -> None:
        await self.until(name, lambda seen: seen is None)

    def _at(self, name: str, *parts: str) -> str:
        return "/".join([self.path, quote(name), *parts])


class Api:
    """An API server, and a namespace of the test's own in it."""

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        namespace: str,
        server: str,
        compact: Callable[[], Awaitable[None]],
    ) -> None:
        self.transport = transport
        self.base_url = base_url
        self.namespace = namespace
        #: `embedded` or `real`. For preparation only: all assertions are the same for both.
        self.server = server
        #: Compacts the store: lists and watches of earlier versions get a 410.
        self.compact = compact

    def __call__(self, resource: str, group_version: str = "v1", namespace: str | None = None) -> Collection:
        """`api("pods")`, `api("jobs", "batch/v1")`: a resource in this test's namespace."""
        return Collection(self, f"{_root(group_version)}/namespaces/{namespace or self.namespace}/{resource}")

    def cluster(self, resource: str, group_version: str = "v1") -> Collection:
        """A resource of the cluster, or one of all namespaces."""
        return Collection(self, f"{_root(group_version)}/{resource}")

    def named(self, name: str) -> str:
        """A name for a cluster-scoped object that no other test uses."""
        return f"{self.namespace}-{name}"

    async def install(self, definition: Json) -> Collection:
        """The resource of the CRD, once it is served. The CRD stays for other tests."""
        definitions = self.cluster("customresourcedefinitions", "apiextensions.k8s.io/v1")
        name = definition["metadata"]["name"]
        try:
            await definitions.create(definition)
        except Refused as refusal:
            if refusal.reason != "AlreadyExists":
                raise
        await definitions.until(name, lambda seen: seen is not None and _established(seen))
        spec = definition["spec"]
        group_version = f"{spec['group']}/{spec['versions'][0]['name']}"
        plural = spec["names"]["plural"]
        resource = self(plural, group_version) if spec["scope"] == "Namespaced" else self.cluster(plural, group_version)

        async def served() -> bool:
            async with await self.send("GET", resource.path, query={"limit": 1}) as response:
                return response.status != HTTPStatus.NOT_FOUND

        # Established is True a moment before the resource is served.
        await self.eventually(served)
        return resource

    async def eventually(self, true: Callable[[], Awaitable[bool]]) -> None:
        """Polls until `true` holds: for changes that no watch shows."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await true():  # noqa: ASYNC110 (the event is in another process)
                await asyncio.sleep(0.02)

    async def widgets(self) -> Collection:
        return await self.install(WIDGETS)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] = {},
        content_type: str | None = None,
        accept: str | None = None,
        headers: Mapping[str, str] = {},
    ) -> Json:
        """The decoded answer; raises `Refused` with any status of 300 and more."""
        response = await self.send(
            method, path, body, query=query, content_type=content_type, accept=accept, headers=headers
        )
        text = await response.read()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"message": text.decode(errors="replace")}
        if not response.ok:
            raise Refused(response.status, response.headers, answer)
        return answer

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] = {},
        content_type: str | None = None,
        accept: str | None = None,
        headers: Mapping[str, str] = {},
        stream: bool = False,
    ) -> Response:
        fields = {"Accept": accept or "application/json", **headers}
        if body is not None:
            fields["Content-Type"] = content_type or "application/json"
        question = urlencode({name: _text(value) for name, value in query.items() if value is not None})
        return await self.transport.request(
            Request(
                method=method,
                url=f"{self.base_url}{path}" + (f"?{question}" if question else ""),
                headers=Headers(fields),
                body=None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode(),
                timeouts=Timeouts(read=None, total=None) if stream else None,
            )
        )


def _established(definition: Json) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)


def _root(group_version: str) -> str:
    return f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
