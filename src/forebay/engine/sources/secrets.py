"""Reads the Secrets that providers name from the cluster."""

from collections.abc import Mapping

from forebay.kube.client import Client
from forebay.kube.errors import Forbidden, KubeError, NotFound
from forebay.kube.secrets import SecretData, read_secret
from forebay.net.transport import TransportError
from forebay.providers.secrets import SecretReader, SecretsUnavailable, UnusableSecret


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
            raise UnusableSecret(
                f"Forebay may not read {where}: list its name in the chart's value `secrets` (or repeat forebay "
                "manifests install with --secret), or grant Forebay's ServiceAccount get on it"
            ) from error
        except (KubeError, TransportError) as error:
            raise SecretsUnavailable(f"{where} could not be read: {error}") from error


class TrackedSecrets:
    """`SecretReader` of one source, which notes in `versions` the version of each Secret that the source has read."""

    def __init__(self, reader: SecretReader, versions: dict[str, str]) -> None:
        self._reader = reader
        self._versions = versions

    async def get(self, namespace: str, name: str) -> Mapping[str, bytes]:
        where = f"Secret {namespace}/{name}"
        try:
            found = await self._reader.get(namespace, name)
        except UnusableSecret:
            self._versions[where] = "unusable"
            raise
        if isinstance(found, SecretData):
            self._versions[where] = found.version
        return found
