"""Eviction: deletes a pod only as its PodDisruptionBudgets allow."""

from typing import Any

from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.resources import AnyObject, Resource

_PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=AnyObject)


async def evict_pod(client: Client, name: str, namespace: str, *, uid: str | None = None) -> None:
    """Raises `TooManyRequests` with `by_disruption_budget` when a PodDisruptionBudget forbids the eviction."""
    eviction: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    if uid is not None:
        eviction["deleteOptions"] = writes.preconditions(uid)
    await client.post_subresource(_PODS, name, namespace, "eviction", eviction)
