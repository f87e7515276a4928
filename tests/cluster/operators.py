"""The operator as it runs for users: a process of its own, with a log, pages and an identity."""

import asyncio
import http.client
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.rig import Rig
from tests.rig.control_plane import free_ports
from tests.rig.processes import Process

T = TypeVar("T")

#: For what is no promise in seconds: far longer than a loaded machine takes, short enough to end.
PATIENCE = 60.0


async def until(answer: Callable[[], Awaitable[T]], what: str, within: float = PATIENCE) -> T:
    """Its answer, once it has one. `what` is for the message when it never has."""
    deadline = time.monotonic() + within
    while not (found := await answer()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        await asyncio.sleep(0.05)
    return found


async def until_progress_ends(
    answer: Callable[[], Awaitable[T]], progress: Callable[[], object], what: str, without: float = PATIENCE
) -> T:
    """Its answer, however long it takes while `progress` goes on changing: a busy machine is slow, and not stuck."""
    last, deadline = progress(), time.monotonic() + without
    while not (found := await answer()):
        if (now := progress()) != last:
            last, deadline = now, time.monotonic() + without
        assert time.monotonic() < deadline, f"nothing has changed for {without:g} s, and not yet: {what}"
        await asyncio.sleep(0.05)
    return found


class OperatorProcess:
    """`forebay run`, or with a `lease` of so many seconds what is like it but for that (`hasty_operator`), or with a
    `program` beside this file what is like it but for what that says.
    """

    def __init__(
        self,
        rig: Rig,
        user: str,
        kubeconfig: Path,
        home: str,
        environment: Mapping[str, str] | None = None,
        *,
        lease: float | None = None,
        program: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.user = user
        self._port = free_ports("pages")["pages"]
        given = {
            "kubeconfig": str(kubeconfig),
            "namespace": home,
            "health-server-address": f"127.0.0.1:{self._port}",
            "metrics-bind-address": f"127.0.0.1:{self._port}",
            "log-server-address": "127.0.0.1:0",
            "log-level": "info",
            "log-format": "json",
            **(settings or {}),
        }
        command = [sys.executable, "-m", "forebay", "run", *(f"--{name}={value}" for name, value in given.items())]
        if lease is not None:
            program, environment = "hasty_operator.py", {**(environment or {}), "HASTY_LEASE": str(lease)}
        if program is not None:
            variables = {f"FOREBAY_{name.upper().replace('-', '_')}": value for name, value in given.items()}
            environment = {**(environment or {}), **variables}
            command = [sys.executable, str(Path(__file__).with_name(program))]
        self._process = Process(user, command, rig.directory, environment)

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop(kill=True)

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None, f"{self.user} has ended ({self._process.exit_code}):\n{self._process.tail(30)}"
        return pid

    def kill(self) -> float:
        self._process.signal(signal.SIGKILL)
        return time.time()

    def pause(self) -> float:
        self._process.pause()
        return time.time()

    def resume(self) -> float:
        self._process.signal(signal.SIGCONT)
        return time.time()

    async def leave(self) -> None:
        """SIGTERM, and its end in good order."""
        self._process.signal(signal.SIGTERM)

        async def ended() -> bool:
            return self._process.exit_code is not None

        await until(ended, f"{self.user} ends")
        assert self._process.exit_code == 0, self._process.tail(30)
        assert "Traceback" not in self._process.tail(10_000)

    def said(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of this kind."""
        lines = (json.loads(line) for line in self._process.tail(10_000).splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    async def identity(self) -> str:
        async def started() -> list[dict[str, Any]]:
            assert self.pid
            return self.said("operator started")

        return str((await until(started, f"{self.user} starts"))[0]["identity"])

    async def page(self, path: str) -> tuple[int, str]:
        """Status and text; (0, why) where nobody serves."""
        return await asyncio.to_thread(self._page, path)

    def _page(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    async def is_ready(self) -> bool:
        assert self.pid
        return (await self.page("/readyz"))[0] == 200

    async def why_not_ready(self) -> str:
        """Empty while it is ready. It lives all the same, and says so."""
        assert self.pid
        assert (await self.page("/healthz"))[0] == 200
        status, text = await self.page("/readyz")
        return text if status == 503 else ""

    async def objects(self) -> dict[str, int]:
        """How many of each kind its views hold."""
        _, text = await self.page("/metrics")
        prefix = 'forebay_informer_objects{resource="'
        found = (line.removeprefix(prefix).split('"} ') for line in text.splitlines() if line.startswith(prefix))
        return {resource.partition(".")[0]: int(float(count)) for resource, count in found}


@asynccontextmanager
async def leaders_killed(
    replicas: "Sequence[OperatorProcess]",
    holder: Callable[[], Awaitable[str]],
    progress: Callable[[], object],
    *,
    every: float = 2.0,
    mercy: int = 10,
) -> AsyncIterator[set[str]]:
    """Kills whoever leads every two seconds, and starts it again. Yields the identities that have fallen so far.

    On a busy machine two seconds are too few to do anything at all, and such a story would never end: without progress
    a leader is given `mercy` seconds more.
    """
    fallen: set[str] = set()

    async def leader() -> OperatorProcess | None:
        held = await holder()
        # Of each life: its log goes on where that of the last one broke off.
        lives = ((each, each.said("operator started")) for each in replicas)
        known = (each for each, said in lives if said and said[-1]["identity"] == held)
        return None if held in fallen else next(known, None)

    async def kill() -> None:
        while True:
            before = progress()
            await asyncio.sleep(every)
            for _ in range(mercy):
                if progress() == before:
                    await asyncio.sleep(1)
            victim = await until(leader, "somebody leads")
            assert victim is not None
            fallen.add(victim.said("operator started")[-1]["identity"])
            victim.stop()
            victim.start()

    killing = asyncio.create_task(kill())
    try:
        yield fallen
    finally:
        killing.cancel()
        await asyncio.wait({killing})
