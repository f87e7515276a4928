"""The webhook provider: owned machines, powered on and off by calls to their endpoints."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from forebay.api.machines import Machine
from forebay.model.sources import Capabilities, Delivery, Found, Instance, InstancePhase, Offer
from forebay.net import clock as wall
from forebay.providers.base import Check, LaunchRequest, ProviderError, Rejected, Unavailable
from forebay.providers.secrets import Secrets
from forebay.providers.webhook.calls import MakeTransport, WebhookCalls
from forebay.providers.webhook.offers import DEFAULT_BOOT_DEADLINE, as_offer
from forebay.providers.webhook.power_state import PowerState, power_state
from forebay.providers.webhook.responses import Endpoint

_CAPABILITIES: Final = Capabilities(
    delivers=Delivery.POWER,
    idempotent_launch=True,
    settle_time=timedelta(seconds=10),
    join_deadline=DEFAULT_BOOT_DEADLINE,
)
_PHASES: Final = {
    PowerState.ON: InstancePhase.RUNNING,
    PowerState.STARTING: InstancePhase.STARTING,
    PowerState.STOPPING: InstancePhase.ENDING,
}
#: Status calls in flight at the same time: often one small controller answers for all machines.
_MAX_CONCURRENT: Final = 16


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

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        return tuple(map(as_offer, self._machines.values()))

    async def launch(self, request: LaunchRequest) -> Instance:
        machine = self._machine(request.offer.instance_type, "powered on")
        # Every attempt of a record has the same key: the machine is to be powered on once.
        await self._calls.call(machine, Endpoint.POWER_ON, request.uid)
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
        states = await asyncio.gather(*map(self._power_state, machines))
        return {machine.name: state for machine, state in zip(machines, states, strict=True)}

    async def _power_state(self, machine: Machine) -> PowerState | ProviderError:
        async with self._status_calls:
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
