"""Status of NodeProvisioners: sizes, the arithmetic of the target, and whether their groups can be used."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from forebay.api.node_provisioner import NodeProvisioner, NodeProvisionerStatus
from forebay.api.parts import Condition, Truth
from forebay.lifecycle.facts import instance_id
from forebay.lifecycle.group_members import members_of
from forebay.model.reasons import Reason
from forebay.model.sources import Source
from forebay.reconcile.decisions import ReportProvisioner
from forebay.reconcile.group_growth import provisioner_source
from forebay.reconcile.group_sizing import SizedGroups
from forebay.reconcile.isolation import Faults
from forebay.reconcile.reports import Fact, merge_conditions
from forebay.reconcile.snapshot import Snapshot
from forebay.sizing.claims import groups_claimed_twice

GROWTH_BLOCKED: Final = "GrowthBlocked"
#: The status of a condition that asks for attention, where that is not False.
BAD_TRUTHS: Final = {GROWTH_BLOCKED: Truth.TRUE}
_MOST_NAMED: Final = 3
_LONGEST: Final = 1024


def report_provisioners(
    snapshot: Snapshot, sizes: Mapping[str, SizedGroups], faults: Faults, paused: Mapping[tuple[str, str], str]
) -> Iterator[ReportProvisioner]:
    """The status of each NodeProvisioner whose status has changed. `paused`: as `due_steps.paused_replacements`."""
    claimed = groups_claimed_twice(snapshot.provisioners)
    for each in snapshot.provisioners:
        if each.metadata.deletion_timestamp is not None:
            continue
        name = each.metadata.name
        source, size = snapshot.sources.get(provisioner_source(each)), sizes.get(name)
        before = each.status or NodeProvisionerStatus()
        ready = (
            _ready(each, snapshot, source, claimed.get(name, {}), faults)
            if each.spec.node_class_ref is None
            else _rented_ready(each, snapshot, source, size, paused.get(("", name)), faults)
        )
        facts = (ready, *_growth_blocked(size, source, before.conditions))
        conditions = merge_conditions(before.conditions, facts, each.metadata.generation, snapshot.now)
        figures = _figures(size, _listed(each, source, snapshot), before)
        shown = msgspec.to_builtins(before)
        if conditions == before.conditions and all(shown.get(field) == value for field, value in figures.items()):
            continue
        yield ReportProvisioner(
            name=name,
            uid=each.uid,
            resource_version=each.resource_version,
            generation=each.metadata.generation or 0,
            conditions=conditions,
            figures=figures,
            reason=ready.reason,
            sentence=ready.sentence,
        )


def _listed(each: NodeProvisioner, source: Source | None, snapshot: Snapshot) -> int | None:
    """Nodes that the provider lists; None where it was not asked yet."""
    if source is None or source.listing is None:
        return None
    found = source.listing.found.instances
    if each.spec.node_class_ref is None:
        return len(found)
    own = {instance_id(record) for record in members_of(each.metadata.name, snapshot.records)}
    return sum(instance.id in own for instance in found)


def _figures(size: SizedGroups | None, listed: int | None, before: NodeProvisionerStatus) -> dict[str, Any]:
    """Figures of the status. While nothing is decided, only the size is kept current."""
    if size is None:
        return {"currentSize": listed if listed is not None else before.current_size}
    return {
        "currentSize": listed,
        "targetSize": size.target.size,
        "utilizedNodes": size.use.used,
        "taintedNodes": size.tainted,
        "reason": str(size.target.reason),
        "message": size.target.sentence[:_LONGEST],
        # A tuple, as the status has it: anything else would be written again in every tick.
        "arithmetic": tuple(step[:_LONGEST] for step in size.target.steps),
    }


def _ready(
    each: NodeProvisioner, snapshot: Snapshot, source: Source | None, claimed: Mapping[str, str], faults: Faults
) -> Fact:
    key = provisioner_source(each)
    if (fault := faults.told("NodeProvisioner", ("", each.metadata.name))) is not None:
        return Fact("Ready", Truth.FALSE, Reason.RECONCILE_FAILED, fault)
    if (unusable := snapshot.unusable.get(key)) is not None:
        return Fact("Ready", Truth.FALSE, Reason.PROVIDER_NOT_SERVED, unusable)
    if claimed:
        twice = "; ".join(f"group {group} belongs to NodeProvisioner {owner}" for group, owner in claimed.items())
        sentence = f"{twice}, which is older. Name each group in one NodeProvisioner only."
        return Fact("Ready", Truth.FALSE, Reason.CLAIMED_TWICE, sentence)
    if source is not None and source.check is not None and not source.check.ok:
        return Fact("Ready", Truth.FALSE, Reason.CHECK_FAILED, source.check.sentence)
    if source is not None and source.error is not None:
        stale = "The last listing still holds." if source.listing is not None else "Nothing is decided before that."
        sentence = f"{source.error.rstrip('.')}. {stale}"
        return Fact("Ready", Truth.FALSE, source.error_reason, sentence)
    if source is None or source.listing is None:
        sentence = "The instance groups are being listed. Nothing is decided about them before."
        return Fact("Ready", Truth.UNKNOWN, Reason.GROUPS_NOT_LISTED, sentence)
    unknown = [group.name for group in source.listing.found.groups if group.offer is None]
    if unknown:
        sentence = (
            f"Machine type or price of instance group {', '.join(unknown)} is not known, so it is not grown: check its "
            "instance template."
        )
        return Fact("Ready", Truth.FALSE, Reason.OFFER_INVALID, sentence)
    groups = ", ".join(each.spec.existing_instance_group_names)
    return Fact("Ready", Truth.TRUE, Reason.GROUPS_READY, f"Instance groups {groups} can be listed and sized.")


def _rented_ready(  # noqa: PLR0917 (all that it depends on)
    each: NodeProvisioner,
    snapshot: Snapshot,
    source: Source | None,
    size: SizedGroups | None,
    paused: str | None,
    faults: Faults,
) -> Fact:
    """Whether the machines of a group that Forebay keeps can be rented."""
    provider, key = each.spec.provider, provisioner_source(each)
    node_class = next((one for one in snapshot.classes if one.metadata.name == key.node_class), None)
    if (fault := faults.told("NodeProvisioner", ("", each.metadata.name))) is not None:
        return Fact("Ready", Truth.FALSE, Reason.RECONCILE_FAILED, fault)
    if node_class is None:
        sentence = f'GPUNodeClass "{key.node_class}" does not exist: create it, or correct spec.nodeClassRef.name.'
        return Fact("Ready", Truth.FALSE, Reason.NODE_CLASS_NOT_FOUND, sentence)
    if node_class.metadata.deletion_timestamp is not None:
        sentence = f'GPUNodeClass "{key.node_class}" is being deleted: name another in spec.nodeClassRef.'
        return Fact("Ready", Truth.FALSE, Reason.NODE_CLASS_DELETING, sentence)
    if (unusable := snapshot.unusable.get(key)) is not None:
        return Fact("Ready", Truth.FALSE, Reason.PROVIDER_NOT_SERVED, unusable)
    if all(entry.name != provider.name for entry in node_class.spec.providers):
        named = ", ".join(entry.name for entry in node_class.spec.providers)
        sentence = (
            f"GPUNodeClass {key.node_class} has no provider {provider.name}, only {named}: add it there, or create "
            "another NodeProvisioner."
        )
        return Fact("Ready", Truth.FALSE, Reason.PROVIDER_NOT_SERVED, sentence)
    if paused is not None:
        return Fact("Ready", Truth.FALSE, Reason.DISRUPTION_PAUSED, paused)
    if source is not None and source.error is not None:
        return Fact("Ready", Truth.FALSE, source.error_reason, source.error)
    rented = size.sized.rented if size is not None else None
    if source is None or source.listing is None or source.offers is None or rented is None:
        sentence = f"{provider.name} is being asked for its machines and offers. Nothing is decided before."
        return Fact("Ready", Truth.UNKNOWN, Reason.GROUPS_NOT_LISTED, sentence)
    if rented.refused and not rented.candidates:
        return Fact("Ready", Truth.FALSE, Reason.NOT_ALLOWED, f"{provider.instance_type}: {rented.refused[0]}.")
    where = f" in {', '.join(sorted(rented.candidates))}" if rented.candidates else ""
    sentence = f"{provider.instance_type} of {provider.name} is rented{where}, as GPUNodeClass {key.node_class} says."
    return Fact("Ready", Truth.TRUE, Reason.GROUPS_READY, sentence)


def _not_rentable(size: SizedGroups) -> Iterator[str]:
    """Why a group that Forebay keeps cannot grow, besides cooldowns."""
    rented, provider = size.sized.rented, size.sized.provisioner.spec.provider
    if rented is None or rented.refused or rented.template_hash is None:
        # Without a class that may be used nobody has looked at its offers; the condition Ready says so.
        return
    if not rented.candidates:
        at = f" in {provider.location}" if provider.location is not None else ""
        yield f"{provider.name} offers no {provider.instance_type}{at} now."
    elif size.target.size > size.use.size:
        limits = dict.fromkeys(rented.limit(place) for place in rented.candidates)
        yield from (f"{limit} leaves no room for one more machine." for limit in limits if limit is not None)


def _growth_blocked(
    size: SizedGroups | None, source: Source | None, current: tuple[Condition, ...]
) -> tuple[Fact, ...]:
    """The condition GrowthBlocked, from the first failure on."""
    why: list[str] = []
    if size is not None:
        cooling = {group: size.sized.cooldown(group) for group in size.sized.groups}
        why += (
            f"group {group} until {found.until:%H:%M:%S} UTC: {found.failure.message}"
            for group, found in cooling.items()
            if found is not None
        )
        why += _not_rentable(size)
    if source is not None and source.listing is not None:
        why += (
            f"member {name} of group {group.name}: {failure.sentence}"
            for group in source.listing.found.groups
            for name, failure in group.failures.items()
        )
    if why:
        more = f" And {len(why) - _MOST_NAMED} more." if len(why) > _MOST_NAMED else ""
        return (
            Fact(GROWTH_BLOCKED, Truth.TRUE, Reason.COOLING_DOWN, f"{' '.join(why[:_MOST_NAMED])}{more}"[:_LONGEST]),
        )
    if any(each.type == GROWTH_BLOCKED for each in current):
        return (Fact(GROWTH_BLOCKED, Truth.FALSE, Reason.GROUP_GROWS, "All groups may grow."),)
    return ()
