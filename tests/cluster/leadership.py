"""The story of a leader that is paused, is succeeded, wakes up, and leads again: told once by `test_leader.py`, many
times in a row by `soak.py`.

What is promised is measured on the stamps of the processes themselves, so a slow observer changes nothing. A process
that did not get a processor cannot keep a promise in seconds: exactly that wait, as the kernel counts it, is added.
"""

import asyncio
import contextlib
import random
import secrets
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tests.cluster.operators import until
from tests.cluster.starvation import Starvation
from tests.rig import Part, Rig
from tests.rig.processes import Process, recorded

DURATION, RENEW_DEADLINE, RETRY = 4.0, 3.0, 0.5
TAKEOVER = DURATION + 2
#: A lease that was given back is free for whoever looks next.
RETURN = RETRY + 2


class Figures(NamedTuple):
    """Seconds."""

    takeover: float
    #: In the queue for a processor meanwhile: the process that takes over, and the servers that it asks.
    starved: float
    back: float


class Candidate:
    def __init__(self, rig: Rig, namespace: str, identity: str) -> None:
        self.identity = identity
        self._said: dict[str, list[float]] = defaultdict(list)
        self._read = 0
        options = map(str, (rig.admin_kubeconfig, namespace, identity, DURATION, RENEW_DEADLINE, RETRY))
        command = [sys.executable, str(Path(__file__).with_name("candidate.py")), *options]
        self._process = Process(f"{namespace}-{identity}", command, rig.directory)

    @contextlib.contextmanager
    def running(self) -> Iterator["Candidate"]:
        self._process.start()
        try:
            yield self
        finally:
            self._process.stop(kill=True)

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None, f"{self.identity} has ended ({self._process.exit_code}):\n{self._process.tail()}"
        return pid

    def said(self, word: str) -> list[float]:
        """When it said so."""
        with self._process.log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        # Beside the log lines of the elector.
        for line in text.decode().splitlines():
            said, _, stamp = line.partition(" ")
            if said in {"acted", "held-back", "renewed", "saw"}:
                self._said[said].append(float(stamp))
        return self._said[word]

    @property
    def acted(self) -> list[float]:
        return self.said("acted")

    def pause(self) -> float:
        """From this moment on it does nothing."""
        self._process.pause()
        return time.monotonic()

    def signal(self, number: signal.Signals) -> float:
        moment = time.monotonic()
        self._process.signal(number)
        return moment

    async def acts(self, since: float) -> float:
        """Its first act after that."""

        async def acted() -> float | None:
            return next((moment for moment in self.acted if moment > since), None)

        return await until(acted, f"{self.identity} acts") or 0.0

    async def sees(self) -> None:
        """It has seen the lease: only then is its wait for a silent holder one duration, and not one from its start."""

        async def saw() -> list[float]:
            assert self.pid
            return self.said("saw")

        await until(saw, f"{self.identity} sees the lease")


async def a_leader_is_paused_and_wakes_up(rig: Rig) -> Figures:
    namespace = f"leader-{secrets.token_hex(4)}"
    await asyncio.to_thread(rig.call, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    a, b = (Candidate(rig, namespace, identity) for identity in "ab")
    with a.running(), b.running():
        await a.sees()
        await b.sees()
        leader, standby = await who_leads(a, b)

        stopped = leader.pause()
        starvation = Starvation(standby.pid, *servers(rig))
        took_over = await standby.acts(since=stopped)
        starved = starvation.seconds()
        assert took_over - stopped <= TAKEOVER + starved
        # The lease was honoured to its end.
        assert took_over - leader.said("renewed")[-1] >= DURATION

        woke = leader.signal(signal.SIGCONT)
        await standby.acts(since=woke + 1)
        # Its work was still running when it woke up; the clock alone held it back.
        assert any(moment > stopped for moment in leader.said("held-back"))
        assert not [moment for moment in leader.acted if stopped < moment < took_over]

        starvation = Starvation(leader.pid, *servers(rig))
        ended = standby.signal(signal.SIGTERM)
        back = await leader.acts(since=ended)
        assert standby.acted[-1] < back
        assert back - ended <= RETURN + starvation.seconds()

    # Each change of power stands in the lease: two that acted side by side would change more often.
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/forebay"
    lease = await asyncio.to_thread(rig.call, "GET", path)
    acts = sorted((moment, each.identity) for each in (a, b) for moment in each.acted)
    reigns = [identity for identity, _ in groupby(identity for _, identity in acts)]
    assert len(reigns) - 1 <= lease["spec"]["leaseTransitions"]
    return Figures(took_over - stopped, starved, back - ended)


async def who_leads(a: Candidate, b: Candidate) -> tuple[Candidate, Candidate]:
    """The leader and the other one, at any point of the time between two renewals.

    Whoever came first; but on a starved machine it may have been succeeded since.
    """
    now = time.monotonic() + random.uniform(0, 2 * RETRY)

    async def acts() -> tuple[Candidate, Candidate] | None:
        last = {each: each.acted[-1] for each in (a, b) if each.acted}
        leader = max(last, key=lambda each: last[each], default=a)
        return (leader, b if leader is a else a) if last.get(leader, 0.0) > now else None

    pair = await until(acts, "one of them acts")
    assert pair is not None
    return pair


def servers(rig: Rig) -> list[int]:
    """The processes behind every answer, whoever has started them."""
    pids = (recorded(rig.directory / "pids" / f"{part}.pid") for part in (Part.ETCD, Part.API_SERVER))
    return [pid for pid in pids if pid is not None]
