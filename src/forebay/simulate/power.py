"""Simulated machines with a power switch behind HTTP: they boot, become nodes, fail by script, and record every call.

    POST /{machine}/start      POST /{machine}/stop      GET /{machine}/status

`PowerWorld.answer` is a handler: call it in process, or serve it on a socket. Tests check the operator against the
world's record: which calls came when, and how long each machine was on.
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
    """A simulated machine with a power switch. Times in seconds."""

    name: str
    gpus: int
    #: From the power-on call until its node is Ready.
    boot: float = 90.0
    #: From there until the node's GPUs are allocatable.
    driver: float = 0.0
    #: From the power-off call until the machine draws no power.
    shutdown: float = 5.0
    #: A power-on call that arrives while the machine shuts down is answered with 200 and has no effect.
    ignores_calls_while_stopping: bool = False
    gpu_resource: str = "nvidia.com/gpu"
    #: GPUs that have failed: in the node's capacity, but not allocatable.
    failed_gpus: int = 0
    allocatable: Mapping[str, str] = msgspec.field(default_factory=lambda: {"cpu": "32", "memory": "128Gi"})
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    hourly_price: int | str = 0


class PowerCall(StrEnum):
    """What a call asks for: the last part of its path."""

    ON = "start"
    OFF = "stop"
    STATUS = "status"


class Power(StrEnum):
    """State of a machine; the answer to a status call."""

    OFF = "off"
    STARTING = "starting"
    ON = "on"
    STOPPING = "stopping"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded call."""

    at: datetime
    machine: str
    asked: PowerCall
    #: The Idempotency-Key header.
    key: str | None = None
    #: State of the machine before the call.
    power: Power
    #: Whether the call took effect.
    acted: bool
    #: HTTP status of the answer; None without one.
    status: int | None
    #: Pods on the machine at that time, without those of DaemonSets.
    pods: tuple[str, ...] = ()


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """A half-open interval in which a machine drew power; `until` is None while it still does."""

    machine: str
    since: datetime
    until: datetime | None = None


class PowerNodes(Protocol):
    """The machines' nodes in a cluster. `power_nodes.EmbeddedNodes` implements it for the embedded cluster."""

    def node_ready(self, machine: Powered) -> None:
        """Make the machine's node Ready; without GPUs if the machine has a `driver` delay."""
        ...

    def gpus_allocatable(self, machine: Powered) -> None:
        """Make the node's GPUs allocatable."""
        ...

    def node_stopped(self, machine: Powered) -> None:
        """Stop the node: the machine is powered off."""
        ...

    def pods(self, machine: Powered) -> tuple[str, ...]:
        """Pods on the node, without those of DaemonSets."""
        ...


class _State:
    def __init__(self) -> None:
        self.power = Power.OFF
        self.since: datetime | None = None
        self.timers: list[asyncio.TimerHandle] = []

    def cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


#: Returns the refusal of a request, or None to accept it.
Guard = Callable[[Request], Response | None]

_OK: Final = 200


class PowerWorld:
    """All simulated machines, and the record of calls to them.

    `guard` may refuse calls. With `remembers_keys`, a call with an Idempotency-Key that was answered before gets the
    same answer and has no effect.
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
        self._past_periods: list[Period] = []
        self._faults: dict[tuple[str, PowerCall], deque[Fault | None]] = defaultdict(deque)
        self._boots: dict[str, deque[Boot]] = defaultdict(deque)

    def script(self, machine: str, asked: PowerCall, *faults: Fault | None) -> None:
        """Faults of the next calls, in order; None is a call without a fault, as are all later calls."""
        self._faults[machine, asked].extend(faults)

    def script_boots(self, machine: str, *boots: Boot) -> None:
        """How the next boots go, in order; later boots succeed."""
        self._boots[machine].extend(boots)

    def lose_power(self, machine: str) -> None:
        """Power off a machine at once, without a call."""
        self._stopped(self.machines[machine])

    def power_on_by_hand(self, machine: str, boot: Boot | None = None) -> None:
        """Power on a machine without a call; with a `boot`, whatever is scripted for the next ones."""
        if boot is not None:
            self._boots[machine].appendleft(boot)
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
        return (*self._past_periods, *running)

    def gpu_hours(self) -> GpuHours:
        """GPU-hours of all machines while they drew power, used or not."""
        total = GpuHours.from_microseconds(0)
        for period in self.periods:
            total += Gpus(self.machines[period.machine].gpus) * ((period.until or now()) - period.since)
        return total

    def powered_on_twice(self) -> tuple[Call, ...]:
        """Calls that powered on a running machine under another key than the call before: a double launch.

        Not counted: a machine that had answered a power-off call with 200 and stayed on. The caller could not know.
        """
        twice, last, stayed_on = [], dict[str, str | None](), set[str]()
        for call in self.calls:
            if call.asked is PowerCall.OFF and call.status == HTTPStatus.OK and not call.acted:
                stayed_on.add(call.machine)
            if call.asked is PowerCall.ON and call.acted:
                is_on = call.power in {Power.ON, Power.STARTING}
                if is_on and call.key != last.get(call.machine) and call.machine not in stayed_on:
                    twice.append(call)
                last[call.machine] = call.key
                stayed_on.discard(call.machine)
        return tuple(twice)

    def powered_off_in_use(self) -> tuple[Call, ...]:
        """Power-off calls that took effect while pods ran on the machine."""
        return tuple(call for call in self.calls if call.asked is PowerCall.OFF and call.acted and call.pods)

    def configured(self, base: str, *, status: bool = True) -> tuple[Machine, ...]:
        """The machines as a GPUNodeClass lists them. `base`: the URL at which the world is served."""
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
        """The machines as environment variables of the predecessor."""
        variables = {}
        for number, machine in enumerate(self.machines.values(), 1):
            prefix = f"GPU_NODE_{number}"
            variables[f"{prefix}_NAME"] = machine.name
            variables[f"{prefix}_GPU_COUNT"] = str(machine.gpus)
            variables[f"{prefix}_SCALE_UP_ENDPOINT"] = f"{base}/{machine.name}/{PowerCall.ON}"
            variables[f"{prefix}_SCALE_DOWN_ENDPOINT"] = f"{base}/{machine.name}/{PowerCall.OFF}"
        return variables

    def stop(self) -> None:
        """Cancel all pending state changes."""
        for state in self._states.values():
            state.cancel_timers()

    async def answer(self, request: Request) -> Response:
        """Handle one HTTP request."""
        name, _, action = urlsplit(request.url).path.strip("/").partition("/")
        if name not in self.machines or action not in set(PowerCall):
            return Response(404, body=b"no such machine\n")
        asked = PowerCall(action)
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
        fault = fault or Fault(acts=True, status=_OK)
        status = None if fault.breaks else fault.status
        self._record(request, name, asked, acted=fault.acts and asked is not PowerCall.STATUS, status=status)
        if fault.acts:
            self._act(self.machines[name], asked)
        if fault.breaks:
            raise AnswerLost(f"{request}: the connection was closed", request)
        if fault.status is None:
            await asyncio.Event().wait()
        if fault.delay:
            await asyncio.sleep(fault.delay)
        assert fault.status is not None
        if self._remembered is not None and key is not None:
            self._remembered[key] = fault.status
        body = fault.body
        if asked is PowerCall.STATUS and fault.status == _OK and not body:
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
            if not (machine.ignores_calls_while_stopping and state.power is Power.STOPPING):
                self._start(machine)
        elif asked is PowerCall.OFF and state.power in {Power.ON, Power.STARTING}:
            self._stop(machine)

    def _start(self, machine: Powered) -> None:
        state = self._states[machine.name]
        state.cancel_timers()
        state.power = Power.STARTING
        # A machine that is powered on while it stops has drawn power without a break.
        state.since = state.since or now()
        boots = self._boots[machine.name]
        boot = boots.popleft() if boots else Boot()
        after = machine.boot if boot.after is None else boot.after
        if boot.joins:
            self._later(state, after, self._join, machine)
            if machine.driver and boot.gpus_appear:
                self._later(state, after + machine.driver, self._gpus_allocatable, machine)
        elif boot.runs_other_work:
            self._later(state, after, self._run, machine)
        if boot.loses_power_after is not None:
            self._later(state, boot.loses_power_after, self._stopped, machine)

    def _run(self, machine: Powered) -> None:
        self._states[machine.name].power = Power.ON

    def _join(self, machine: Powered) -> None:
        self._run(machine)
        if self._nodes is not None:
            self._nodes.node_ready(machine)

    def _gpus_allocatable(self, machine: Powered) -> None:
        if self._nodes is not None:
            self._nodes.gpus_allocatable(machine)

    def _stop(self, machine: Powered) -> None:
        state = self._states[machine.name]
        state.cancel_timers()
        if state.power is Power.ON and self._nodes is not None:
            self._nodes.node_stopped(machine)
        state.power = Power.STOPPING
        self._later(state, machine.shutdown, self._stopped, machine)

    def _stopped(self, machine: Powered) -> None:
        state = self._states[machine.name]
        state.cancel_timers()
        if state.power is Power.ON and self._nodes is not None:
            self._nodes.node_stopped(machine)
        state.power = Power.OFF
        if state.since is not None:
            self._past_periods.append(Period(machine=machine.name, since=state.since, until=now()))
            state.since = None

    def _later(self, state: _State, seconds: float, step: Callable[[Powered], None], machine: Powered) -> None:
        state.timers.append(asyncio.get_running_loop().call_later(seconds, step, machine))
