"""Leader election on a Lease: of several processes, one acts.

The rules, as in client-go. A candidate takes the lease when nobody holds it, or when it has *itself* seen no change for
the holder's whole duration: other machines' clocks are never compared. Every write is a compare-and-swap on the
resourceVersion. The leader renews every `retry` and stops acting `renew_deadline` after the start of its last renewal
that worked, well before anybody else may take over; `still_leader` says so even to a process that was paused meanwhile.
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
#: How often a lease that somebody holds is looked at, as parts of `retry`. As late as the holder's last renewal is seen
#: it is succeeded: with looks a whole `retry` apart, not within its duration and two seconds.
_LOOK, _LOOK_JITTER = 0.4, 0.3
#: Seconds after a lease has lapsed at which it is asked for: later than any rounding of the clock.
_AFTER = 0.01


class LeadershipLost(KubeError):
    """The lease could not be renewed in time, or somebody else has it. The work was stopped."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > self.retry * _JITTER > 0:
            raise ValueError(f"a lease needs duration > renew deadline > {_JITTER} x retry > 0, not {self}")


def unique_identity() -> str:
    """This process and no other: two that shared a name would both lead."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """One candidate. Give it a client of its own (see `forebay.kube.connection.election_client`): a burst of other
    requests must not delay a renewal.
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
        rng: random.Random | None = None,
    ) -> None:
        self.identity = identity
        self.terms = terms
        #: Why the last try failed, for whoever asks why nobody leads; None after one that worked.
        self.trouble: str | None = None
        #: What kept the last try from being answered; None once the server has answered, whoever leads.
        self.out_of_reach: str | None = None
        self._client = client
        self._namespace = namespace
        self._name = name
        self._recorder = recorder
        self._on_new_leader = on_new_leader
        self._rng = rng or random.Random()  # noqa: S311 (jitter)
        self._log = log.bind(lease=f"{namespace}/{name}", identity=identity)
        self._lease: Lease | None = None
        #: When a change of the lease was last seen, and when our last successful renewal began; on the loop's clock.
        self._seen_at = 0.0
        self._renewed_at: float | None = None

    @property
    def leader(self) -> str:
        """Who held the lease when it was last seen; empty for nobody."""
        return (self._lease.spec.holder_identity or "") if self._lease is not None else ""

    def still_leader(self, now: float | None = None) -> bool:
        """Whether this process may act at `now`, on the loop's clock. Ask before each act that must not be doubled."""
        if self._renewed_at is None:
            return False
        now = asyncio.get_running_loop().time() if now is None else now
        return now < self._renewed_at + self.terms.renew_deadline

    async def run(self, lead: Callable[[], Awaitable[_R]]) -> _R:
        """Wait to be elected, then do `lead()` while renewing, and give the lease back when it has ended.

        When the lease is lost, `lead()` is cancelled, waited for, and `LeadershipLost` raised. Cancelling `run` cancels
        `lead()` in the same way; the lease is kept until it has really stopped, and released only then.
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
                # Also where the wait itself was cancelled: a lease that nobody works under must not live on.
                renewing.cancel()
            await _stop(renewing)
            await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt(self.terms.renew_deadline / 2):  # noqa: ASYNC110 (the server sends no event)
            await asyncio.sleep(self._pause())
        self._tell("became leader")

    def _pause(self) -> float:
        """Until the next look at a lease that is somebody else's: not later than when it lapses."""
        pause = self.terms.retry * (1 + self._rng.random() * _JITTER)
        left = self._lapses_at() - asyncio.get_running_loop().time() if self.leader else 0.0
        if left <= 0:
            return pause
        if self.out_of_reach is None:
            pause = self.terms.retry * (_LOOK + self._rng.random() * _LOOK_JITTER)
        return min(pause, left + _AFTER)

    async def _renew_until_lost(self) -> None:
        loop = asyncio.get_running_loop()
        while self._renewed_at is not None:
            deadline = self._renewed_at + self.terms.renew_deadline
            await asyncio.sleep(min(self.terms.retry, max(0.0, deadline - loop.time())))
            left = deadline - loop.time()
            if left <= 0:
                break
            # An attempt gets half of the deadline, so that one dead connection leaves time for a second attempt.
            await self._attempt(min(left, self.terms.renew_deadline / 2))
        self._tell("stopped leading")
        raise LeadershipLost(
            f"lease {self._namespace}/{self._name} was not renewed within {self.terms.renew_deadline:g} s: "
            f"{self.trouble or 'this process was paused'}"
        )

    async def _attempt(self, limit: float) -> bool:
        """Take or renew the lease. False when somebody else has it or the server could not be asked."""
        before = self.leader
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(limit):
                held = await self._take()
        except (AlreadyExists, Conflict) as error:
            self.out_of_reach = None
            return self._failed(str(error))
        except (ApiError, Unreadable, TransportError) as error:
            self.out_of_reach = str(error)
            return self._failed(self.out_of_reach)
        except TimeoutError:
            self.out_of_reach = f"no answer within {limit:g} s"
            return self._failed(self.out_of_reach)
        self.out_of_reach = None
        self.trouble = None if held else f"it is held by {self.leader}"
        # The start, not the end: nobody can have seen this renewal before it began.
        self._renewed_at = started if held else None
        if self.leader != before and self._on_new_leader is not None:
            self._on_new_leader(self.leader)
        return held

    def _failed(self, why: str) -> Literal[False]:
        if why != self.trouble:
            self._log.warning("the lease could not be asked for", why=why)
        self.trouble = why
        return False

    async def _take(self) -> bool:
        if self._lease is not None and self.leader == self.identity:
            # What we wrote last is most likely still there: one request instead of two.
            with suppress(Conflict, NotFound):
                await self._write(self._lease)
                return True
        try:
            self._saw(await self._client.get(LEASES, self._name, self._namespace))
        except NotFound:
            metadata = ObjectMeta(name=self._name, namespace=self._namespace)
            spec = self._claim(LeaseSpec(lease_transitions=-1))
            self._saw(await self._client.create(LEASES, Lease(metadata=metadata, spec=spec)))
            return True
        if self.leader not in {"", self.identity} and asyncio.get_running_loop().time() < self._lapses_at():
            return False
        assert self._lease is not None
        await self._write(self._lease)
        return True

    def _saw(self, lease: Lease) -> None:
        # Any write counts as a sign of life, even one that leaves `renewTime` alone: a holder whose clock stands
        # still is alive too.
        if self._lease is None or lease.resource_version != self._lease.resource_version:
            self._seen_at = asyncio.get_running_loop().time()
        self._lease = lease

    def _lapses_at(self) -> float:
        """When the holder was not heard of for as long as it asked to be waited for, on our own clock."""
        assert self._lease is not None
        return self._seen_at + (self._lease.spec.lease_duration_seconds or self.terms.duration)

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
        self._saw(await self._client.update(LEASES, written))

    async def _release(self) -> None:
        """Let the next one in at once. Where that fails, the lease runs out by itself."""
        self._renewed_at = None
        with suppress(ApiError, Unreadable, TransportError, TimeoutError):
            async with asyncio.timeout(self.terms.renew_deadline / 2):
                while self._lease is not None and self.leader == self.identity:
                    now = micro_time(clock.now())
                    spec = msgspec.structs.replace(
                        self._lease.spec, holder_identity="", lease_duration_seconds=1, acquire_time=now, renew_time=now
                    )
                    try:
                        self._saw(await self._client.update(LEASES, Lease(metadata=self._lease.metadata, spec=spec)))
                    except Conflict:
                        # The renewal that was under way when we stopped may have arrived.
                        self._saw(await self._client.get(LEASES, self._name, self._namespace))

    def _tell(self, what: str) -> None:
        self._log.info(what)
        if self._recorder is not None and self._lease is not None:
            about = reference(LEASES, self._lease)
            self._recorder.event(about, reason="LeaderElection", note=f"{self.identity} {what}")


async def _stop(task: asyncio.Future[Any]) -> None:
    """Cancel and wait until it has ended, however it ends: its outcome was told, or no longer matters."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
