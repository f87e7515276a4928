"""Writes that make a pending pod a remote one: the binding, the marks, and tolerations without a time limit."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from forebay.api.names import (
    EXTERNAL_ANNOTATION,
    FAILURE_COUNT_ANNOTATION,
    MANAGED_MARK,
    OFFLOADED_ANNOTATION,
    REMOTE_COST_ANNOTATION,
    REMOTE_ID_MARK,
    RETRY_AFTER_ANNOTATION,
    VIRTUAL_NODE,
)
from forebay.model.label_syntax import value_problem
from forebay.model.quantities import UsdPerHour


def binding(namespace: str, name: str, uid: str, node: str = VIRTUAL_NODE) -> dict[str, Any]:
    """Body of `pods/binding`: atomic, so that either the scheduler or Forebay wins. The UID is a precondition.

    The marks ride in the same write where the API server takes them over (1.36 does, 1.34 drops them): whoever needs
    them must also write `pod_marks`.
    """
    plain = plain_binding(namespace, name, uid, node)
    marks = {"labels": {MANAGED_MARK: "true"}, "annotations": {EXTERNAL_ANNOTATION: "true"}}
    return {**plain, "metadata": {**plain["metadata"], **marks}}


def plain_binding(namespace: str, name: str, uid: str, node: str = VIRTUAL_NODE) -> dict[str, Any]:
    """Body of `pods/binding` for a pod that does not run remotely."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def without_time_limits(tolerations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A JSON patch that takes `tolerationSeconds` off a bound pod, so that no length of downtime evicts it.

    Each removal is guarded by a test of the very toleration: another writer may have added one meanwhile. Raising the
    seconds would not help once the taint is there. Empty where there is nothing to do.
    """
    patch: list[dict[str, Any]] = []
    for number, each in enumerate(tolerations):
        if each.get("tolerationSeconds") is not None:
            path = f"/spec/tolerations/{number}"
            patch += (
                {"op": "test", "path": path, "value": dict(each)},
                {"op": "remove", "path": f"{path}/tolerationSeconds"},
            )
    return patch


def pod_marks(instance_id: str | None = None, price: UsdPerHour | None = None) -> dict[str, Any]:
    """A merge patch with the marks by which users find remote pods (`kubectl get pods -l runpod.io/managed=true`)."""
    labels = {MANAGED_MARK: "true"}
    annotations = {EXTERNAL_ANNOTATION: "true"}
    if instance_id is not None:
        annotations[REMOTE_ID_MARK] = instance_id
        if value_problem(instance_id) is None:
            labels[REMOTE_ID_MARK] = instance_id
    if price is not None:
        annotations[REMOTE_COST_ANNOTATION] = price.exact()
    return {"metadata": {"labels": labels, "annotations": annotations}}


def job_marks(
    instance_id: str | None, price: UsdPerHour | None, *, failures: int = 0, retry_at: datetime | None = None
) -> dict[str, str | None]:
    """Annotations of a Job that runs remotely, or tries to; None: to be removed.

    `instance_id` is the container of its latest pod. `failures` is how many containers did not start, and `retry_at`
    when the next one may; None while one runs.
    """
    marks: dict[str, str | None] = {}
    if instance_id is not None:
        marks |= {OFFLOADED_ANNOTATION: "true", REMOTE_ID_MARK: instance_id}
        if price is not None:
            marks[REMOTE_COST_ANNOTATION] = price.exact()
    if failures:
        marks[FAILURE_COUNT_ANNOTATION] = str(failures)
    marks[RETRY_AFTER_ANNOTATION] = None if retry_at is None else _time(retry_at)
    return marks


def _time(at: datetime) -> str:
    return at.replace(microsecond=0).isoformat().replace("+00:00", "Z")
