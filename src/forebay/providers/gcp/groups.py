"""`GcpGroups`: managed instance groups, zonal and regional.

A group is named as in the class, in the location of the provider, or as `LOCATION/NAME` in another zone or region.
Google answers a request with an operation that is done when the action is *scheduled*: whether a machine comes of it is
told by `listManagedInstances` only. Members are created under names that Forebay chooses, so that a repeated request
finds the name taken; a group that chooses names itself is resized up, and the new names are read from its list. Members
are deleted by name: of a group that is resized down, Google would choose the victims.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID, uuid5

from msgspec.structs import replace

from forebay.model.sources import Capabilities, Check, Offer
from forebay.providers.base import GroupMembers, InstanceGone, OutcomeUnknown, ProviderError, Rejected, Unavailable
from forebay.providers.gcp.calls import GoogleCalls
from forebay.providers.gcp.deletions import ENDS_HOLD, zone_deletions
from forebay.providers.gcp.errors import NameTaken
from forebay.providers.gcp.group_members import LEAVING, counts, exists, instance_key, member, zone_of
from forebay.providers.gcp.group_place import GroupPlace, no_group
from forebay.providers.gcp.group_wire import (
    InstanceGroupManager,
    InstanceTemplate,
    ManagedInstance,
    ManagedPage,
)
from forebay.providers.gcp.new_group import new_group, possible_zones, template_path
from forebay.providers.gcp.order import REQUEST_NAMESPACE
from forebay.providers.gcp.provider import GcpProvider
from forebay.providers.gcp.resize_requests import RESIZE_DESCRIPTION, ResizeRequest, ResizeRequests, queued_members
from forebay.providers.gcp.wire import Operation, last_part

_PAGE: Final = 500
_MOST_PAGES: Final = 500
#: Names in one filter: the URL must not become too long.
_NAMES_AT_ONCE: Final = 40
#: Looks at the list of a group that was resized, and seconds between them, until it names the new members.
_LOOKS: Final = 20
_LOOK: Final = 1.0
#: A member that waits in a queue for longer is given up, and another group is tried.
_LONGEST_QUEUE: Final = timedelta(hours=24)


class GcpGroups(GcpProvider):
    """The instance groups of one project, beside its single instances."""

    def __init__(
        self,
        calls: GoogleCalls,
        cluster: str,
        clock: Callable[[], datetime],
        location: str,
        run_duration: timedelta | None = None,
        *,
        template: str | None = None,
    ) -> None:
        """`template`: of groups that do not exist yet; None: all must exist."""
        super().__init__(calls, cluster, clock)
        self._location = location
        self._run_duration = run_duration
        self._template = None if template is None else template_path(template)
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._templates: dict[str, InstanceTemplate] = {}
        #: When machines were created, by their id.
        self._created: dict[str, datetime | None] = {}
        #: Machines of the last list of each group, as ZONE/NAME by member; None before the first one.
        self._last: dict[str, Mapping[str, str]] = {}
        self._ended: dict[str, dict[str, datetime]] = defaultdict(dict)
        #: Groups that have refused a member of a name that was asked for.
        self._choose_names: set[str] = set()

    def capabilities(self) -> Capabilities:
        if self._run_duration is None:
            return super().capabilities()
        # A queue is for waiting.
        return replace(super().capabilities(), launch_deadline=_LONGEST_QUEUE)

    async def members(self, group: str) -> GroupMembers:
        place = GroupPlace(group, self._location)
        manager = await self._found(place)
        if manager is None:
            return await self._not_created_yet(group, place)
        listed = [each async for each in self._listed(place) if counts(each)]
        await self._learn_creation(listed)
        zones = _zones(place, manager, listed)
        await self._learn_ends(group, zones, listed)
        project = await self.calls.identity.project()
        members = tuple(
            member(each, project, self._created.get(each.id), self.calls.errors, repairs=manager.repairs)
            for each in listed
        )
        if self._run_duration is not None:
            members += tuple(queued_members(await self._requests(place), {each.name for each in listed}, self.calls))
        return GroupMembers(
            members=members,
            target=manager.target_size,
            ended=dict(self._ended[group]),
            offer=await self._offer(manager.template, place, zones),
            chooses_names=self._chooses_names(group, manager),
            problem=_problem(group, manager),
        )

    async def grow(self, group: str, names: Collection[str]) -> Mapping[str, str]:
        place = GroupPlace(group, self._location)
        async with self._locks[group]:
            manager = await self._found(place) or await self._create_group(place)
            there = {each.name: each async for each in self._listed(place)}
            leaving = [name for name in names if name in there and there[name].current_action in LEAVING]
            if leaving:
                raise Unavailable(f"Earlier members of group {group} are still being deleted: {', '.join(leaving)}.")
            new = [name for name in names if name not in there]
            if not new:
                return {}
            if self._run_duration is not None:
                return await self._queue(place, new, self._run_duration)
            if self._chooses_names(group, manager):
                return await self._resize(group, place, manager, there, new)
            return await self._create(group, place, manager, there, new)

    async def shrink(self, group: str, names: Collection[str]) -> None:
        place = GroupPlace(group, self._location)
        if await self._found(place) is None:
            return
        listed = [each async for each in self._listed(place)]
        there = [each for each in listed if each.name in names and each.current_action not in LEAVING]
        # Queued members have no URL. Names and URLs cannot be in one request.
        urls = [_partial(each) for each in there if each.instance]
        queued = [each.name for each in there if not each.instance]
        if self._run_duration is not None:
            await self._withdraw(place, names)
        for some in (urls, queued):
            if some:
                body = {"instances": some, "skipInstancesOnValidationError": True}
                await self._act(place, "deleteInstances", body, f"Deletion of {len(some)} members of group {group}")

    async def check(self) -> Check:
        """Whether the identity is accepted; `members` tells about each group."""
        try:
            project = await self.calls.identity.project()
            await self.calls.identity.token()
        except ProviderError as error:
            return Check(ok=False, sentence=str(error))
        return Check(ok=True, sentence=f"Google accepts the identity of {self.calls.identity.described} in {project}.")

    # Groups that do not exist yet.

    async def _not_created_yet(self, group: str, place: GroupPlace) -> GroupMembers:
        """No member, and what one would be: the group is created with its first members."""
        await self._learn_ends(group, (), ())
        zones = possible_zones(place.location) if place.regional else [place.location]
        offer = await self._offer(self._template or "", place, zones)
        return GroupMembers(target=0, ended=dict(self._ended[group]), offer=offer)

    async def _create_group(self, place: GroupPlace) -> InstanceGroupManager:
        project = await self.calls.identity.project()
        body = new_group(
            place.name,
            f"projects/{project}/{self._template}",
            regional=place.regional,
            queued=self._run_duration is not None,
        )
        what = f"Creation of instance group {place.name}"
        unique = self._request_id(place, "insert", body)
        path = f"{place.scope}/instanceGroupManagers?{urlencode({'requestId': str(unique)})}"
        try:
            operation = await self.calls.post(path, body, Operation)
            operation = await self.calls.finished(place.scope, operation, what=what)
        except NameTaken:
            # An earlier request has created it.
            return await self._manager(place)
        except InstanceGone:
            raise Rejected(f"{what} failed: there is no template {self._template}. Correct instanceTemplate.") from None
        failure = self.calls.errors.of_operation(operation, what=what, correct="Correct instanceTemplate.")
        if failure is not None:
            raise failure
        return await self._manager(place)

    # Growth.

    async def _requests(self, place: GroupPlace) -> list[ResizeRequest]:
        """Those of Forebay: others have requests of their own."""
        listed = ResizeRequests(self.calls, place.path, place.scope).listed()
        return [each async for each in listed if each.description == RESIZE_DESCRIPTION]

    async def _queue(self, place: GroupPlace, names: Sequence[str], run: timedelta) -> Mapping[str, str]:
        """Asks Google's scheduler for the members. Where one request fails, the next call asks for the rest."""
        requests = ResizeRequests(self.calls, place.path, place.scope)
        queued = {each.name for each in await self._requests(place) if each.waits}
        for sent, name in enumerate(name for name in names if name not in queued):
            try:
                await requests.insert(name, run, self._request_id(place, "insert", name))
            except ProviderError as error:
                if not sent:
                    raise
                raise OutcomeUnknown(
                    f"{sent} of {len(names)} members are in the queue, not the next: {error}"
                ) from None
        return {}

    async def _withdraw(self, place: GroupPlace, names: Collection[str]) -> None:
        """Withdraws the requests of members that are not wanted any more, and of those that ended by themselves."""
        requests = ResizeRequests(self.calls, place.path, place.scope)
        there = {each.name async for each in self._listed(place)}
        for each in await self._requests(place):
            over = not each.waits and each.name not in there
            if each.name in names or (over and each.state != "FAILED"):
                await requests.withdraw(each, self._request_id(place, "withdraw", each.name))

    def _request_id(self, place: GroupPlace, action: str, what: object) -> UUID:
        """Id under which Google does a request once only."""
        return uuid5(REQUEST_NAMESPACE, f"{place.path}/{action}/{what}/{self._clock()}")

    async def _create(
        self,
        group: str,
        place: GroupPlace,
        manager: InstanceGroupManager,
        there: Mapping[str, ManagedInstance],
        names: Sequence[str],
    ) -> Mapping[str, str]:
        body = {"instances": [{"name": name} for name in names]}
        try:
            await self._act(place, "createInstances", body, f"Creation of {len(names)} members of group {group}")
        except NameTaken:
            raise OutcomeUnknown(
                f"A name of a new member of group {group} is taken already: an earlier request may have been heeded."
            ) from None
        except Rejected as error:
            if "name" not in str(error).lower() or "not supported" not in str(error).lower():
                raise
            # Known from now on: the group chooses names itself.
            self._choose_names.add(group)
            return await self._resize(group, place, manager, there, names)
        return {}

    async def _resize(
        self,
        group: str,
        place: GroupPlace,
        manager: InstanceGroupManager,
        there: Mapping[str, ManagedInstance],
        names: Sequence[str],
    ) -> Mapping[str, str]:
        """More members under names of the group's choice, which are returned by the names that were asked for."""
        size = manager.target_size + len(names)
        what = f"Growth of group {group} by {len(names)}"
        await self._act(place, "resize", None, what, {"size": str(size)})
        for _ in range(_LOOKS):
            new = sorted([each.name async for each in self._listed(place) if each.name not in there])
            if len(new) >= len(names):
                return dict(zip(names, new, strict=False))
            await asyncio.sleep(_LOOK)
        raise OutcomeUnknown(f"{what} was accepted, but its list does not show the new members.")

    def _chooses_names(self, group: str, manager: InstanceGroupManager) -> bool:
        return group in self._choose_names or not manager.takes_names

    async def _act(
        self, place: GroupPlace, action: str, body: Any, what: str, query: Mapping[str, str] | None = None
    ) -> None:
        """Sends a request that acts on the group, and waits until it is scheduled."""
        unique = self._request_id(place, action, (body, query))
        path = f"{place.path}/{action}?{urlencode({**(query or {}), 'requestId': str(unique)})}"
        try:
            operation = await self.calls.post(path, body, Operation)
            operation = await self.calls.finished(place.scope, operation, what=what)
        except InstanceGone:
            raise no_group(place) from None
        failure = self.calls.errors.of_operation(operation, what=what, correct="Correct the instance group.")
        if failure is not None:
            raise failure

    # Lists.

    async def _found(self, place: GroupPlace) -> InstanceGroupManager | None:
        """The group; None where it is to be created. Raises `Rejected` where there is none and no template either."""
        try:
            return await self.calls.get(place.path, InstanceGroupManager)
        except InstanceGone:
            if self._template is None:
                raise no_group(place) from None
            return None

    async def _manager(self, place: GroupPlace) -> InstanceGroupManager:
        try:
            return await self.calls.get(place.path, InstanceGroupManager)
        except InstanceGone:
            raise no_group(place) from None

    async def _listed(self, place: GroupPlace) -> AsyncIterator[ManagedInstance]:
        """All members, standby ones and those that are being deleted included."""
        token = ""
        for _ in range(_MOST_PAGES):
            query = {"maxResults": str(_PAGE)} | ({"pageToken": token} if token else {})
            try:
                page = await self.calls.read(f"{place.path}/listManagedInstances?{urlencode(query)}", ManagedPage)
            except InstanceGone:
                raise no_group(place) from None
            for each in page.managed_instances:
                yield each
            token = page.next_page_token
            if not token:
                return
        raise Unavailable(f"Google's list of the members of {place.name} has no end after {_MOST_PAGES} pages.")

    async def _learn_creation(self, listed: Iterable[ManagedInstance]) -> None:
        """When machines that are new here were created: their list does not say."""
        unknown = {instance_key(each.instance): each.id for each in listed if exists(each) and each.instance}
        unknown = {key: found for key, found in unknown.items() if found not in self._created}
        names = sorted({key.partition("/")[2] for key in unknown})
        for first in range(0, len(names), _NAMES_AT_ONCE):
            matching = f'name eq "{"|".join(names[first : first + _NAMES_AT_ONCE])}"'
            async for zone in self.calls.aggregated("instances", matching):
                for each in zone.listed.instances:
                    found = unknown.get(f"{last_part(each.zone)}/{each.name}")
                    if found is not None:
                        self._created[found] = each.creation_timestamp

    async def _learn_ends(self, group: str, zones: Iterable[str], listed: Iterable[ManagedInstance]) -> None:
        """When machines were deleted that were in the group, from the operations of their zones."""
        now = {each.name: instance_key(each.instance) for each in listed if exists(each) and each.instance}
        before = self._last.get(group)
        # At the start, members may have gone that this process has never seen.
        missing = None if before is None else {name: key for name, key in before.items() if name not in now}
        ended = self._ended[group]
        for name in now:
            ended.pop(name, None)
        for zone in zones if missing is None else {key.partition("/")[0] for key in missing.values()}:
            for key, at in await zone_deletions(self.calls, zone):
                name = key.partition("/")[2]
                if name not in now and (missing is None or missing.get(name) == key):
                    ended[name] = max(at, ended.get(name, at))
        oldest = self._clock() - ENDS_HOLD
        for name in [name for name, at in ended.items() if at < oldest]:
            del ended[name]
        self._last[group] = now

    async def _offer(self, url: str, place: GroupPlace, zones: Sequence[str]) -> Offer | None:
        """What a member of the template is."""
        if not url:
            return None
        if url not in self._templates:
            try:
                self._templates[url] = await self.calls.get(template_path(url), InstanceTemplate)
            except InstanceGone:
                return None
        return await self._offers.of_template(self._templates[url].properties, zones, regional=place.regional)


def _partial(found: ManagedInstance) -> str:
    return f"zones/{zone_of(found)}/instances/{found.name}"


def _zones(place: GroupPlace, manager: InstanceGroupManager, listed: Iterable[ManagedInstance]) -> Sequence[str]:
    """Zones in which the group has members, or may have."""
    if not place.regional:
        return [place.location]
    policy = manager.distribution_policy
    stated = [last_part(each.zone) for each in policy.zones] if policy is not None else []
    return stated or sorted({zone_of(each) for each in listed} - {""})


def _problem(group: str, manager: InstanceGroupManager) -> str | None:
    """What works against Forebay in the group."""
    if not manager.status.autoscaler:
        return None
    autoscaler = last_part(manager.status.autoscaler)
    return f"Instance group {group} has an autoscaler ({autoscaler}), which resizes it too. Turn one of the two off."
