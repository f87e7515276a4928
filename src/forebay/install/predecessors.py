"""Predecessors in a cluster: their objects are read, and what they become is created."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from forebay.api.kinds import KINDS
from forebay.api.meta import Object
from forebay.kube.client import Client
from forebay.kube.errors import AlreadyExists
from forebay.kube.own_kinds import resource_of
from forebay.kube.resources import Resource

Document = dict[str, Any]


class FormerObject(Object, kw_only=True, frozen=True):
    """An object of a predecessor: all that a migration looks at."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)


def _former(group: str, version: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource[FormerObject]:
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced, type=FormerObject)


#: Kinds of predecessors, in every version that they had, and the Deployments among which they are.
FORMER_KINDS: Final = (
    _former("tgp.io", "v1", "gpunodeclasses", "GPUNodeClass", namespaced=False),
    _former("tgp.io", "v1", "gpunodepools", "GPUNodePool"),
    _former("tgp.io", "v1", "gpurequests", "GPURequest"),
    _former("budget.zxuhan.dev", "v1alpha1", "gpuworkloadbudgets", "GPUWorkloadBudget"),
    _former("compute.baseten.co", "v1alpha1", "nodeprovisioners", "NodeProvisioner", namespaced=False),
    _former("apps", "v1", "deployments", "Deployment"),
)


async def former_objects(client: Client) -> list[Document]:
    """All objects of predecessors, and all Deployments. A kind that the cluster does not serve has none."""
    found: list[Document] = []
    for resource in FORMER_KINDS:
        if resource.plural in await client.served(resource.api_version):
            page = await client.list_all(resource)
            found += [_document(resource, each) for each in page.items]
    return found


def _document(resource: Resource[FormerObject], found: FormerObject) -> Document:
    meta = found.metadata
    kept = {"name": meta.name, "namespace": meta.namespace, "labels": meta.labels, "annotations": meta.annotations}
    metadata = {key: value for key, value in kept.items() if value}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": found.spec}


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """Objects as Kind namespace/name."""

    created: tuple[str, ...]
    #: There already, and left as they are.
    existing: tuple[str, ...]


async def create_migrated(client: Client, manifests: Sequence[Document]) -> Created:
    """Creates the objects, after the API server has admitted all of them in a dry run. Raises `ApiError`.

    Objects that are there already are left as they are, so that the call can be repeated.
    """
    existing: set[int] = set()
    for number, manifest in enumerate(manifests):
        try:
            await client.create(_resource(manifest), manifest, dry_run=True)
        except AlreadyExists:
            existing.add(number)
    for number, manifest in enumerate(manifests):
        if number not in existing:
            await client.create(_resource(manifest), manifest)
    return Created(
        created=_names(each for number, each in enumerate(manifests) if number not in existing),
        existing=_names(each for number, each in enumerate(manifests) if number in existing),
    )


def _resource(manifest: Document) -> Resource[Any]:
    (kind,) = (each for each in KINDS if each.kind == manifest["kind"])
    return resource_of(kind)


def _names(manifests: Iterable[Document]) -> tuple[str, ...]:
    return tuple(
        f"{each['kind']} {'/'.join(filter(None, (each['metadata'].get('namespace'), each['metadata']['name'])))}"
        for each in manifests
    )
