"""A replay of a trace: pods come and go, a policy buys, machines boot, idle machines are terminated.

Times are whole seconds. What is replayed are decisions: what is bought for which pods, and what is terminated. The
requests to an API server and the states in between are not, so that a month takes seconds.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from forebay.model.quantities import Resources, Usd, UsdPerHour
from forebay.model.sources import OfferKey
from forebay.model.workloads import Pod, PodShape
from forebay.planning.plan import Candidate
from forebay.simulate.policies import BuyingPolicy, HeldCapacity, at_prices, fits_alone
from forebay.simulate.price_history import Prices, PricesFrom
from forebay.simulate.traces import TracedPod

_HOUR: Final = 3600
#: Seconds until pods are looked at again that a budget holds.
_HELD_AGAIN: Final = 300
_SECOND: Final = timedelta(seconds=1)
#: A pod that needs longer than spot machines last would begin again for ever.
_MOST_RESTARTS: Final = 20


class ReplayTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How the simulated world behaves."""

    #: Seconds from the purchase of a machine until pods run on it.
    boot: int = 180
    #: Seconds without pods after which a machine is terminated.
    idle: int = 30
    #: Reclaims of a spot machine by its provider, in an hour on average. Its pods begin again.
    reclaims: float = 0.0
    seed: int = 1
    #: GPU-hours that all pods together may use in the window; none is started beyond. None: no budget.
    quota: int | None = None
    #: Seconds.
    window: int = 24 * _HOUR


class Moment(NamedTuple):
    """What is true from this second on."""

    at: int
    gpus_used: int
    gpus_rented: int
    waiting: int
    hourly: UsdPerHour


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    cost: Usd
    #: Seconds from submission to start, of every pod that ran.
    waits: tuple[int, ...]
    #: Pods that no machine fits.
    unserved: int
    #: Pods that still waited at the end: limits, stock or the budget never let them start; and those that lost their
    #: machine too often.
    left_waiting: int
    machines: int
    interruptions: int
    gpu_seconds_used: int
    gpu_seconds_rented: int
    #: Of runs that a reclaim ended, and that were begun again.
    gpu_seconds_lost: int
    timeline: tuple[Moment, ...]

    @property
    def utilisation(self) -> float:
        return self.gpu_seconds_used / self.gpu_seconds_rented if self.gpu_seconds_rented else 0.0


class _Machine:
    """One rented machine."""

    __slots__ = (
        *("bought", "candidate", "ended", "free", "gpus", "idle_since", "paid_until", "pods", "price", "ready"),
    )

    def __init__(self, candidate: Candidate, now: int, boot: int) -> None:
        self.candidate = candidate
        self.bought = now
        self.ready = now + boot
        self.free: Resources = candidate.node.allocatable
        self.gpus = candidate.offer.gpu_count
        #: Runs on it, by number.
        self.pods: set[int] = set()
        self.idle_since: int | None = None
        self.ended = False
        #: Its price now, and until when its cost is counted.
        self.price = candidate.offer.price
        self.paid_until = now


class _Run(NamedTuple):
    traced: TracedPod
    machine: _Machine
    start: int


class _Event(IntEnum):
    ARRIVE = 0
    END = 1
    IDLE = 2
    RECLAIM = 3
    BEGIN = 4
    #: Nothing but a time at which to look at waiting pods again.
    LOOK = 5
    PRICES = 6


class Replay:
    def __init__(
        self,
        trace: Sequence[TracedPod],
        policy: BuyingPolicy,
        candidates: Sequence[Candidate],
        terms: ReplayTerms,
        history: Sequence[PricesFrom] = (),
    ) -> None:
        """`history`: how prices and availability of the candidates change, in seconds of the trace."""
        self._trace = trace
        self._policy = policy
        self._candidates = candidates
        self._terms = terms
        self._history = history
        self._prices: dict[OfferKey, UsdPerHour | None] = {}
        self._rng = random.Random(terms.seed)  # noqa: S311 (a simulation, repeatable by its seed)
        self._machines: list[_Machine] = []
        self._held: Counter[OfferKey] = Counter()
        self._hourly = UsdPerHour.zero()
        self._pending: dict[str, TracedPod] = {}
        #: Pods on machines, also on those that still boot, by number; and the numbers of those that run.
        self._runs: dict[int, _Run] = {}
        self._running: set[int] = set()
        #: GPUs of the pods that run, and of all machines.
        self._in_use = self._gpus = 0
        #: End and GPUs of runs that a budget still counts.
        self._counted: list[tuple[int, int, int]] = []
        self._events: list[tuple[int, int, _Event, object]] = []
        self._numbers = 0
        self._servable: dict[int, tuple[PodShape, bool]] = {}
        self._cost = Usd(0)
        #: Seconds to the first start, by UID.
        self._waits: dict[str, int] = {}
        #: How often a pod has lost its machine, by UID.
        self._restarts: Counter[str] = Counter()
        self._unserved = self._interruptions = self._bought = self._given_up = 0
        self._used = self._rented = self._lost = 0
        self._timeline: list[Moment] = []

    def run(self, progress: Callable[[float], None] = lambda _: None) -> Outcome:
        """Everything until the last pod has ended; `progress` is told the share of the pods that have come."""
        for number, traced in enumerate(self._trace):
            # In the order of the trace, before anything else of that second.
            heapq.heappush(self._events, (traced.submitted, number - len(self._trace), _Event.ARRIVE, traced))
        for change in self._history:
            # Before the pods of that second.
            heapq.heappush(self._events, (change.at, -2 * len(self._trace) - 1, _Event.PRICES, change))
        arrived = 0
        while self._events and (self._runs or self._pending or arrived < len(self._trace) or self._machines):
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                *_, kind, about = heapq.heappop(self._events)
                arrived += kind == _Event.ARRIVE
                self._happen(kind, about, now)
            self._serve(now)
            self._note(now)
            if arrived % 100 == 0:
                progress(arrived / len(self._trace))
        progress(1.0)
        return Outcome(
            policy=self._policy.name,
            cost=self._cost,
            waits=tuple(sorted(self._waits.values())),
            unserved=self._unserved,
            left_waiting=len(self._pending) + self._given_up,
            machines=self._bought,
            interruptions=self._interruptions,
            gpu_seconds_used=self._used,
            gpu_seconds_rented=self._rented,
            gpu_seconds_lost=self._lost,
            timeline=tuple(self._timeline),
        )

    def _at(self, when: int, kind: _Event, about: object) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (when, self._numbers, kind, about))

    def _happen(self, kind: _Event, about: object, now: int) -> None:
        match kind, about:
            case _Event.ARRIVE, TracedPod():
                if self._is_servable(about.pod.shape):
                    self._pending[about.pod.uid] = about
                else:
                    self._unserved += 1
            case _Event.END, int():
                self._end(about, now)
            case _Event.IDLE, _Machine():
                idle = about.idle_since
                if not about.ended and idle is not None and now - idle >= self._terms.idle:
                    self._terminate(about, now)
            case _Event.RECLAIM, _Machine():
                if not about.ended:
                    self._reclaim(about, now)
            case _Event.BEGIN, int():
                self._begin(about)
            case _Event.PRICES, PricesFrom():
                self._change_prices(about.prices, now)

    def _change_prices(self, prices: Prices, now: int) -> None:
        """Spot machines cost the new price, and those that cannot be had any more are reclaimed; others keep theirs."""
        self._prices.update(prices)
        self._policy.set_candidates(at_prices(self._candidates, self._prices))
        for machine in [each for each in self._machines if each.candidate.offer.spot]:
            key = machine.candidate.offer.key
            if key not in prices:
                continue
            price = prices[key]
            if price is None:
                self._reclaim(machine, now)
            else:
                self._cost += machine.price * timedelta(seconds=now - machine.paid_until)
                self._hourly += price - machine.price
                machine.paid_until, machine.price = now, price

    def _is_servable(self, shape: PodShape) -> bool:
        known = self._servable.get(id(shape))
        if known is None:
            fits = any(fits_alone(shape, each) for each in self._candidates)
            known = self._servable[id(shape)] = (shape, fits)
        return known[1]

    def _begin(self, number: int) -> None:
        if number in self._runs:
            self._running.add(number)
            self._in_use += _gpus(self._runs[number].traced.pod)

    def _leave(self, number: int) -> _Run:
        run = self._runs.pop(number)
        if number in self._running:
            self._running.discard(number)
            self._in_use -= _gpus(run.traced.pod)
        return run

    def _end(self, number: int, now: int) -> None:
        if number not in self._runs:
            # Reclaimed meanwhile.
            return
        run = self._leave(number)
        gpus = _gpus(run.traced.pod)
        self._used += gpus * (now - run.start)
        if self._terms.quota is not None:
            self._counted.append((run.start, now, gpus))
        machine = run.machine
        machine.pods.discard(number)
        machine.free = machine.free + run.traced.pod.shape.requests
        if not machine.pods:
            machine.idle_since = now
            self._at(now + self._terms.idle, _Event.IDLE, machine)

    def _reclaim(self, machine: _Machine, now: int) -> None:
        self._interruptions += 1
        for number in sorted(machine.pods):
            run = self._leave(number)
            ran = max(now - run.start, 0) * _gpus(run.traced.pod)
            self._used += ran
            self._lost += ran
            self._restarts[run.traced.pod.uid] += 1
            if self._restarts[run.traced.pod.uid] < _MOST_RESTARTS:
                self._pending[run.traced.pod.uid] = run.traced
            else:
                self._given_up += 1
        machine.pods.clear()
        self._terminate(machine, now)

    def _terminate(self, machine: _Machine, now: int) -> None:
        machine.ended = True
        self._machines.remove(machine)
        self._gpus -= machine.gpus
        offer = machine.candidate.offer
        self._held[offer.key] -= 1
        self._hourly -= machine.price
        lasted = max(timedelta(seconds=now - machine.bought), offer.billing.minimum)
        step = max(offer.billing.increment, _SECOND)
        billed = -(-lasted // step) * step
        self._cost += machine.price * (billed - timedelta(seconds=machine.paid_until - machine.bought))
        self._rented += (now - machine.bought) * machine.gpus

    def _serve(self, now: int) -> None:
        if not self._pending:
            return
        if self._terms.quota is not None and self._usage(now) >= self._terms.quota * _HOUR:
            self._at(now + _HELD_AGAIN, _Event.LOOK, None)
            return
        rest: list[TracedPod] = []
        without_room: set[int] = set()
        for traced in sorted(self._pending.values(), key=_submission):
            shape = traced.pod.shape
            machine = None if id(shape) in without_room else self._room(shape, now)
            if machine is None:
                without_room.add(id(shape))
                rest.append(traced)
            else:
                self._start(traced, machine, now)
        if not rest:
            return
        by_uid = {each.pod.uid: each for each in rest}
        held = HeldCapacity(len(self._machines), self._hourly, self._held)
        for candidate, pods in self._policy.buy([each.pod for each in rest], held):
            machine = self._launch(candidate, now)
            for pod in pods:
                self._start(by_uid[pod.uid], machine, now)

    def _room(self, shape: PodShape, now: int) -> _Machine | None:
        """Of the machines with room the fullest one, those that are ready before those that boot."""
        best: tuple[bool, int, int] | None = None
        found = None
        for machine in self._machines:
            if shape.requests.fits_within(machine.free):
                rank = (machine.ready > now, int(machine.free.gpus()), machine.ready)
                if best is None or rank < best:
                    best, found = rank, machine
        return found

    def _launch(self, candidate: Candidate, now: int) -> _Machine:
        machine = _Machine(candidate, now, self._terms.boot)
        self._machines.append(machine)
        self._gpus += machine.gpus
        self._bought += 1
        self._held[candidate.offer.key] += 1
        self._hourly += candidate.offer.price
        if candidate.offer.spot and self._terms.reclaims > 0:
            self._at(now + int(self._rng.expovariate(self._terms.reclaims) * _HOUR) + 1, _Event.RECLAIM, machine)
        return machine

    def _start(self, traced: TracedPod, machine: _Machine, now: int) -> None:
        del self._pending[traced.pod.uid]
        start = max(now, machine.ready)
        self._numbers += 1
        number = self._numbers
        machine.pods.add(number)
        machine.free = machine.free - traced.pod.shape.requests
        machine.idle_since = None
        self._runs[number] = _Run(traced, machine, start)
        self._waits.setdefault(traced.pod.uid, start - traced.submitted)
        if start > now:
            self._at(start, _Event.BEGIN, number)
        else:
            self._begin(number)
        self._at(start + traced.duration, _Event.END, number)

    def _usage(self, now: int) -> int:
        """GPU-seconds in the window that ends now."""
        since = now - self._terms.window
        self._counted = [each for each in self._counted if each[1] > since]
        ended = sum((end - max(start, since)) * gpus for start, end, gpus in self._counted)
        running = sum(max(now - max(run.start, since), 0) * _gpus(run.traced.pod) for run in self._runs.values())
        return ended + running

    def _note(self, now: int) -> None:
        self._timeline.append(Moment(now, self._in_use, self._gpus, len(self._pending), self._hourly))


def _submission(traced: TracedPod) -> int:
    return traced.submitted


def _gpus(pod: Pod) -> int:
    return int(pod.shape.gpus())
