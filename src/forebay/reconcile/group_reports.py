"""Status of NodeProvisioners: sizes, the arithmetic of the target, and whether their groups can be used."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from forebay.api.node_provisioner import NodeProvisioner, NodeProvisionerStatus
from forebay.api.parts import Condition, Truth
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
    snapshot: Snapshot, sizes: Mapping[str, SizedGroups], faults: Faults
) -> Iterator[ReportProvisioner]:
    """The status of each NodeProvisioner whose status has changed."""
    claimed = groups_claimed_twice(snapshot.provisioners)
    for each in snapshot.provisioners:
        if each.metadata.deletion_timestamp is not None:
            continue
        name = each.metadata.name
        source, size = snapshot.sources.get(provisioner_source(each)), sizes.get(name)
        before = each.status or NodeProvisionerStatus()
        ready = _ready(each, snapshot, source, claimed.get(name, {}), faults)
        facts = (ready, *_growth_blocked(size, source, before.conditions))
        conditions = merge_conditions(before.conditions, facts, each.metadata.generation, snapshot.now)
        figures = _figures(size, source, before)
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


def _figures(size: SizedGroups | None, source: Source | None, before: NodeProvisionerStatus) -> dict[str, Any]:
    """Figures of the status. While nothing is decided, only the size is kept current."""
    listed = len(source.listing.found.instances) if source is not None and source.listing is not None else None
    if size is None:
        return {"currentSize": listed if listed is not None else before.current_size}
    return {
        "currentSize": listed,
        "targetSize": size.target.size,
        "utilizedNodes": size.use.used,
        "taintedNodes": size.tainted,
        "reason": str(size.target.reason),
        "message": size.target.sentence[:_LONGEST],
        "arithmetic": [step[:_LONGEST] for step in size.target.steps],
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
        return Fact("Ready", Truth.FALSE, Reason.PROVIDER_UNAVAILABLE, sentence)
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
