"""Acts that Kubernetes offers as subresources: bind a pod, evict it, scale its owner."""

from collections.abc import Mapping
from typing import Any

import msgspec

from forebay.api.meta import Object
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.resources import AnyObject, Resource, T

_PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=AnyObject)


class ScaleSpec(msgspec.Struct, omit_defaults=True, kw_only=True):
    replicas: int = 0


class ScaleStatus(msgspec.Struct, omit_defaults=True, kw_only=True):
    replicas: int = 0
    selector: str = ""


class Scale(Object):
    """How many there should be, and are, whatever the kind behind it."""

    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)


async def bind(
    client: Client,
    name: str,
    namespace: str,
    *,
    node: str,
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Put a pending pod on a node, once and for all: `Conflict` when it already has one.

    The labels and annotations land on the pod in the same write, so that there is no bound pod without its marks.
    """
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    given = {"uid": uid, "labels": labels, "annotations": annotations}
    metadata.update({field: value for field, value in given.items() if value})
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    await client.post_subresource(_PODS, name, namespace, "binding", binding)


async def evict(
    client: Client,
    name: str,
    namespace: str,
    *,
    grace_period: int | None = None,
    uid: str | None = None,
    resource_version: int | None = None,
    dry_run: bool = False,
) -> None:
    """Ask for a pod's end as its disruption budgets allow; `TooManyRequests.by_disruption_budget` when they do not."""
    options = writes.preconditions(uid, resource_version)
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    if dry_run:
        options["dryRun"] = ["All"]
    eviction: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    if options:
        eviction["deleteOptions"] = options
    await client.post_subresource(_PODS, name, namespace, "eviction", eviction)


async def read_scale(client: Client, resource: Resource[T], name: str, namespace: str | None = None) -> Scale:
    return await client.get(_scale_of(resource), name, namespace, subresource="scale")


async def scale(
    client: Client,
    resource: Resource[T],
    name: str,
    namespace: str | None = None,
    *,
    replicas: int,
    resource_version: int | None = None,
    dry_run: bool = False,
) -> Scale:
    """Set the number of replicas; with a version, only if nothing else has changed since."""
    changes: dict[str, Any] = {"spec": {"replicas": replicas}}
    if resource_version is not None:
        changes["metadata"] = {"resourceVersion": str(resource_version)}
    return await client.patch(
        _scale_of(resource), name, writes.merge(changes), namespace, subresource="scale", dry_run=dry_run
    )


def _scale_of(resource: Resource[T]) -> Resource[Scale]:
    """The same path, answered with an autoscaling/v1 Scale."""
    return Resource(
        group=resource.group,
        version=resource.version,
        plural=resource.plural,
        kind="Scale",
        namespaced=resource.namespaced,
        type=Scale,
    )
