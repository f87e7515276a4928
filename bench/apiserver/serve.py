"""Serves encoded pods as an API server would, as fast as asyncio can write, so that the client is what is measured.

Knows three requests: a paged list, a watch, and a WatchList. `POST /burst?events=N` sends N MODIFIED events to every
open watch, now or as soon as it is open. Everything is encoded before the port is printed.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from apiserver.pods import FIRST_VERSION, pods

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
#: Events per write to the socket. Each is its own HTTP chunk, as Go's flushes make it.
BATCH = 32


class Cluster:
    def __init__(self, count: int) -> None:
        self.pods = list(pods(count))
        self.version = FIRST_VERSION + count
        self.burst = 0
        self.armed = asyncio.Event()

    def page(self, start: int, limit: int) -> list[bytes]:
        items = self.pods[start : start + limit] if limit else self.pods
        meta: dict[str, Any] = {"resourceVersion": str(self.version)}
        rest = len(self.pods) - start - len(items)
        if rest:
            meta |= {"continue": str(start + len(items)), "remainingItemCount": rest}
        head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{json.dumps(meta)},"items":['.encode()
        body = [head, b",".join(items), b"]}\n"]
        length = sum(map(len, body))
        return [HEAD, f"Content-Length: {length}\r\n\r\n".encode(), *body]

    def initial(self) -> Iterator[bytes]:
        for pod in self.pods:
            yield event("ADDED", pod)
        mark = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "resourceVersion": str(self.version),
                "creationTimestamp": None,
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
            "spec": {"containers": None},
            "status": {},
        }
        yield event("BOOKMARK", json.dumps(mark, separators=(",", ":")).encode())

    def changes(self, count: int) -> Iterator[bytes]:
        for number in range(count):
            index = number % len(self.pods)
            before = f'"resourceVersion":"{FIRST_VERSION + index}"'.encode()
            after = f'"resourceVersion":"{self.version + number + 1}"'.encode()
            yield event("MODIFIED", self.pods[index].replace(before, after, 1))


def event(kind: str, body: bytes) -> bytes:
    line = b'{"type":"%b","object":{"kind":"Pod","apiVersion":"v1",%b}\n' % (kind.encode(), body[1:])
    return b"%x\r\n%b\r\n" % (len(line), line)


class Connection(asyncio.Protocol):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.received = b""
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.watch: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=1 << 20)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.watch:
            self.watch.cancel()

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            self.answer(head.split(b" ", 2)[1].decode())

    def answer(self, target: str) -> None:
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/burst":
            self.cluster.burst = int(query["events"])
            self.cluster.armed.set()
            self.transport.write(HEAD + b"Content-Length: 0\r\n\r\n")
        elif query.get("watch") in {"true", "True", "1"}:
            self.transport.write(CHUNKED)
            self.watch = asyncio.create_task(self.send_events(initial=query.get("sendInitialEvents") == "true"))
        else:
            self.transport.writelines(self.cluster.page(int(query.get("continue") or 0), int(query.get("limit") or 0)))

    async def send_events(self, *, initial: bool) -> None:
        if initial:
            await self.send(self.cluster.initial())
        await self.cluster.armed.wait()
        await self.send(self.cluster.changes(self.cluster.burst))

    async def send(self, events: Iterator[bytes]) -> None:
        batch: list[bytes] = []
        for line in events:
            batch.append(line)
            if len(batch) == BATCH:
                await self.flush(batch)
                batch = []
        await self.flush(batch)

    async def flush(self, batch: list[bytes]) -> None:
        self.transport.write(b"".join(batch))
        await asyncio.sleep(0)
        await self.may_write.wait()


async def serve(count: int) -> None:
    cluster = Cluster(count)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(cluster), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--pods", type=int, required=True)
    asyncio.run(serve(arguments.parse_args().pods))
