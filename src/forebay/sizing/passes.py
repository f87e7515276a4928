"""One pass over the groups of a NodeProvisioner: at most one kind of change, in a fixed order.

Expand; else delete nodes whose taint has expired; else taint empty nodes, each with the time of its deletion; else
untaint nodes that are not surplus any more. A node with pods is never tainted and never deleted.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

import msgspec

from forebay.api.names import SCALE_DOWN_TAINT
from forebay.model.nodes import Node
from forebay.model.requirements import Effect, Taint

#: A taint's value may hold no colon.
TIME_FORMAT: Final = "%Y%m%dT%H%M%SZ"


class MemberNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the groups that exists."""

    name: str
    #: Nothing but DaemonSet pods runs there, and no waiting pod counts on it.
    empty: bool
    #: It could take pods.
    usable: bool = True
    #: When it is to be deleted, by its taint; None: it has no such taint.
    delete_at: datetime | None = None
    #: People keep it as it is.
    held: bool = False
    hourly_price: Fraction = Fraction(0)


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one pass: one of these, except that a pass that expands also untaints."""

    expand: int = 0
    delete: tuple[str, ...] = ()
    taint: tuple[str, ...] = ()
    untaint: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.expand or self.delete or self.taint or self.untaint)


def next_pass(nodes: Iterable[MemberNode], size: int, target: int, now: datetime) -> Pass:
    """The next change on the way from `size` (launching nodes included) to `target`."""
    ordered = sorted(nodes, key=_first_to_go)
    tainted = [node for node in ordered if node.delete_at is not None]
    in_use = tuple(node.name for node in tainted if not node.empty or node.held)
    leaving = [node for node in tainted if node.empty and not node.held]
    surplus = size - target
    if surplus < 0:
        return Pass(expand=-surplus, untaint=tuple(node.name for node in tainted))
    expired = [node for node in leaving if node.delete_at is not None and node.delete_at <= now]
    if delete := _names(expired, surplus):
        return Pass(delete=delete)
    candidates = [node for node in ordered if node.delete_at is None and node.empty and not node.held]
    if taint := _names(candidates, surplus - len(leaving)):
        return Pass(taint=taint)
    return Pass(untaint=(*in_use, *_names(leaving[::-1], len(leaving) - surplus)))


def next_expiry(nodes: Iterable[MemberNode], now: datetime) -> datetime | None:
    """When the next taint expires."""
    times = (node.delete_at for node in nodes if node.empty and node.delete_at is not None)
    return min((at for at in times if at > now), default=None)


def _names(nodes: Sequence[MemberNode], most: int) -> tuple[str, ...]:
    return tuple(node.name for node in nodes[: max(most, 0)])


def _first_to_go(node: MemberNode) -> tuple[bool, Fraction, str]:
    """Nodes that take no pods anyway, then the most expensive ones."""
    return node.usable, -node.hourly_price, node.name


def scale_down_taint(now: datetime, delay: timedelta) -> Taint:
    """The taint of a node that is deleted after `delay`.

    PreferNoSchedule: kube-scheduler uses the node when no other has room, and the pod keeps it.
    """
    return Taint(SCALE_DOWN_TAINT, (now + delay).astimezone(UTC).strftime(TIME_FORMAT), Effect.PREFER_NO_SCHEDULE)


def scale_down_taints(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.taints if taint.key == SCALE_DOWN_TAINT)


def deletion_time(node: Node) -> datetime | None:
    """When the node's taint says that it is deleted; None without such a taint, and for a value that is no time."""
    taint = next(iter(scale_down_taints(node)), None)
    if taint is None:
        return None
    try:
        return datetime.strptime(taint.value, TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        # Somebody has edited the taint: the next pass writes it anew.
        return None
