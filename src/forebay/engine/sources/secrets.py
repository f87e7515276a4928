"""Reads the Secrets that providers name from the cluster."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, NoReturn

from forebay.kube.client import Client
from forebay.kube.errors import Forbidden, KubeError, NotFound
from forebay.kube.secrets import SecretData, read_secret
from forebay.net.transport import TransportError
from forebay.providers.secrets import SecretReader, SecretsUnavailable, UnusableSecret

#: After a failed join, the Secrets that joins use are read again this often, for as long as a cooldown may last.
REREAD_AFTER: Final = 10.0
_REREAD_FOR: Final = timedelta(hours=1)


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


class JoinSecrets:
    """`SecretReader` for how machines join. After a failed join it looks for Secrets that were corrected."""

    def __init__(self, reader: SecretReader, wake: Callable[[], None], clock: Callable[[], datetime]) -> None:
        #: Version of each Secret that was read, by `Secret namespace/name`.
        self.versions: dict[str, str] = {}
        self._tracked = TrackedSecrets(reader, self.versions)
        self._wake = wake
        self._clock = clock
        self._read: set[tuple[str, str]] = set()
        self._failed_at: datetime | None = None

    async def get(self, namespace: str, name: str) -> Mapping[str, bytes]:
        self._read.add((namespace, name))
        return await self._tracked.get(namespace, name)

    def failed(self) -> None:
        """Notes that a machine could not be told how to join: a Secret may be corrected now."""
        self._failed_at = self._clock()

    async def run(self) -> NoReturn:
        """Reads the Secrets again after a failure, and wakes the loop when one has changed, which ends the cooldown."""
        while True:
            await asyncio.sleep(REREAD_AFTER)
            if self._failed_at is None or self._clock() >= self._failed_at + _REREAD_FOR:
                continue
            before = dict(self.versions)
            for namespace, name in sorted(self._read):
                try:
                    await self._tracked.get(namespace, name)
                except (UnusableSecret, SecretsUnavailable):
                    continue  # not corrected yet, or not known
            if self.versions != before:
                self._failed_at = None
                self._wake()
