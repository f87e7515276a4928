"""Secrets, read by name: nothing lists or watches them."""

import base64

import msgspec

from forebay.api.meta import Object
from forebay.kube.client import Client
from forebay.kube.resources import Resource


class Secret(Object, frozen=True):
    #: Base64, as on the wire.
    data: dict[str, str] = msgspec.field(default_factory=dict)


SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret", namespaced=True, type=Secret)


class SecretData(dict[str, bytes]):
    """The decoded data of a Secret, and the version of it."""

    version: str = ""


async def read_secret(client: Client, namespace: str, name: str) -> SecretData:
    secret = await client.get(SECRETS, name, namespace)
    data = SecretData({key: base64.b64decode(value) for key, value in secret.data.items()})
    data.version = str(secret.resource_version)
    return data
