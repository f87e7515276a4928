"""Leader election on a Lease, by the rules of client-go.

A candidate acquires the lease when it has no holder, or when the candidate *itself* has seen no change of the lease for
its duration: clocks of different machines are never compared. Every write is a compare-and-swap on the resourceVersion.
The leader renews every `retry` seconds and stops `renew_deadline` seconds after the start of its last successful
renewal, before another candidate may acquire the lease. `still_leader` holds even for a process that was paused.
"""

import asyncio
import math
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec
import structlog

from forebay.api.meta import ObjectMeta
from forebay.kube.client import Client
from forebay.kube.errors import AlreadyExists, ApiError, Conflict, KubeError, NotFound, Unreadable
from forebay.kube.events import EventRecorder
from forebay.kube.types import LEASES, Lease, LeaseSpec, micro_time, reference
from forebay.net import clock
from forebay.net.transport import TransportError

_R = TypeVar("_R")

log = structlog.get_logger(__name__)

_JITTER = 1.2
#: How often a candidate reads a lease that another holds, and the jitter, as parts of `retry`. The delay with which the
#: last renewal is seen delays the takeover: reads a whole `retry` apart would take longer than duration + 2 s.
_POLL, _POLL_JITTER = 0.4, 0.3
#: Seconds between the expiry of a lease and the attempt to acquire it: more than any rounding of the clock.
_AFTER_EXPIRY = 0.01


class LeadershipLost(KubeError):
    """The lease was not renewed in time, or another process holds it. The work was cancelled."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Lease duration, renew deadline and retry period, in seconds."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > self.retry * _JITTER > 0:
            raise ValueError(f"a lease needs duration > renew deadline > {_JITTER} x retry > 0, not {self}")


def unique_identity() -> str:
    """A name that no other process has: two candidates of one name would both lead."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """A candidate for leadership. Needs its own client (`forebay.kube.connection.election_client`), so that other
    requests cannot delay a renewal.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        terms: Terms = Terms(),  # noqa: B008 (immutable)
        recorder: EventRecorder | None = None,
        on_new_leader: Callable[[str], None] | None = None,
        release_timeout: Callable[[], float] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`release_timeout`: seconds that the release may take when it begins, at most half of the renewal deadline."""
        self.identity = identity
        self.terms = terms
        #: Why the last attempt to acquire or renew failed; None after a success.
        self.last_error: str | None = None
        #: Why the last attempt got no response; None once the server has responded, whoever leads.
        self.unreachable: str | None = None
        self._client = client
        self._namespace = namespace
        self._name = name
        self._recorder = recorder
        self._on_new_leader = on_new_leader
        self._release_timeout = release_timeout
        self._rng = rng or random.Random()  # noqa: S311 (jitter)
        self._log = log.bind(lease=f"{namespace}/{name}", identity=identity)
        self._lease: Lease | None = None
        #: Loop times of the last change of the lease that we saw, and of the start of our last successful renewal.
        self._changed_at = 0.0
        self._renewed_at: float | None = None

    @property
    def leader(self) -> str:
        """Identity of the holder when the lease was last read; empty for none."""
        return (self._lease.spec.holder_identity or "") if self._lease is not None else ""

    def still_leader(self, now: float | None = None) -> bool:
        """Whether this process leads at `now` (loop time). Check before each action that only one leader may do."""
        if self._renewed_at is None:
            return False
        now = asyncio.get_running_loop().time() if now is None else now
        return now < self._renewed_at + self.terms.renew_deadline

    async def run(self, lead: Callable[[], Awaitable[_R]]) -> _R:
        """Waits until elected, runs `lead()` while renewing the lease, and releases the lease when `lead()` has ended.

        When the lease is lost, `run` cancels `lead()`, waits for its end and raises `LeadershipLost`. When `run` itself
        is cancelled, it cancels `lead()`, and releases the lease only after `lead()` has ended.
        """
        await self._acquire()
        work = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._renew_until_lost(), name=f"renew lease {self._name}")
        try:
            await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await renewing
            return await work
        finally:
            try:
                await _stop(work)
            finally:
                # Even if the wait was cancelled: a lease under which nothing runs must not be renewed.
                renewing.cancel()
            await _stop(renewing)
            await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt(self.terms.renew_deadline / 2):  # noqa: ASYNC110 (the server sends no event)
            await asyncio.sleep(self._next_wait())
        self._announce("became leader")

    def _next_wait(self) -> float:
        """Seconds until the next attempt, at the latest when the lease of another holder expires."""
        wait = self.terms.retry * (1 + self._rng.random() * _JITTER)
        left = self._expires_at() - asyncio.get_running_loop().time() if self.leader else 0.0
        if left <= 0:
            return wait
        if self.unreachable is None:
            wait = self.terms.retry * (_POLL + self._rng.random() * _POLL_JITTER)
        return min(wait, left + _AFTER_EXPIRY)

    async def _renew_until_lost(self) -> None:
        loop = asyncio.get_running_loop()
        while self._renewed_at is not None:
            deadline = self._renewed_at + self.terms.renew_deadline
            await asyncio.sleep(min(self.terms.retry, max(0.0, deadline - loop.time())))
            left = deadline - loop.time()
            if left <= 0:
                break
            # Half of the deadline per attempt: one dead connection leaves time for a second attempt.
            await self._attempt(min(left, self.terms.renew_deadline / 2))
        self._announce("stopped leading")
        raise LeadershipLost(
            f"lease {self._namespace}/{self._name} was not renewed within {self.terms.renew_deadline:g} s: "
            f"{self.last_error or 'this process was paused'}"
        )

    async def _attempt(self, limit: float) -> bool:
        """Acquires or renews the lease. False if another process holds it or the request failed."""
        previous = self.leader
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(limit):
                held = await self._acquire_or_renew()
        except (AlreadyExists, Conflict) as error:
            self.unreachable = None
            return self._failed(str(error))
        except (ApiError, Unreadable, TransportError) as error:
            self.unreachable = str(error)
            return self._failed(self.unreachable)
        except TimeoutError:
            self.unreachable = f"no answer within {limit:g} s"
            return self._failed(self.unreachable)
        self.unreachable = None
        self.last_error = None if held else f"{self.leader} holds the lease"
        # The start, not the end: no other candidate can have seen this renewal before its start.
        self._renewed_at = started if held else None
        if self.leader != previous and self._on_new_leader is not None:
            self._on_new_leader(self.leader)
        return held

    def _failed(self, error: str) -> Literal[False]:
        if error != self.last_error:
            self._log.warning("lease attempt failed", error=error)
        self.last_error = error
        return False

    async def _acquire_or_renew(self) -> bool:
        if self._lease is not None and self.leader == self.identity:
            # The lease is most likely as we last wrote it: one request instead of two.
            with suppress(Conflict, NotFound):
                await self._write(self._lease)
                return True
        try:
            self._store(await self._client.get(LEASES, self._name, self._namespace))
        except NotFound:
            metadata = ObjectMeta(name=self._name, namespace=self._namespace)
            spec = self._claim(LeaseSpec(lease_transitions=-1))
            self._store(await self._client.create(LEASES, Lease(metadata=metadata, spec=spec)))
            return True
        if self.leader not in {"", self.identity} and asyncio.get_running_loop().time() < self._expires_at():
            return False
        assert self._lease is not None
        await self._write(self._lease)
        return True

    def _store(self, lease: Lease) -> None:
        # Any write counts as a renewal, even one with the same `renewTime`: the clock of the holder may stand still.
        if self._lease is None or lease.resource_version != self._lease.resource_version:
            self._changed_at = asyncio.get_running_loop().time()
        self._lease = lease

    def _expires_at(self) -> float:
        """Loop time at which the lease expires: its duration after the last change that we saw."""
        assert self._lease is not None
        return self._changed_at + (self._lease.spec.lease_duration_seconds or self.terms.duration)

    def _claim(self, spec: LeaseSpec) -> LeaseSpec:
        now = micro_time(clock.now())
        ours = spec.holder_identity == self.identity
        return msgspec.structs.replace(
            spec,
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self.terms.duration),
            acquire_time=spec.acquire_time if ours else now,
            renew_time=now,
            lease_transitions=(spec.lease_transitions or 0) + (0 if ours else 1),
        )

    async def _write(self, lease: Lease) -> None:
        written = Lease(metadata=lease.metadata, spec=self._claim(lease.spec))
        self._store(await self._client.update(LEASES, written))

    async def _release(self) -> None:
        """Releases the lease, so that another candidate need not wait for its expiry."""
        self._renewed_at = None
        with suppress(ApiError, Unreadable, TransportError, TimeoutError):
            limit = self.terms.renew_deadline / 2
            async with asyncio.timeout(limit if self._release_timeout is None else min(limit, self._release_timeout())):
                while self._lease is not None and self.leader == self.identity:
                    now = micro_time(clock.now())
                    spec = msgspec.structs.replace(
                        self._lease.spec, holder_identity="", lease_duration_seconds=1, acquire_time=now, renew_time=now
                    )
                    try:
                        self._store(await self._client.update(LEASES, Lease(metadata=self._lease.metadata, spec=spec)))
                    except Conflict:
                        # A renewal in flight when we stopped may have arrived.
                        self._store(await self._client.get(LEASES, self._name, self._namespace))

    def _announce(self, what: str) -> None:
        self._log.info(what)
        if self._recorder is not None and self._lease is not None:
            about = reference(LEASES, self._lease)
            self._recorder.event(about, reason="LeaderElection", note=f"{self.identity} {what}")


async def _stop(task: asyncio.Future[Any]) -> None:
    """Cancels a task and waits for its end, ignoring its outcome."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
