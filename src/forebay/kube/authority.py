"""The cluster's certificate authority, as it is published in every namespace."""

from typing import Final

import msgspec

from forebay.api.meta import Object
from forebay.kube.client import Client
from forebay.kube.resources import Resource

_NAME: Final = "kube-root-ca.crt"
_KEY: Final = "ca.crt"


class _Published(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


_CONFIG_MAPS: Final = Resource(
    group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=_Published
)


async def cluster_authority(client: Client, namespace: str) -> bytes | None:
    """The authority's certificates in PEM, from this namespace; None where none are published there."""
    # A list of one: the operator may list ConfigMaps of its own namespace, and need not be allowed to get this one too.
    page = await client.list_page(_CONFIG_MAPS, namespace, fields=f"metadata.name={_NAME}")
    found = next((each.data.get(_KEY) for each in page.items), None)
    return found.encode() if found else None
