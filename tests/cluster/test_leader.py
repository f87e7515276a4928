"""Leader election between processes that are really paused and really end."""

import asyncio
import contextlib
import secrets
import signal
import sys
import time
from pathlib import Path

import pytest

DURATION, RENEW_DEADLINE, RETRY = 3.0, 2.0, 0.5


class Candidate:
    """A child process, and what it has said so far."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.acted: list[float] = []
        self.held_back: list[float] = []
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self, rig, namespace):
        terms = map(str, (DURATION, RENEW_DEADLINE, RETRY))
        script = Path(__file__).with_name("candidate.py")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, script, rig.admin_kubeconfig, namespace, self.identity, *terms),
            stdout=asyncio.subprocess.PIPE,
        )
        listening = asyncio.create_task(self._listen())
        try:
            yield self
        finally:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
            await listening

    async def _listen(self) -> None:
        async for line in self._process.stdout:
            # Beside the log lines of the elector.
            word, _, stamp = line.decode().strip().partition(" ")
            if word in {"acted", "held-back"}:
                (self.acted if word == "acted" else self.held_back).append(float(stamp))
                self._news.set()

    def signal(self, number: signal.Signals) -> float:
        self._process.send_signal(number)
        return time.monotonic()

    async def acts(self, *, since: float, within: float) -> float:
        """The first act after `since`. How long it may take is part of the promise."""
        async with asyncio.timeout(within):
            while not self.acted or self.acted[-1] <= since:
                self._news.clear()
                await self._news.wait()
        return next(moment for moment in self.acted if moment > since)


def reigns(*candidates: Candidate) -> str:
    """Who acted, in order of time: `aba` is two changes of power."""
    acts = sorted((moment, each.identity) for each in candidates for moment in each.acted)
    names = [identity for _, identity in acts]
    return "".join(name for name, before in zip(names, ["", *names], strict=False) if name != before)


@pytest.mark.real_time
async def test_a_leader_that_was_paused_never_acts_beside_its_successor(rig):
    namespace = f"leader-{secrets.token_hex(4)}"
    await asyncio.to_thread(rig.call, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    a, b = Candidate("a"), Candidate("b")
    async with a.running(rig, namespace):
        await a.acts(since=0, within=10)
        async with b.running(rig, namespace):
            # B must have seen the lease before its holder falls silent: only then is the wait one lease long.
            await a.acts(since=time.monotonic() + 2 * RETRY + 1, within=5)

            stopped = a.signal(signal.SIGSTOP)
            took_over = await b.acts(since=stopped, within=DURATION + 2)
            assert took_over - stopped > DURATION - 2 * RETRY
            assert a.acted[-1] < took_over

            woke = a.signal(signal.SIGCONT)
            await b.acts(since=woke + 1, within=3)
            # Its work was still running when it woke up; the clock alone held it back.
            assert any(moment > stopped for moment in a.held_back)
            assert a.acted[-1] < stopped + 0.1

            ended = b.signal(signal.SIGTERM)
            came_back = await a.acts(since=ended, within=3 * RETRY + 2)
            assert b.acted[-1] < came_back

    assert reigns(a, b) == "aba"
