"""Secrets, read by name: nothing lists or watches them."""

import base64
from collections.abc import Mapping

import msgspec

from forebay.api.meta import Object
from forebay.kube.client import Client
from forebay.kube.resources import Resource


class Secret(Object):
    #: Base64, as on the wire.
    data: dict[str, str] = msgspec.field(default_factory=dict)


SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret", namespaced=True, type=Secret)


async def read_secret(client: Client, namespace: str, name: str) -> Mapping[str, bytes]:
    """The decoded data of a Secret."""
    secret = await client.get(SECRETS, name, namespace)
    return {key: base64.b64decode(value) for key, value in (secret.data or {}).items()}
