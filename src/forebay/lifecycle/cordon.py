"""Cordons that Forebay set itself, told from those of users by an annotation with the time of the cordon."""

from datetime import datetime

from forebay.api.names import CORDONED_ANNOTATION
from forebay.model.nodes import Node


def cordon_time(now: datetime) -> str:
    """Value of the annotation for a cordon made `now`, with microseconds: the wait after it is only a few seconds."""
    return now.isoformat().replace("+00:00", "Z")


def cordoned_at(node: Node, since: datetime | None) -> datetime | None:
    """When the node was cordoned; None while pods can still be placed on it.

    A user's cordon, or one of ours with an unreadable time, counts from the start of the state (`since`): either it was
    there already, or Forebay decides again anyway.
    """
    if not node.unschedulable:
        return None
    try:
        at = datetime.fromisoformat(node.annotations.get(CORDONED_ANNOTATION, ""))
    except ValueError:
        return since
    return at if at.tzinfo is not None else since
