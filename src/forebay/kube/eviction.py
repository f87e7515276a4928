"""Eviction: deletes a pod only as its PodDisruptionBudgets allow."""

from http import HTTPStatus
from typing import Any

from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import ApiError, Forbidden, Invalid, TooManyRequests
from forebay.kube.resources import AnyObject, Resource

_PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=AnyObject)


async def evict_pod(client: Client, name: str, namespace: str, *, uid: str | None = None) -> None:
    """Raises an error for which `is_refusal` is true when this pod, as opposed to the server, forbids the eviction."""
    eviction: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    if uid is not None:
        eviction["deleteOptions"] = writes.preconditions(uid)
    await client.post_subresource(_PODS, name, namespace, "eviction", eviction)


def is_refusal(error: ApiError) -> bool:
    """Whether the API server refuses to evict this very pod, so that another pod may be asked for instead.

    A PodDisruptionBudget answers 429 with a cause, more than one of them 500, an admission policy or webhook 403 or
    422. Any other error is about the server, and asking for another pod would not help.
    """
    match error:
        case TooManyRequests():
            return error.by_disruption_budget
        case Forbidden() | Invalid():
            return True
        case _:
            return error.status == HTTPStatus.INTERNAL_SERVER_ERROR
