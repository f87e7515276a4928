"""`Provider` over Compute Engine: one instance a launch, found again by its labels.

The id of an instance is `ZONE/NAME`. The name is that of the record, so that a launch that is repeated finds the name
taken and never rents a second machine.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote
from uuid import uuid5

from forebay.model.sources import (
    Capabilities,
    Check,
    Delivery,
    Found,
    Identity,
    Instance,
    InstancePhase,
    Join,
    Offer,
    RateLimit,
)
from forebay.providers.base import InstanceGone, LaunchRequest, OutcomeUnknown, ProviderError, Rejected, Unavailable
from forebay.providers.cloud_frame import checked, of_one_account
from forebay.providers.gcp.calls import CALL_SECONDS, OPERATION_SECONDS, GoogleCalls, NameTaken
from forebay.providers.gcp.deletions import InstanceEnds
from forebay.providers.gcp.machines import PHASES
from forebay.providers.gcp.offers import BILLING, NAME, OfferList
from forebay.providers.gcp.order import (
    CLUSTER_LABEL,
    OWNER_LABEL,
    REQUEST_NAMESPACE,
    instance_body,
    instance_name,
    label_text,
    request_id,
)
from forebay.providers.gcp.wire import ComputeDisk, ComputeInstance, Operation, last_part

CAPABILITIES: Final = Capabilities(
    deliveries=(Delivery.NODE,),
    joins=frozenset(Join),
    needs_join=True,
    has_groups=True,
    spot=True,
    identity=Identity.TAGS,
    idempotent_launch=True,
    dead_man_switch=True,
    billing=BILLING,
    # Twice the call: one whose token was refused is sent again.
    call_timeout=timedelta(seconds=OPERATION_SECONDS + 4 * CALL_SECONDS),
    # Of the project, for each group of methods.
    rate_limits=(RateLimit(requests=1500, per=timedelta(minutes=1)),),
    fast_poll=timedelta(seconds=5),
)
#: A disk without an instance is a leftover at this age: before, its instance may be about to appear.
_DISK_SETTLES: Final = timedelta(minutes=10)
#: Of what Google says, in sentences.
_LONGEST_CODE: Final = 200


class GcpProvider:
    """Rents instances of one project."""

    def __init__(
        self, calls: GoogleCalls, cluster: str, clock: Callable[[], datetime], regions: Sequence[str] = ()
    ) -> None:
        self.calls = calls
        self._cluster = cluster
        self._clock = clock
        self._offers = OfferList(calls, clock, regions)
        self._ends = InstanceEnds(calls, clock)

    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        return await self._offers.offers()

    async def launch(self, request: LaunchRequest) -> Instance:
        zone, name = request.offer.zone, instance_name(request)
        if zone is None:
            raise Rejected("The offer names no zone, and Google rents by zone.")
        what = f"Launch of {name} in {zone}"
        body = instance_body(request, await self.calls.identity.project())
        try:
            operation = await self.calls.post(
                f"zones/{quote(zone)}/instances?requestId={request_id(request)}", body, Operation
            )
            operation = await self.calls.finished(f"zones/{zone}", operation, what=what)
            failure = self.calls.errors.of_operation(operation, what=what)
            if failure is not None:
                raise failure
        except NameTaken:
            return await self._launched_before(request, zone, name)
        except InstanceGone as error:
            # Not the instance: its zone, its machine type or the project.
            raise Rejected(str(error)) from None
        return Instance(
            id=f"{zone}/{name}",
            phase=InstancePhase.STARTING,
            owner=request.uid,
            node_name=request.node_name or None,
            provider_id=await self._provider_id(zone, name),
        )

    async def instances(self) -> Found:
        return await of_one_account(self.account, self._instances)

    async def account(self) -> str:
        """The project: whoever may rent in it sees the same instances."""
        return await self.calls.identity.project()

    async def _instances(self) -> Found:
        """Every instance with this cluster's label, and every disk of one that is gone. A zone that cannot be listed
        makes the whole listing an error.
        """
        matching = f'labels.{CLUSTER_LABEL}="{label_text(self._cluster)}"'
        project = await self.calls.identity.project()
        found: dict[str, Instance] = {}
        async for zone in self.calls.aggregated("instances", matching):
            if zone.missing is not None:
                raise Unavailable(_not_listed("instances", zone.zone, zone.missing.code))
            for each in zone.listed.instances:
                instance = self._instance(each, project)
                found[instance.id] = instance
        present = frozenset(found)
        # After the instances: of one that is deleted meanwhile, itself or its disk is seen, never neither.
        async for disk in self._all_disks(matching):
            left = self._leftover(disk)
            if left is not None:
                found.setdefault(left.id, left)
        ended = await self._ends.learn(present, found.keys() - present)
        return Found(instances=tuple(found.values()), ended=ended)

    async def terminate(self, instance_id: str) -> None:
        zone, slash, name = instance_id.partition("/")
        if not slash:
            raise InstanceGone(f"{instance_id} is no instance of Google's, whose ids are ZONE/NAME.")
        path = f"zones/{quote(zone, safe='')}/instances/{quote(name, safe='')}"
        try:
            found = await self.calls.get(path, ComputeInstance)
        except InstanceGone:
            try:
                await self._delete_disk(zone, name)
            except InstanceGone:
                # Perhaps a process before this one has deleted it.
                self._ends.watch(instance_id)
                raise
            return
        if not self._is_ours(found.labels):
            raise InstanceGone(f"{instance_id} is gone: another machine has its name now.")
        self._ends.watch(instance_id)
        deletion = uuid5(REQUEST_NAMESPACE, f"delete/{instance_id}/{found.creation_timestamp}/{self._clock()}")
        operation = await self.calls.delete(f"{path}?requestId={deletion}")
        failure = self.calls.errors.of_operation(operation, what=f"Termination of {instance_id}")
        if isinstance(failure, ProviderError):
            raise failure

    async def check(self) -> Check:
        return await checked(self._check())

    async def _check(self) -> str:
        project = await self.calls.identity.project()
        await self.instances()
        offers = await self.offers()
        if not offers:
            raise Rejected(f"Project {project} has no machine type with GPUs in the regions named.")
        regions = len({each.region for each in offers})
        return (
            f"Google accepts the identity of {self.calls.identity.described} in project {project}: "
            f"{len(offers)} offers in {regions} regions."
        )

    async def close(self) -> None:
        await self.calls.close()

    async def _launched_before(self, request: LaunchRequest, zone: str, name: str) -> Instance:
        """The instance that has the name, where it is that of the same record."""
        try:
            found = await self.calls.get(f"zones/{quote(zone)}/instances/{quote(name, safe='')}", ComputeInstance)
        except InstanceGone:
            raise OutcomeUnknown(f"The name {name} was taken in {zone} and is free again.") from None
        except ProviderError as error:
            raise OutcomeUnknown(f"The name {name} is taken in {zone}, and by whom cannot be seen: {error}") from None
        if not self._is_ours(found.labels) or found.labels.get(OWNER_LABEL) != label_text(request.uid):
            raise Rejected(f"An instance {name} that is not of this record exists in {zone} already.")
        instance = self._instance(found, await self.calls.identity.project())
        if instance.phase is InstancePhase.ENDING:
            raise Unavailable(f"An earlier instance {name} in {zone} is still being deleted.")
        return instance

    async def _all_disks(self, matching: str) -> AsyncIterator[ComputeDisk]:
        async for zone in self.calls.aggregated("disks", matching):
            if zone.missing is not None:
                raise Unavailable(_not_listed("disks", zone.zone, zone.missing.code))
            for disk in zone.listed.disks:
                yield disk

    async def _delete_disk(self, zone: str, name: str) -> None:
        """Deletes the boot disk of an instance that is gone. Raises `InstanceGone` where there is none."""
        path = f"zones/{quote(zone, safe='')}/disks/{quote(name, safe='')}"
        disk = await self.calls.get(path, ComputeDisk)
        if not self._is_ours(disk.labels) or disk.users:
            raise InstanceGone(f"{zone}/{name} is gone.")
        await self.calls.delete(path)

    def _is_ours(self, labels: Mapping[str, str]) -> bool:
        return labels.get(CLUSTER_LABEL) == label_text(self._cluster)

    def _instance(self, found: ComputeInstance, project: str) -> Instance:
        zone = last_part(found.zone)
        return Instance(
            id=f"{zone}/{found.name}",
            phase=PHASES.get(found.status, InstancePhase.RUNNING),
            owner=found.labels.get(OWNER_LABEL) or None,
            price=self._offers.price(found),
            created=found.creation_timestamp,
            node_name=found.name,
            provider_id=f"gce://{project}/{zone}/{found.name}",
            message=found.status_message or None,
            ends_at=found.resource_status.scheduling.termination_timestamp,
        )

    def _leftover(self, disk: ComputeDisk) -> Instance | None:
        """The disk of an instance that is gone, as that instance: it is billed, and deleted by terminating."""
        if disk.users:
            return None
        age = self._clock() - disk.creation_timestamp if disk.creation_timestamp is not None else _DISK_SETTLES
        if disk.last_detach_timestamp is None and age < _DISK_SETTLES:
            return None
        return Instance(
            id=f"{last_part(disk.zone)}/{disk.name}",
            phase=InstancePhase.ENDING,
            owner=disk.labels.get(OWNER_LABEL) or None,
            created=disk.creation_timestamp,
            message="The instance is gone, and its disk is left.",
        )

    async def _provider_id(self, zone: str, name: str) -> str:
        return f"gce://{await self.calls.identity.project()}/{zone}/{name}"


def _not_listed(what: str, zone: str, code: str) -> str:
    where = f" of {zone}" if zone else ""
    said = code[:_LONGEST_CODE] or "no reason given"
    return f"Google could not list the {what}{where} ({said}): nothing is concluded from the rest."


__all__ = ["CAPABILITIES", "NAME", "GcpProvider"]
