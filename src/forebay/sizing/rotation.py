"""Rotation of members that their provider ends at a known time, or that have drifted: replacement first.

A while before its end, a member does not count any more: so the target of the groups rises, and others take its place.
Its node takes no new pods from then on. When an empty node is there for it, or at the latest shortly before the end,
its pods are evicted as their PodDisruptionBudgets allow. A member that has drifted has no end: it waits for a node.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from forebay.api.names import SCALE_DOWN_TAINT
from forebay.model.requirements import Effect, Taint
from forebay.sizing.passes import TIME_FORMAT

#: So long before its end a member is replaced; less where it runs for a short time only.
REPLACED_BEFORE: Final = timedelta(minutes=30)
#: So long before its end the pods of a member are evicted, with or without a replacement.
EVICTED_BEFORE: Final = timedelta(minutes=10)
_SHARE: Final = 4
#: Value of the taint of a node that is replaced without an end of its own.
REPLACING: Final = "replacing"
_NO_END: Final = datetime.max.replace(tzinfo=UTC)


class EndingNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node of a member that ends soon, or has drifted."""

    name: str
    #: None: it does not end by itself.
    ends_at: datetime | None
    evict_at: datetime | None
    empty: bool
    #: It has the taint of its end already.
    marked: bool


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about the nodes that end soon."""

    #: Nodes that get the taint of their end.
    mark: tuple[str, ...] = ()
    #: Nodes that are drained now.
    drain: tuple[str, ...] = ()


def replaced_from(ends_at: datetime, created: datetime | None) -> datetime:
    """When a member is to be replaced."""
    return ends_at - _part(REPLACED_BEFORE, ends_at, created)


def evicted_from(ends_at: datetime, created: datetime | None) -> datetime:
    """When the pods of a member are evicted, whatever is there for them."""
    return ends_at - _part(EVICTED_BEFORE, ends_at, created) / 2


def _part(span: timedelta, ends_at: datetime, created: datetime | None) -> timedelta:
    return span if created is None else min(span, (ends_at - created) / _SHARE)


def rotation(
    ending: Iterable[EndingNode], ready_to_replace: int, now: datetime, *, enough_without: bool = True
) -> Rotation:
    """The next steps of the rotation. `ready_to_replace`: empty nodes that pods can move to.

    `enough_without`: the other nodes that are Ready are as many as the groups need; a node without an end waits.
    """
    nodes = sorted(ending, key=lambda node: (node.ends_at or _NO_END, node.name))
    drain: list[str] = []
    for node in nodes:
        if node.ends_at is None and not enough_without:
            continue
        if node.empty or (node.evict_at or _NO_END) <= now:
            drain.append(node.name)
        elif ready_to_replace > 0:
            drain.append(node.name)
            ready_to_replace -= 1
    return Rotation(mark=tuple(node.name for node in nodes if not node.marked), drain=tuple(drain))


def ending_taint(ends_at: datetime | None) -> Taint:
    """The taint of a node that ends soon, or is replaced. NoSchedule: a pod that came now would have to move."""
    value = REPLACING if ends_at is None else ends_at.astimezone(UTC).strftime(TIME_FORMAT)
    return Taint(SCALE_DOWN_TAINT, value, Effect.NO_SCHEDULE)
