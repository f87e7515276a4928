"""Managed instance groups that Forebay creates, from an instance template of the user's."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Letters of a region's zones: us-central1-a.
_ZONE_LETTERS: Final = "abcdef"
_LONGEST_BASE_NAME: Final = 58


def template_path(template: str) -> str:
    """Path of a template in its project: one that is only named is global."""
    path = template.partition("/projects/")[2].partition("/")[2] or template
    return path if "/" in path else f"global/instanceTemplates/{path}"


def possible_zones(region: str) -> Sequence[str]:
    """Zones in which a group of the region may get members."""
    return [f"{region}-{letter}" for letter in _ZONE_LETTERS]


def new_group(name: str, template: str, *, regional: bool, queued: bool) -> Mapping[str, Any]:
    """An empty group. Google changes nothing about its members by itself, but for repairing them: a changed template
    holds for new ones, and those of a regional group stay in their zone. Members that end at a known time are not
    repaired, as Google demands.
    """
    body: dict[str, Any] = {
        "name": name,
        "baseInstanceName": name[:_LONGEST_BASE_NAME].rstrip("-"),
        "instanceTemplate": template,
        "targetSize": 0,
        "updatePolicy": {"type": "OPPORTUNISTIC"},
    }
    if regional:
        body["updatePolicy"]["instanceRedistributionType"] = "NONE"
    if queued:
        body["instanceLifecyclePolicy"] = {"defaultActionOnFailure": "DO_NOTHING"}
    return body
