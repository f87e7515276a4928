"""The webhook provider: owned machines, powered on and off by calls to their endpoints."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from forebay.api.machines import Machine
from forebay.api.values import duration
from forebay.model.sources import (
    Capabilities,
    Check,
    Delivery,
    FailureScope,
    Found,
    Identity,
    Instance,
    InstancePhase,
    Offer,
)
from forebay.net import clock as wall
from forebay.providers.base import LaunchRequest, ProviderError, Rejected, Unavailable
from forebay.providers.secrets import Secrets
from forebay.providers.webhook.calls import MakeTransport, WebhookCalls
from forebay.providers.webhook.offers import DEFAULT_BOOT_DEADLINE, as_offer
from forebay.providers.webhook.power_state import PowerState, power_state
from forebay.providers.webhook.responses import Endpoint

CAPABILITIES: Final = Capabilities(
    deliveries=(Delivery.POWER,),
    lists_machines=True,
    identity=Identity.MACHINE,
    idempotent_launch=True,
    settle_time=timedelta(seconds=10),
    join_deadline=DEFAULT_BOOT_DEADLINE,
    # Each machine has an endpoint of its own.
    max_calls=1024,
)
_PHASES: Final = {
    PowerState.ON: InstancePhase.RUNNING,
    PowerState.STARTING: InstancePhase.STARTING,
    PowerState.STOPPING: InstancePhase.ENDING,
}
#: Status calls in flight at the same time: often one small controller answers for all machines.
_MAX_CONCURRENT: Final = 16
#: Seconds after which a listing returns what is known. Machines that have not answered by then are unknown.
_LISTING_DEADLINE: Final = 45.0
_MARGIN: Final = timedelta(seconds=10)


class WebhookProvider:
    """`Provider` for owned machines. A machine belongs to this cluster because it is configured here; it has no tag."""

    def __init__(
        self,
        machines: Sequence[Machine],
        *,
        make_transport: MakeTransport,
        secrets: Secrets,
        clock: Callable[[], datetime] = wall.now,
    ) -> None:
        self._machines = {machine.name: machine for machine in machines}
        self._calls = WebhookCalls(make_transport, secrets, clock)
        self._status_calls = asyncio.Semaphore(_MAX_CONCURRENT)
        #: Machines whose status endpoint did not answer last time: the others are asked first.
        self._silent: set[str] = set()
        longest = max((duration(machine.timeout) for machine in machines), default=timedelta(0))
        # Twice: a call whose credentials are refused is sent again with those that the Secret holds now.
        self._capabilities = replace(CAPABILITIES, call_timeout=max(CAPABILITIES.call_timeout, 2 * longest + _MARGIN))

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def offers(self) -> Sequence[Offer]:
        return tuple(map(as_offer, self._machines.values()))

    async def launch(self, request: LaunchRequest) -> Instance:
        machine = self._machine(request.offer.instance_type, "powered on")
        try:
            # Every attempt of a record has the same key: the machine is to be powered on once.
            await self._calls.call(machine, Endpoint.POWER_ON, request.uid)
        except ProviderError as error:
            # Each machine has its own endpoints and credentials: a failure says nothing about the others.
            error.scope = FailureScope.OFFER
            raise
        return Instance(
            id=machine.name,
            phase=InstancePhase.STARTING,
            owner=request.uid,
            price=request.offer.price,
            node_name=machine.name,
        )

    async def terminate(self, instance_id: str) -> None:
        machine = self._machine(instance_id, "powered off")
        # Each call has a new key: an endpoint that remembers keys would otherwise ignore the second power-off in the
        # machine's life.
        await self._calls.call(machine, Endpoint.POWER_OFF, str(uuid4()))

    async def instances(self) -> Found:
        states = await self._power_states()
        found = {name: state for name, state in states.items() if isinstance(state, PowerState)}
        return Found(
            instances=tuple(
                Instance(id=name, phase=_PHASES[state], node_name=name)
                for name, state in found.items()
                if state is not PowerState.OFF
            ),
            unknown=frozenset(self._machines.keys() - found.keys()),
        )

    async def check(self) -> Check:
        """Calls status endpoints only: a call to the others would power a machine on or off."""
        states = await self._power_states()
        problems = [str(state) for state in states.values() if not isinstance(state, PowerState)]
        for machine in self._machines.values():
            if machine.name not in states:
                try:
                    await self._calls.prepare(machine)
                except ProviderError as error:
                    problems.append(str(error))
        if problems:
            return Check(ok=False, sentence=" ".join(problems))
        unchecked = len(self._machines) - len(states)
        sentences = [f"{len(states)} of {len(self._machines)} machines report their power state."]
        if unchecked:
            sentences.append(
                f"{unchecked} without statusEndpoint could not be checked without powering them on or off."
            )
        return Check(ok=True, sentence=" ".join(sentences))

    async def close(self) -> None:
        await self._calls.close()

    def _machine(self, name: str, done: str) -> Machine:
        machine = self._machines.get(name)
        if machine is None:
            raise Rejected(
                f"{name} cannot be {done}, because this provider no longer has a machine of that name. "
                "Add it again with its endpoints, or power it on or off by hand."
            )
        return machine

    async def _power_states(self) -> dict[str, PowerState | ProviderError]:
        """State, or error, of each machine that has a status endpoint."""
        machines = [machine for machine in self._machines.values() if machine.status_endpoint is not None]
        machines.sort(key=lambda machine: machine.name in self._silent)
        sent: set[str] = set()
        asked = {machine.name: asyncio.ensure_future(self._power_state(machine, sent)) for machine in machines}
        if asked:
            try:
                await asyncio.wait(asked.values(), timeout=_LISTING_DEADLINE)
            finally:
                for call in asked.values():
                    call.cancel()
        states = {name: _answer(name, call) for name, call in asked.items()}
        self._silent = {name for name in sent if not isinstance(states[name], PowerState)}
        return states

    async def _power_state(self, machine: Machine, sent: set[str]) -> PowerState | ProviderError:
        """The answer of the status endpoint. The machine's name is added to `sent` once it is the machine's turn."""
        async with self._status_calls:
            sent.add(machine.name)
            try:
                body = await self._calls.call(machine, Endpoint.STATUS, str(uuid4()))
            except ProviderError as error:
                return error
        state = power_state(body)
        if state is not None:
            return state
        return Unavailable(
            f"{machine.name}: the response of its status endpoint is neither on nor off. "
            'Let it answer {"on": true} or {"on": false}; until then Forebay judges by its node alone.'
        )


def _answer(name: str, call: asyncio.Future[PowerState | ProviderError]) -> PowerState | ProviderError:
    """What the status endpoint has answered by the deadline."""
    if call.done() and not call.cancelled():
        return call.result()
    return Unavailable(
        f"{name}: its status endpoint did not answer within {_LISTING_DEADLINE:.0f} s; its power state is unknown."
    )
