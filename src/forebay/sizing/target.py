"""The target size of the groups of one NodeProvisioner, with the arithmetic that led to it.

Up: nodes for the pods that no node has room for, the empty nodes to keep ready, and the nodes that keep utilisation
below its maximum. Down: the largest size at which utilisation is not below its minimum, and never so far that a used
node or an empty one that is to be kept ready would have to go.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace


class SizingRules(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a NodeProvisioner that decide the size of its groups."""

    #: Least share of nodes in use, in percent.
    min_utilization: int | None = None
    #: Largest share of nodes in use, in percent: above it the groups grow before pods wait.
    max_utilization: int | None = None
    #: Empty nodes that are always kept ready.
    min_unutilized: int = 0
    max_nodes: int | None = None


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of the groups, counted."""

    #: Nodes that exist or are launching, without those that are being deleted.
    size: int
    #: Nodes that run pods with GPUs, or are reserved for such pods.
    used: int
    #: Nodes that take no pods now (NotReady, cordoned by people, never joined) and are not used.
    unusable: int = 0
    #: Further nodes for pods that no node has room for.
    needed: int = 0
    #: Nodes that their provider ends soon, or that have drifted: they are replaced, and then go.
    ending: int = 0

    @property
    def serviceable(self) -> int:
        """Nodes that are used, or could be."""
        return self.size - self.unusable


class TargetReason(StrEnum):
    """Why the target is what it is."""

    PODS_WAITING = "PodsWaiting"
    """Pods wait that fit the groups' nodes and no free one: the groups grow by the nodes they need."""
    TOO_FEW_UNUTILIZED = "TooFewUnutilized"
    """Fewer nodes are empty than minUnutilizedGPUNodes says: the groups grow."""
    ABOVE_MAX_UTILIZATION = "AboveMaxUtilization"
    """A larger share of nodes is in use than maxGPUUtilizationPercent says: the groups grow before pods wait."""
    BELOW_MIN_UTILIZATION = "BelowMinUtilization"
    """A smaller share of nodes is in use than minGPUUtilizationPercent says: empty nodes go."""
    SURPLUS_UNUTILIZED = "SurplusUnutilized"
    """More nodes are empty than minUnutilizedGPUNodes says, and no minimum utilisation is set: empty nodes go."""
    MAX_NODES = "MaxNodes"
    """The groups may not be larger than maxNodes."""
    AT_TARGET = "AtTarget"
    """The groups have the size that they should have."""


class TargetSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size that the groups should have, and why."""

    size: int
    reason: TargetReason
    #: Fewest serviceable nodes: nobody is to wait, and the nodes to keep ready are there.
    least: int
    #: Most nodes at which the minimum utilisation is kept; None: no minimum is set.
    most: int | None
    #: The arithmetic, one step a line, with its numbers.
    steps: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return self.steps[-1]


def target_size(use: GroupUse, rules: SizingRules) -> TargetSize:
    """The target of the groups as they are used now."""
    if use.ending:
        return _with_replacements(use, rules)
    used = use.used + use.needed
    steps = [_in_use(use)]
    least, floor_reason, floor_step = _least(use, rules)
    steps.append(floor_step)
    most = None if rules.min_utilization is None else used * 100 // rules.min_utilization
    if most is not None:
        steps.append(
            f"minGPUUtilizationPercent {rules.min_utilization}: at most {_nodes(most)} "
            f"(the largest size with {used} in use at {rules.min_utilization} % or more)."
        )
    if least > use.serviceable:
        size, reason = use.size + least - use.serviceable, floor_reason
    elif use.size > (keep := max(least, least if most is None else most)):
        size, reason = keep, TargetReason.SURPLUS_UNUTILIZED if most is None else TargetReason.BELOW_MIN_UTILIZATION
    else:
        size, reason = use.size, TargetReason.AT_TARGET
    if rules.max_nodes is not None and size > rules.max_nodes:
        # Never below the nodes in use: those are not deleted, whatever the maximum says.
        size, reason = max(rules.max_nodes, use.used), TargetReason.MAX_NODES
        steps.append(f"maxNodes {rules.max_nodes}: the target is {size}.")
    steps.append(_conclusion(use, size, reason))
    return TargetSize(size=size, reason=reason, least=least, most=most, steps=tuple(steps))


def _with_replacements(use: GroupUse, rules: SizingRules) -> TargetSize:
    """The target without the nodes that are replaced, and these besides until they are gone."""
    others = target_size(replace(use, size=use.size - use.ending, ending=0), rules)
    size = others.size + use.ending
    ending = f"{_nodes(use.ending)} to replace: the rest is counted without these, and they go when others are there."
    steps = [_in_use(use), ending, *others.steps[1:-1]]
    if rules.max_nodes is not None and size > (most := max(rules.max_nodes, use.size)):
        size = most
        steps.append(f"maxNodes {rules.max_nodes}: no node can be replaced before it goes; the target is {size}.")
    steps.append(_conclusion(use, size, others.reason))
    return replace(others, size=size, steps=tuple(steps))


def _least(use: GroupUse, rules: SizingRules) -> tuple[int, TargetReason, str]:
    """Fewest serviceable nodes, the reason that asks for most of them, and the step of the arithmetic."""
    used = use.used + use.needed
    kept_ready = used + rules.min_unutilized
    # Pods that fit none of the empty nodes need nodes besides those.
    for_pods = use.serviceable + use.needed if use.needed else used
    relaxed = used if rules.max_utilization is None else -(-used * 100 // rules.max_utilization)
    least = max(kept_ready, for_pods, relaxed)
    parts = [f"{used} in use"]
    if rules.min_unutilized:
        parts.append(f"{kept_ready} with minUnutilizedGPUNodes {rules.min_unutilized}")
    if rules.max_utilization is not None:
        parts.append(f"{relaxed} for at most {rules.max_utilization} % in use")
    if for_pods > used:
        parts.append(f"{for_pods} because waiting pods fit no empty node")
    if use.needed:
        reason = TargetReason.PODS_WAITING
    elif kept_ready >= relaxed:
        reason = TargetReason.TOO_FEW_UNUTILIZED
    else:
        reason = TargetReason.ABOVE_MAX_UTILIZATION
    return least, reason, f"At least {_nodes(least)}: {', '.join(parts)}."


def _in_use(use: GroupUse) -> str:
    share = f" ({use.used * 100 // use.size} %)" if use.size else ""
    return f"{use.used} of {_nodes(use.size)} are in use{share}{_unusable(use)}{_needed(use)}."


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _unusable(use: GroupUse) -> str:
    return f", {use.unusable} take no pods" if use.unusable else ""


def _needed(use: GroupUse) -> str:
    return f", and waiting pods need {use.needed} more" if use.needed else ""


def _conclusion(use: GroupUse, size: int, reason: TargetReason) -> str:
    change = f"grow by {size - use.size}" if size > use.size else f"shrink by {use.size - size}"
    return f"Target {size}: {'no change' if size == use.size else change} ({reason})."
