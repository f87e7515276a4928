"""Writes that make a pending pod a remote one: the binding, the marks, and tolerations without a time limit."""

from collections.abc import Mapping, Sequence
from typing import Any

from forebay.api.names import (
    EXTERNAL_ANNOTATION,
    MANAGED_MARK,
    OFFLOADED_ANNOTATION,
    REMOTE_COST_ANNOTATION,
    REMOTE_ID_MARK,
    VIRTUAL_NODE,
)
from forebay.model.label_syntax import value_problem
from forebay.model.quantities import UsdPerHour


def binding(namespace: str, name: str, uid: str, node: str = VIRTUAL_NODE) -> dict[str, Any]:
    """Body of `pods/binding`: atomic, so that either the scheduler or Forebay wins. The UID is a precondition.

    The marks ride in the same write where the API server takes them over (1.36 does, 1.34 drops them): whoever needs
    them must also write `pod_marks`.
    """
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "labels": {MANAGED_MARK: "true"},
            "annotations": {EXTERNAL_ANNOTATION: "true"},
        },
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


def job_marks(instance_id: str, price: UsdPerHour | None) -> dict[str, Any]:
    """A merge patch with the marks of a Job whose latest pod runs remotely."""
    annotations = {OFFLOADED_ANNOTATION: "true", REMOTE_ID_MARK: instance_id}
    if price is not None:
        annotations[REMOTE_COST_ANNOTATION] = price.exact()
    return {"metadata": {"annotations": annotations}}
