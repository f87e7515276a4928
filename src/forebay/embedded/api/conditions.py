"""Conditions in the status of an object: find, set, and the ones of pods."""

from collections.abc import Iterable, Mapping
from typing import Any

from forebay.embedded.api.objects import Json


def find_condition(status: Mapping[str, Any], kind: str) -> Json | None:
    return next((c for c in status.get("conditions") or () if c["type"] == kind), None)


def is_condition_true(status: Mapping[str, Any], kind: str) -> bool:
    found = find_condition(status, kind)
    return found is not None and found["status"] == "True"


def with_conditions(status: Json, new_conditions: Iterable[Json], now: str) -> Json:
    """The status with these conditions set. lastTransitionTime changes only with a condition's status."""
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    for new in new_conditions:
        old = conditions.get(new["type"])
        since = old.get("lastTransitionTime") if old and old["status"] == new["status"] else None
        conditions[new["type"]] = {**new, "lastTransitionTime": since or now}
    return {**status, "conditions": list(conditions.values())}


def with_status_condition(status: Json, new: Json, now: str) -> Json:
    return with_conditions(status, (new,), now)


def pod_condition(kind: str, status: str, **why: str) -> Json:
    return {"type": kind, "status": status, "lastProbeTime": None, **why}


def disrupted(status: Json, now: str, reason: str, message: str) -> Json:
    """The status of a pod with DisruptionTarget: about to be deleted by the cluster, not by its owner."""
    return with_status_condition(status, pod_condition("DisruptionTarget", "True", reason=reason, message=message), now)
