"""Reads the Secrets that providers name from the cluster."""

from collections.abc import Mapping

from forebay.kube.client import Client
from forebay.kube.errors import Forbidden, KubeError, NotFound
from forebay.kube.secrets import read_secret
from forebay.net.transport import TransportError
from forebay.providers.secrets import SecretsUnavailable, UnusableSecret


class ClusterSecrets:
    """`SecretReader` that gets each Secret by name when it is needed, and keeps none."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, namespace: str, name: str) -> Mapping[str, bytes]:
        where = f"Secret {namespace}/{name}"
        try:
            return await read_secret(self._client, namespace, name)
        except NotFound as error:
            raise UnusableSecret(f"{where} does not exist: create it") from error
        except Forbidden as error:
            raise UnusableSecret(f"Forebay may not read {where}: grant its ServiceAccount get on it") from error
        except (KubeError, TransportError) as error:
            raise SecretsUnavailable(f"{where} could not be read: {error}") from error
