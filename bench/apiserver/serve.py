"""Serves encoded pods as an API server would, from files by `sendfile`, so that the client is what is measured.

Knows a paged list, a WatchList and a watch. `POST /burst` lets the MODIFIED events go to every watch, open or to come,
until `POST /hold`.
Everything is encoded before the port is printed; a machine with few cores has them for the client then.
"""

import argparse
import itertools
import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit

from apiserver.pods import FIRST_VERSION, pods

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


class Stored:
    """Pieces one after the other in a file of their own, and where each begins."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the server lives)
        self.starts = [0]
        for piece in pieces:
            self.file.write(piece)
            self.starts.append(self.starts[-1] + len(piece))
        self.file.flush()

    def send(self, to: socket.socket, first: int = 0, beyond: int | None = None, *, less: int = 0) -> None:
        at = self.starts[first]
        end = self.starts[-1 if beyond is None else beyond] - less
        while at < end:
            at += os.sendfile(to.fileno(), self.file.fileno(), at, end - at)

    def size(self, first: int, beyond: int) -> int:
        return self.starts[beyond] - self.starts[first]


class Cluster:
    def __init__(self, count: int, events: int, *, listed: bool) -> None:
        self.count = count
        self.version = FIRST_VERSION + count
        self.burst = threading.Event()
        self.listed = Stored(pod + b"," for pod in pods(count)) if listed else None
        self.initial = Stored(
            itertools.chain((event("ADDED", pod) for pod in pods(count)), [event("BOOKMARK", self.end_mark())])
        )
        self.changes = Stored(self.changed(events))

    def end_mark(self) -> bytes:
        meta = {
            "resourceVersion": str(self.version),
            "creationTimestamp": None,
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
        mark = {"metadata": meta, "spec": {"containers": None}, "status": {}}
        return json.dumps(mark, separators=(",", ":")).encode()

    def changed(self, events: int) -> Iterator[bytes]:
        for number, pod in zip(range(events), itertools.cycle(pods(min(events, self.count))), strict=False):
            before = f'"resourceVersion":"{FIRST_VERSION + number % self.count}"'.encode()
            after = f'"resourceVersion":"{self.version + number + 1}"'.encode()
            yield event("MODIFIED", pod.replace(before, after, 1))

    def send_page(self, to: socket.socket, start: int, limit: int) -> None:
        assert self.listed is not None
        beyond = min(start + limit, self.count) if limit else self.count
        meta: dict[str, Any] = {"resourceVersion": str(self.version)}
        if beyond < self.count:
            meta |= {"continue": str(beyond), "remainingItemCount": self.count - beyond}
        head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{json.dumps(meta)},"items":['.encode()
        # The comma behind the last pod of the page is left out, and `]}` put in.
        length = len(head) + self.listed.size(start, beyond) - 1 + 2
        to.sendall(HEAD + f"Content-Length: {length}\r\n\r\n".encode() + head)
        self.listed.send(to, start, beyond, less=1)
        to.sendall(b"]}")


def event(kind: str, body: bytes) -> bytes:
    """Its own HTTP chunk, as Go's flushes make it."""
    line = b'{"type":"%b","object":{"kind":"Pod","apiVersion":"v1",%b}\n' % (kind.encode(), body[1:])
    return b"%x\r\n%b\r\n" % (len(line), line)


def converse(cluster: Cluster, connection: socket.socket) -> None:
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
            while b"\r\n\r\n" in received:
                head, _, received = received.partition(b"\r\n\r\n")
                answer(cluster, connection, head.split(b" ", 2)[1].decode())
    except ConnectionError:
        pass  # the client has seen enough
    finally:
        connection.close()


def answer(cluster: Cluster, connection: socket.socket, target: str) -> None:
    url = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    if url.path in {"/burst", "/hold"}:
        cluster.burst.set() if url.path == "/burst" else cluster.burst.clear()
        connection.sendall(HEAD + b"Content-Length: 0\r\n\r\n")
    elif query.get("watch") in {"true", "True", "1"}:
        connection.sendall(CHUNKED)
        if query.get("sendInitialEvents") == "true":
            cluster.initial.send(connection)
        cluster.burst.wait()
        cluster.changes.send(connection)
    else:
        cluster.send_page(connection, int(query.get("continue") or 0), int(query.get("limit") or 0))


def serve(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=converse, args=(cluster, connection), daemon=True).start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--no-list", action="store_true", help="only WatchList: a list of very many pods takes room")
    given = parser.parse_args()
    serve(Cluster(given.pods, given.events, listed=not given.no_list))
