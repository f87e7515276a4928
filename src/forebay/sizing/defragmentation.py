"""Defragmentation: the pods of one node move to the free room of other nodes in use, so that a whole node is free.

Only where the target of the groups falls with it: otherwise the node would be replaced by another one. While pods
move, empty nodes have a taint by which kube-scheduler prefers the others; a pod that fits nowhere else still uses them.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import SCALE_DOWN_TAINT
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.requirements import Effect, Taint
from forebay.sizing.target import GroupUse, SizingRules, target_size

#: On empty nodes while pods move. Its value is no time, so that no node is deleted for it.
AVOIDED: Final = Taint(SCALE_DOWN_TAINT, "defragmenting", Effect.PREFER_NO_SCHEDULE)


def is_avoided(node: Node) -> bool:
    return AVOIDED in node.taints


def is_saved_by_moving(use: GroupUse, rules: SizingRules) -> bool:
    """Whether the groups need one node less when one node less is in use."""
    if use.needed or use.ending or not use.used:
        return False
    after = replace(use, size=use.size - 1, used=use.used - 1)
    return target_size(after, rules).size <= after.size


def moved_at(record: GPUInstance) -> datetime | None:
    """When the pods of the member were last to move elsewhere, to free its node; None: never."""
    steps = record.status.transitions if record.status is not None else ()
    return max(
        (each.at for each in steps if each.state is InstanceState.DRAINING and each.reason == Reason.UNDERUTILIZED),
        default=None,
    )


def next_move_at(members: Iterable[GPUInstance], delay: timedelta) -> datetime | None:
    """When the pods of the next node may move: `delay` after the last time; None: at once."""
    last = max((at for each in members if (at := moved_at(each)) is not None), default=None)
    return None if last is None else last + delay
