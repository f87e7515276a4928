"""The provider: machines by name, and the calls that switch them."""

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
from forebay.providers.webhook.answers import StatusAnswer
from forebay.providers.webhook.calls import MakeTransport, WebhookCalls
from forebay.providers.webhook.offers import DEFAULT_BOOT_DEADLINE, as_offer
from forebay.providers.webhook.power_state import PowerState, power_state

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
#: Status endpoints asked at the same time: often one small controller answers for all machines.
_AT_ONCE: Final = 16


class WebhookProvider:
    """Machines carry no mark of their cluster: that they are configured here is the mark."""

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
        self._asking = asyncio.Semaphore(_AT_ONCE)

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        return tuple(map(as_offer, self._machines.values()))

    async def launch(self, request: LaunchRequest) -> Instance:
        machine = self._machine(request.offer.instance_type, "switched on")
        # The same key for the same record, however often it is asked for: the machine is wanted on once.
        await self._calls.ask(machine, StatusAnswer.ON, request.uid)
        return Instance(
            id=machine.name,
            phase=InstancePhase.STARTING,
            owner=request.uid,
            price=request.offer.price,
            node_name=machine.name,
        )

    async def terminate(self, instance_id: str) -> None:
        machine = self._machine(instance_id, "switched off")
        # A key of its own for each call: an endpoint that remembers keys would otherwise answer "done" to the second
        # switching off in the machine's life, and leave it on.
        await self._calls.ask(machine, StatusAnswer.OFF, str(uuid4()))

    async def instances(self) -> Found:
        told = await self._power_states()
        found = {name: state for name, state in told.items() if isinstance(state, PowerState)}
        return Found(
            instances=tuple(
                Instance(id=name, phase=_PHASES[state], node_name=name)
                for name, state in found.items()
                if state is not PowerState.OFF
            ),
            unknown=frozenset(self._machines.keys() - found.keys()),
        )

    async def check(self) -> Check:
        """Only status endpoints are called. The others are not: a call to them switches a machine."""
        told = await self._power_states()
        problems = [str(said) for said in told.values() if not isinstance(said, PowerState)]
        for machine in self._machines.values():
            if machine.name not in told:
                try:
                    await self._calls.prepare(machine)
                except ProviderError as error:
                    problems.append(str(error))
        if problems:
            return Check(ok=False, sentence=" ".join(problems))
        untried = len(self._machines) - len(told)
        sentences = [f"{len(told)} of {len(self._machines)} machines say by their status endpoint whether they are on."]
        if untried:
            sentences.append(
                f"{untried} have no statusEndpoint, so that nothing could be tried without switching them."
            )
        return Check(ok=True, sentence=" ".join(sentences))

    async def close(self) -> None:
        await self._calls.close()

    def _machine(self, name: str, done: str) -> Machine:
        machine = self._machines.get(name)
        if machine is None:
            raise Rejected(
                f"{name} is not among the machines of this provider, so it cannot be {done}: "
                "add it again with its endpoints, or switch it by hand."
            )
        return machine

    async def _power_states(self) -> dict[str, PowerState | ProviderError]:
        """Of the machines with a status endpoint. One that fails says nothing about the others."""
        asked = [machine for machine in self._machines.values() if machine.status_endpoint is not None]
        told = await asyncio.gather(*map(self._power_state, asked))
        return {machine.name: state for machine, state in zip(asked, told, strict=True)}

    async def _power_state(self, machine: Machine) -> PowerState | ProviderError:
        async with self._asking:
            try:
                body = await self._calls.ask(machine, StatusAnswer.STATUS, str(uuid4()))
            except ProviderError as error:
                return error
        state = power_state(body)
        if state is not None:
            return state
        return Unavailable(
            f"{machine.name}: its status endpoint answers neither on nor off. "
            'Let it answer {"on": true} or {"on": false}; until then its node alone tells.'
        )
