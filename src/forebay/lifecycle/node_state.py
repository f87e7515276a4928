"""What its node tells about a GPUInstance."""

from datetime import datetime

from forebay.api.names import STARTUP_TAINT
from forebay.lifecycle.facts import CORDONED_ANNOTATION, Facts
from forebay.model.quantities import Gpus, Resources


def cordoned_at(facts: Facts) -> datetime | None:
    """None while pods can still be placed on the node. Of a cordon that does not tell its time only this is known:
    it was there when the draining began, or came later and is looked at again anyway.
    """
    node = facts.node
    if node is None or not node.unschedulable:
        return None
    try:
        at = datetime.fromisoformat(node.annotations.get(CORDONED_ANNOTATION, ""))
    except ValueError:
        return facts.since
    return at if at.tzinfo is not None else facts.since


def usable(facts: Facts) -> bool:
    """The node is ready, its GPUs can be asked for, and what it starts up with has gone, but for our own taint."""
    node = facts.node
    return node is not None and node.ready and gpus_allocatable(facts) and not starting_up(facts)


def gpus_allocatable(facts: Facts) -> bool:
    node, spec = facts.node, facts.record.spec
    if node is None:
        return False
    # Resources with a domain are those of devices: the figures come from the offer, for these and no others.
    planned = spec.node.allocatable if spec.node is not None else {}
    devices = {name: amount for name, amount in planned.items() if "/" in name}
    if devices:
        return Resources.parse(devices).fits_within(node.allocatable)
    return node.allocatable.gpus() >= Gpus(spec.offer.gpu_count if spec.offer is not None else 0)


def starting_up(facts: Facts) -> bool:
    node, planned = facts.node, facts.record.spec.node
    if node is None or planned is None:
        return False
    there = {(taint.key, taint.effect) for taint in node.taints}
    return any(
        (taint.key, taint.effect.value) in there for taint in planned.startup_taints if taint.key != STARTUP_TAINT
    )
