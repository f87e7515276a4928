"""A minimal API server for pods, and a network in front of it with injected faults.

The model is what the informer's tests compare with: a version counter, a history that can be compacted, lists in pages
of one version, watches that resume, bookmarks, and WatchList unless it is switched off.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from forebay.net.transport import AnswerCut, AnswerLost, NeverSent, Request, Response

URL = "http://cluster"
BOOKMARK_EVERY = 60.0


def status(code: int, reason: str, message: str = "", **details) -> dict:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    return body | {"reason": reason, "message": message or reason, **({"details": details} if details else {})}


def answer(code: int, body: dict, **headers: str) -> Response:
    return Response(code, {"Content-Type": "application/json", **headers}, json.dumps(body).encode())


def line(kind: str, body: dict) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


class ModelServer:
    """Pods only. `__call__` is a `Handler`; the other methods are what other clients of the cluster do."""

    def __init__(self, *, watch_list: bool = True, expired_as: str = "event") -> None:
        self.watch_list = watch_list
        #: A watch from a compacted version: 200 and an ERROR event, as real servers answer, or 410 right away.
        self.expired_as = expired_as
        self.version = 10
        self.pods: dict[str, dict] = {}
        self.requests: list[str] = []
        self._uids = 0
        self._history: list[tuple[int, str, dict]] = []
        self._compacted = 0
        self._listings: dict[int, list[dict]] = {}
        self._news = asyncio.Event()

    def create(self, name: str, **spec) -> dict:
        self._uids += 1
        meta = {"name": name, "namespace": "default", "uid": f"uid-{self._uids}"}
        meta |= {"creationTimestamp": "2030-01-01T00:00:00Z", "labels": {"app": "web"}}
        containers = [{"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}]
        body = {"metadata": meta, "spec": {"containers": containers, **spec}, "status": {"phase": "Pending"}}
        return self._write("ADDED", body)

    def update(self, name: str, **spec) -> dict:
        body = self.pods[name]
        return self._write("MODIFIED", body | {"spec": body["spec"] | spec})

    def delete(self, name: str) -> dict:
        return self._write("DELETED", self.pods[name])

    def compact(self) -> None:
        """Compacts the history: older watches and continue tokens expire."""
        self._compacted = self.version
        self._history.clear()
        self._listings.clear()

    def restore(self, version: int, pods: dict[str, dict]) -> None:
        """Restores a backup: versions go backwards."""
        self.version, self.pods = version, dict(pods)
        self._compacted = 0
        self._history.clear()
        self._listings.clear()

    def _write(self, kind: str, body: dict) -> dict:
        self.version += 1
        body = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}
        if kind == "DELETED":
            del self.pods[body["metadata"]["name"]]
        else:
            self.pods[body["metadata"]["name"]] = body
        self._history.append((self.version, kind, body))
        news, self._news = self._news, asyncio.Event()
        news.set()
        return body

    async def __call__(self, request: Request) -> Response:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.url).query).items()}
        if query.get("watch") != "true":
            self.requests.append("list")
            return self._list(query)
        if query.get("sendInitialEvents") == "true":
            self.requests.append("watch list")
            if not self.watch_list:
                return answer(422, status(422, "Invalid", "sendInitialEvents is forbidden for watch"))
            return Response(200, {}, self._follow(None, float(query["timeoutSeconds"])))
        self.requests.append("watch")
        since = int(query["resourceVersion"])
        if since > self.version:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            return answer(504, status(504, "Timeout", "Too large resource version", causes=[cause]))
        if since < self._compacted and self.expired_as == "status":
            return answer(410, status(410, "Expired", "too old resource version"))
        return Response(200, {}, self._follow(since, float(query["timeoutSeconds"])))

    def _list(self, query: dict[str, str]) -> Response:
        start = 0
        version = self.version
        if "continue" in query:
            version, start = map(int, query["continue"].split("/"))
            if version not in self._listings:
                return answer(410, status(410, "Expired", "The provided continue parameter is too old"))
        pods = self._listings.setdefault(version, list(self.pods.values()))
        end = start + int(query.get("limit", len(pods)))
        meta = {"resourceVersion": str(version)} | ({"continue": f"{version}/{end}"} if end < len(pods) else {})
        return answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": pods[start:end]})

    async def _follow(self, since: int | None, lasts: float) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + lasts
        if since is None:
            since = self.version
            for pod in list(self.pods.values()):
                yield line("ADDED", pod)
            yield self._bookmark(since, initial=True)
        while loop.time() < end:
            if since < self._compacted:
                yield line("ERROR", status(410, "Expired", "too old resource version"))
                return
            news = self._news
            for version, kind, body in [change for change in self._history if change[0] > since]:
                since = version
                yield line(kind, body)
            if news is self._news and since >= self._compacted:
                try:
                    async with asyncio.timeout_at(min(end, loop.time() + BOOKMARK_EVERY)):
                        await news.wait()
                except TimeoutError:
                    yield self._bookmark(since)

    def _bookmark(self, version: int, *, initial: bool = False) -> bytes:
        meta: dict = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {"containers": None}, "status": {}}
        return line("BOOKMARK", body)


class Network:
    """The network between an informer and a handler. Delivers bodies in pieces, one every `pace` seconds."""

    def __init__(self, handler: Callable, *, piece: int = 1 << 20, pace: float = 0.0) -> None:
        self._handler = handler
        self.piece = piece
        self.pace = pace
        #: What becomes of the next requests: a status code to answer with, "refused", "lost", or "ok".
        self.faults: deque[int | str] = deque()
        self.asked_at: list[float] = []
        self._cuts: set[asyncio.Future[str]] = set()

    @property
    def streams(self) -> int:
        return len(self._cuts)

    def cut(self, how: str) -> None:
        """Ends every open stream: "end" cleanly, "reset" with an error, "halve" within the next piece."""
        for cut in self._cuts:
            if not cut.done():
                cut.set_result(how)

    async def __call__(self, request: Request) -> Response:
        self.asked_at.append(asyncio.get_running_loop().time())
        fault = self.faults.popleft() if self.faults else "ok"
        if fault == "refused":
            raise NeverSent(f"{request}: refused", request)
        if fault == "lost":
            raise AnswerLost(f"{request}: lost", request)
        if isinstance(fault, int):
            reason = {410: "Expired", 429: "TooManyRequests"}.get(fault, "InternalError")
            return answer(fault, status(fault, reason))
        response = await self._handler(request)
        if response.buffered is not None:
            return response
        return Response(response.status, response.headers, self._carry(request, response))

    async def _carry(self, request: Request, response: Response) -> AsyncIterator[bytes]:
        cut: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._cuts.add(cut)
        chunks = response.chunks()
        coming: asyncio.Future[bytes] | None = None
        try:
            while True:
                coming = asyncio.ensure_future(anext(chunks))
                await asyncio.wait({coming, cut}, return_when=asyncio.FIRST_COMPLETED)
                if cut.done() and cut.result() != "halve":
                    _ended(cut, request)
                    return
                try:
                    chunk = await coming
                except StopAsyncIteration:
                    return
                for at in range(0, len(chunk), self.piece):
                    await asyncio.sleep(self.pace)
                    piece = chunk[at : at + self.piece]
                    if cut.done():
                        yield piece[: len(piece) // 2]
                        _ended(cut, request)
                        return
                    yield piece
        finally:
            self._cuts.discard(cut)
            if coming is not None:
                coming.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await coming
            await response.close()


def _ended(cut: asyncio.Future[str], request: Request) -> None:
    if cut.result() != "end":
        raise AnswerCut(f"{request}: {cut.result()}", request)
