"""New members of groups that name them themselves: each belongs to the record whose launch call asked for it.

Such a group is resized up, and its answer tells the new names. Where that answer was lost, the next listing shows
members without a record beside records whose call has no known outcome: these are put together here, before anybody
adopts the ones or repeats the call of the others.
"""

from collections.abc import Iterator
from typing import NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.node_provisioner import NodeProvisioner
from forebay.lifecycle.call_outcomes import instance_found
from forebay.lifecycle.group_members import group_of, members_of, unrecorded_members
from forebay.lifecycle.steps import AnyStep, Launch, WriteStatus
from forebay.model.reasons import Reason
from forebay.model.sources import Instance, Source
from forebay.reconcile.group_growth import provisioner_source
from forebay.reconcile.snapshot import Snapshot


class MemberClaims(NamedTuple):
    claims: tuple[WriteStatus, ...] = ()
    #: Ids of listed members that are claimed, or may be as soon as a call that is under way has its answer.
    members: frozenset[str] = frozenset()
    #: Names of records whose launch call is not repeated now.
    on_hold: frozenset[str] = frozenset()

    def without(self, steps: tuple[AnyStep, ...]) -> tuple[AnyStep, ...]:
        """The steps but for launch calls that are on hold."""
        if not self.on_hold:
            return steps
        return tuple(
            each for each in steps if not (isinstance(each, Launch) and each.record.metadata.name in self.on_hold)
        )


def claim_members(snapshot: Snapshot) -> MemberClaims:
    """Members that are put to records with an unknown outcome, for all groups that name members themselves."""
    claims: list[WriteStatus] = []
    members, on_hold = set[str](), set[str]()
    for each in snapshot.provisioners:
        if each.spec.node_class_ref is not None:
            continue  # a machine that is rented for a record carries its identity
        source = snapshot.sources.get(provisioner_source(each))
        pending = list(_pending(each, snapshot))
        if not pending:
            continue
        # Only a listing that is newer than the call shows what became of it.
        on_hold |= {record.metadata.name for record in pending if not _listed_since(record, source)}
        if source is None or source.listing is None:
            continue
        naming = {group.name for group in source.listing.found.groups if group.chooses_names}
        free = [found for found in unrecorded_members(each, source, snapshot.records) if group_of(found) in naming]
        for record, found in _pairs(pending, free):
            members.add(found.id)
            on_hold.add(record.metadata.name)
            if record.metadata.name not in snapshot.calls_in_flight:
                claims.append(_claim(record, found, snapshot, source))
    return MemberClaims(tuple(claims), frozenset(members), frozenset(on_hold))


def _pending(provisioner: NodeProvisioner, snapshot: Snapshot) -> Iterator[GPUInstance]:
    """Records whose launch call was sent, and whose member is not known."""
    for record in members_of(provisioner.metadata.name, snapshot.records):
        if record.state is InstanceState.LAUNCHING and record.status is not None and record.status.instance_id is None:
            yield record


def _listed_since(record: GPUInstance, source: Source | None) -> bool:
    called = record.status.attempted_at if record.status is not None else None
    return called is None or (source is not None and source.listing is not None and source.listing.asked > called)


def _pairs(pending: list[GPUInstance], free: list[Instance]) -> Iterator[tuple[GPUInstance, Instance]]:
    by_group: dict[str, list[Instance]] = {}
    for found in sorted(free, key=lambda each: each.id, reverse=True):
        by_group.setdefault(group_of(found), []).append(found)
    for record in sorted(pending, key=lambda each: each.metadata.name):
        reference = record.spec.provisioner_ref
        some = by_group.get(reference.group or "") if reference is not None else None
        if some:
            yield record, some.pop()


def _claim(record: GPUInstance, found: Instance, snapshot: Snapshot, source: Source) -> WriteStatus:
    sentence = f"Instance group {group_of(found)} has named the new member {found.node_name}."
    status = instance_found(record, found, Reason.ADOPTED, sentence, snapshot.now, source.capabilities)
    return WriteStatus(record=record, reason=Reason.ADOPTED, sentence=sentence, status=status)
