"""Machines with a power switch behind HTTP, as a lab has them: they boot, join, misbehave by script, and remember all.

    POST /{machine}/start      POST /{machine}/stop      GET /{machine}/status

`PowerWorld.answer` is a handler: call it in process, or serve it on a socket. What the world has recorded is the truth
that laws are checked against: who was asked what and when, and how long each machine was on.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from forebay.api.machines import Machine
from forebay.model.quantities import GpuHours, Gpus
from forebay.net.clock import now
from forebay.net.transport import AnswerLost, Headers, Request, Response
from forebay.simulate.power_faults import Boot, Fault


class Powered(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. Times in seconds."""

    name: str
    gpus: int
    #: From the call to a node that is Ready.
    boot: float = 90.0
    #: From there until its GPUs are allocatable.
    driver: float = 0.0
    #: From the call until it draws no more power.
    shutdown: float = 5.0
    gpu_resource: str = "nvidia.com/gpu"
    allocatable: Mapping[str, str] = msgspec.field(default_factory=lambda: {"cpu": "32", "memory": "128Gi"})
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    hourly_price: int | str = 0


class PowerCall(StrEnum):
    ON = "start"
    OFF = "stop"
    STATUS = "status"


class Power(StrEnum):
    OFF = "off"
    STARTING = "starting"
    ON = "on"
    STOPPING = "stopping"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    machine: str
    asked: PowerCall
    #: Its Idempotency-Key.
    key: str | None = None
    #: What it was before.
    power: Power
    acted: bool
    #: What was answered; None if nothing was.
    status: int | None
    #: Pods that ran on it, DaemonSets aside.
    pods: tuple[str, ...] = ()


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """One machine drew power. Half open; without an end while it still does."""

    machine: str
    since: datetime
    until: datetime | None = None


class PowerNodes(Protocol):
    """What machines are in a cluster. `simulate.power_nodes` has the embedded one's."""

    def joined(self, machine: Powered) -> None:
        """Its node is Ready, without GPUs if the driver takes its time."""
        ...

    def driven(self, machine: Powered) -> None:
        """Its GPUs are allocatable."""
        ...

    def left(self, machine: Powered) -> None: ...

    def pods(self, machine: Powered) -> tuple[str, ...]:
        """Those that run there, DaemonSets aside."""
        ...


class _State:
    def __init__(self) -> None:
        self.power = Power.OFF
        self.since: datetime | None = None
        self.timers: list[asyncio.TimerHandle] = []

    def forget_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


#: Says of a request that it is refused, or None.
Guard = Callable[[Request], Response | None]

_DONE: Final = 200


class PowerWorld:
    """`remembers_keys`: a call under an Idempotency-Key that was answered before gets the same answer, and does
    nothing.
    """

    def __init__(
        self,
        machines: Iterable[Powered],
        nodes: PowerNodes | None = None,
        *,
        guard: Guard | None = None,
        remembers_keys: bool = False,
    ) -> None:
        self.machines: Final = {machine.name: machine for machine in machines}
        self.calls: Final[list[Call]] = []
        self._nodes = nodes
        self._guard = guard
        self._remembered: dict[str, int] | None = {} if remembers_keys else None
        self._states = {name: _State() for name in self.machines}
        self._ended: list[Period] = []
        self._faults: dict[tuple[str, PowerCall], deque[Fault | None]] = defaultdict(deque)
        self._boots: dict[str, deque[Boot]] = defaultdict(deque)

    def script(self, machine: str, asked: PowerCall, *faults: Fault | None) -> None:
        """One for each call to come, in order; None and all calls after them go well."""
        self._faults[machine, asked].extend(faults)

    def script_boots(self, machine: str, *boots: Boot) -> None:
        """One for each start to come; all after them go well."""
        self._boots[machine].extend(boots)

    def lose_power(self, machine: str) -> None:
        self._stopped(self.machines[machine])

    def press(self, machine: str) -> None:
        """Somebody switches it on by hand."""
        self._start(self.machines[machine])

    def power(self, machine: str) -> Power:
        return self._states[machine].power

    @property
    def on(self) -> frozenset[str]:
        """Machines that draw power."""
        return frozenset(name for name, state in self._states.items() if state.power is not Power.OFF)

    @property
    def periods(self) -> tuple[Period, ...]:
        running = (Period(machine=name, since=s.since) for name, s in self._states.items() if s.since is not None)
        return (*self._ended, *running)

    def gpu_hours(self) -> GpuHours:
        """Until now, whether or not anything ran on them."""
        total = GpuHours.from_microseconds(0)
        for period in self.periods:
            total += Gpus(self.machines[period.machine].gpus) * ((period.until or now()) - period.since)
        return total

    def switched_on_again(self) -> tuple[Call, ...]:
        """Calls that switched on what was on, under another key than the one it was switched on with: bought twice.

        Unless the machine had answered that it was going off, and did not: whoever believed it cannot be blamed.
        """
        again, last, lied = [], dict[str, str | None](), set[str]()
        for call in self.calls:
            if call.asked is PowerCall.OFF and call.status == HTTPStatus.OK and not call.acted:
                lied.add(call.machine)
            if call.asked is PowerCall.ON and call.acted:
                is_on = call.power in {Power.ON, Power.STARTING}
                if is_on and call.key != last.get(call.machine) and call.machine not in lied:
                    again.append(call)
                last[call.machine] = call.key
                lied.discard(call.machine)
        return tuple(again)

    def switched_off_in_use(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.asked is PowerCall.OFF and call.acted and call.pods)

    def configured(self, base: str, *, status: bool = True) -> tuple[Machine, ...]:
        """As a GPUNodeClass lists them. `base`: where the world is served."""
        return tuple(
            Machine(
                name=machine.name,
                gpu_count=machine.gpus,
                scale_up_endpoint=f"{base}/{machine.name}/{PowerCall.ON}",
                scale_down_endpoint=f"{base}/{machine.name}/{PowerCall.OFF}",
                status_endpoint=f"{base}/{machine.name}/{PowerCall.STATUS}" if status else None,
                gpu_resource_name=machine.gpu_resource,
                hourly_price=machine.hourly_price,
            )
            for machine in self.machines.values()
        )

    def environment(self, base: str) -> dict[str, str]:
        """As a predecessor's environment names them."""
        variables = {}
        for number, machine in enumerate(self.machines.values(), 1):
            prefix = f"GPU_NODE_{number}"
            variables[f"{prefix}_NAME"] = machine.name
            variables[f"{prefix}_GPU_COUNT"] = str(machine.gpus)
            variables[f"{prefix}_SCALE_UP_ENDPOINT"] = f"{base}/{machine.name}/{PowerCall.ON}"
            variables[f"{prefix}_SCALE_DOWN_ENDPOINT"] = f"{base}/{machine.name}/{PowerCall.OFF}"
        return variables

    def stop(self) -> None:
        """No machine changes any more."""
        for state in self._states.values():
            state.forget_timers()

    async def answer(self, request: Request) -> Response:
        name, _, word = urlsplit(request.url).path.strip("/").partition("/")
        if name not in self.machines or word not in set(PowerCall):
            return Response(404, body=b"no such machine\n")
        asked = PowerCall(word)
        if request.method != ("GET" if asked is PowerCall.STATUS else "POST"):
            return Response(405, body=b"wrong method\n")
        if self._guard is not None and (refused := self._guard(request)) is not None:
            self._record(request, name, asked, acted=False, status=refused.status)
            return refused
        if asked is not PowerCall.STATUS and request.body != b"{}":
            return Response(400, body=b"the body must be {}\n")
        faults = self._faults[name, asked]
        return await self._do(request, name, asked, faults.popleft() if faults else None)

    async def _do(self, request: Request, name: str, asked: PowerCall, fault: Fault | None) -> Response:
        key = request.headers.get("Idempotency-Key")
        if self._remembered is not None and key in self._remembered:
            self._record(request, name, asked, acted=False, status=self._remembered[key])
            return Response(self._remembered[key])
        fault = fault or Fault(acts=True, status=_DONE)
        status = None if fault.breaks else fault.status
        self._record(request, name, asked, acted=fault.acts and asked is not PowerCall.STATUS, status=status)
        if fault.acts:
            self._act(self.machines[name], asked)
        if fault.breaks:
            raise AnswerLost(f"{request}: the connection broke off", request)
        if fault.status is None:
            await asyncio.Event().wait()
        if fault.delay:
            await asyncio.sleep(fault.delay)
        assert fault.status is not None
        if self._remembered is not None and key is not None:
            self._remembered[key] = fault.status
        body = fault.body
        if asked is PowerCall.STATUS and fault.status == _DONE and not body:
            body = msgspec.json.encode({"state": self._states[name].power})
        return Response(fault.status, Headers(fault.headers), body)

    def _record(self, request: Request, name: str, asked: PowerCall, *, acted: bool, status: int | None) -> None:
        machine = self.machines[name]
        self.calls.append(
            Call(
                at=now(),
                machine=name,
                asked=asked,
                key=request.headers.get("Idempotency-Key"),
                power=self._states[name].power,
                acted=acted,
                status=status,
                pods=self._nodes.pods(machine) if self._nodes is not None and asked is not PowerCall.STATUS else (),
            )
        )

    def _act(self, machine: Powered, asked: PowerCall) -> None:
        state = self._states[machine.name]
        if asked is PowerCall.ON and state.power not in {Power.ON, Power.STARTING}:
            self._start(machine)
        elif asked is PowerCall.OFF and state.power in {Power.ON, Power.STARTING}:
            self._stop(machine)

    def _start(self, machine: Powered) -> None:
        state = self._states[machine.name]
        state.forget_timers()
        state.power = Power.STARTING
        # One switched on while it was stopping has drawn power all along.
        state.since = state.since or now()
        boots = self._boots[machine.name]
        boot = boots.popleft() if boots else Boot()
        after = machine.boot if boot.after is None else boot.after
        if boot.joins:
            self._later(state, after, self._join, machine)
            if machine.driver and boot.drives:
                self._later(state, after + machine.driver, self._drive, machine)
        if boot.lasts is not None:
            self._later(state, boot.lasts, self._stopped, machine)

    def _join(self, machine: Powered) -> None:
        self._states[machine.name].power = Power.ON
        if self._nodes is not None:
            self._nodes.joined(machine)

    def _drive(self, machine: Powered) -> None:
        if self._nodes is not None:
            self._nodes.driven(machine)

    def _stop(self, machine: Powered) -> None:
        state = self._states[machine.name]
        state.forget_timers()
        if state.power is Power.ON and self._nodes is not None:
            self._nodes.left(machine)
        state.power = Power.STOPPING
        self._later(state, machine.shutdown, self._stopped, machine)

    def _stopped(self, machine: Powered) -> None:
        state = self._states[machine.name]
        state.forget_timers()
        if state.power is Power.ON and self._nodes is not None:
            self._nodes.left(machine)
        state.power = Power.OFF
        if state.since is not None:
            self._ended.append(Period(machine=machine.name, since=state.since, until=now()))
            state.since = None

    def _later(self, state: _State, seconds: float, step: Callable[[Powered], None], machine: Powered) -> None:
        state.timers.append(asyncio.get_running_loop().call_later(seconds, step, machine))
