"""`InstanceGroups`: the instance groups of a NodeProvisioner as a `Provider`, whose instances are the groups' members.

So members have the same records, calls and proofs as any other machine. The id of a member is `group/name`: it is known
before the member is created, and a name that is a member already is not created twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from forebay.model.sources import (
    Capabilities,
    Check,
    Delivery,
    FailureKind,
    Found,
    Identity,
    Instance,
    InstancePhase,
    ListedGroup,
    Offer,
)
from forebay.providers.base import GroupMember, GroupsProvider, LaunchRequest, ProviderError, Rejected
from forebay.providers.cloud_frame import of_one_account

#: Seconds in which calls about the same group are collected into one request.
_COLLECTED: Final = 0.05
#: Members in one request.
_MOST_NAMES: Final = 200
#: The group will not get the member soon: waiting for it helps less than another group or zone.
_NOT_SOON: Final = frozenset({FailureKind.NO_CAPACITY, FailureKind.QUOTA, FailureKind.REJECTED})


def member_id(group: str, name: str) -> str:
    return f"{group}/{name}"


class InstanceGroups:
    """The members of some groups of one provider."""

    def __init__(self, provider: GroupsProvider, groups: Sequence[str]) -> None:
        self._provider = provider
        self._groups = tuple(groups)
        self._growing = {group: _Collected(partial(provider.grow, group)) for group in groups}
        self._shrinking = {group: _Collected(partial(provider.shrink, group)) for group in groups}

    def capabilities(self) -> Capabilities:
        return replace(
            self._provider.capabilities(),
            deliveries=(Delivery.NODE,),
            # The template of the group says how its machines join.
            joins=frozenset(),
            needs_join=False,
            identity=Identity.NAME,
            idempotent_launch=True,
            dead_man_switch=False,
            max_calls=_MOST_NAMES,
        )

    async def offers(self) -> Sequence[Offer]:
        """None: members are not bought by plan. What a member costs is in the listing."""
        return ()

    async def launch(self, request: LaunchRequest) -> Instance:
        group = request.group
        if group is None or group not in self._growing:
            raise Rejected(f"{group} is not (or no longer) a group of this NodeProvisioner.")
        named = await self._growing[group].call(request.node_name)
        name = named.get(request.node_name, request.node_name)
        return Instance(id=member_id(group, name), phase=InstancePhase.STARTING, node_name=name)

    async def instances(self) -> Found:
        return await of_one_account(self._provider.account, self._instances)

    async def _instances(self) -> Found:
        """The members of all groups. One group that cannot be listed makes the whole listing an error."""
        listed = await asyncio.gather(*(self._provider.members(group) for group in self._groups))
        found = dict(zip(self._groups, listed, strict=True))
        return Found(
            instances=tuple(_instance(group, each) for group, of in found.items() for each in of.members),
            ended={member_id(group, name): at for group, of in found.items() for name, at in of.ended.items()},
            groups=tuple(
                ListedGroup(
                    name=group,
                    target=of.target,
                    offer=of.offer,
                    failures={each.name: each.failure for each in of.members if each.failure is not None},
                    chooses_names=of.chooses_names,
                )
                for group, of in found.items()
            ),
        )

    async def terminate(self, instance_id: str) -> None:
        group, _, name = instance_id.rpartition("/")
        if group not in self._shrinking:
            raise Rejected(f"{group} is not (or no longer) a group of this NodeProvisioner.")
        await self._shrinking[group].call(name)

    async def check(self) -> Check:
        found = await self._provider.check()
        if not found.ok:
            return found
        try:
            listed = {group: await self._provider.members(group) for group in self._groups}
        except ProviderError as error:
            return Check(ok=False, sentence=str(error))
        if problems := [each.problem for each in listed.values() if each.problem is not None]:
            return Check(ok=False, sentence=" ".join(problems))
        sizes = [f"{group} ({len(each.members)})" for group, each in listed.items()]
        return Check(ok=True, sentence=f"Instance groups and their members: {', '.join(sizes)}.")

    async def close(self) -> None:
        for each in (*self._growing.values(), *self._shrinking.values()):
            await each.close()
        await self._provider.close()


def _instance(group: str, member: GroupMember) -> Instance:
    name = member.name
    if member.instance is not None:
        return replace(member.instance, id=member_id(group, name), node_name=member.instance.node_name or name)
    failed = member.failure is not None and member.failure.kind in _NOT_SOON
    return Instance(
        id=member_id(group, name),
        phase=InstancePhase.FAILED if failed else InstancePhase.STARTING,
        node_name=name,
        message=None if member.failure is None else member.failure.sentence,
    )


class _Batch:
    """Names that go out in one request."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.request: asyncio.Task[Mapping[str, str]] | None = None


class _Collected:
    """Calls that arrive within a moment go out as one request, and all get its outcome."""

    def __init__(self, send: Callable[[Collection[str]], Awaitable[Mapping[str, str] | None]]) -> None:
        self._send = send
        self._open: _Batch | None = None
        self._running: set[asyncio.Task[Mapping[str, str]]] = set()

    async def call(self, name: str) -> Mapping[str, str]:
        """The answer to the request that the name went out with."""
        batch = self._open
        if batch is None or len(batch.names) >= _MOST_NAMES:
            batch = self._open = _Batch()
        batch.names.append(name)
        if batch.request is None:
            batch.request = asyncio.create_task(self._request(batch))
            self._running.add(batch.request)
            batch.request.add_done_callback(self._ended)
        # One caller that gives up must not cancel the request of the others.
        return await asyncio.shield(batch.request)

    async def _request(self, batch: _Batch) -> Mapping[str, str]:
        await asyncio.sleep(_COLLECTED)
        if self._open is batch:
            self._open = None
        return await self._send(tuple(dict.fromkeys(batch.names))) or {}

    def _ended(self, request: asyncio.Task[Mapping[str, str]]) -> None:
        self._running.discard(request)
        if not request.cancelled():
            # Retrieved here too: all callers may have given up.
            request.exception()

    async def close(self) -> None:
        for task in tuple(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
