"""Registry credentials at providers of containers, made from imagePullSecrets and shared by containers of one class.

Each is noted in the record of every container that needs it, under a name that follows from the class, the Secret and
its version, before it is made. It goes with the last of these containers. A Secret that was changed makes another one.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from forebay.api.gpu_instance import GPUInstance, InstanceState, SecondaryResource
from forebay.api.names import REGISTRY_CREDENTIAL
from forebay.engine.apply.container_specs import ContainerNotReady
from forebay.engine.views import Views
from forebay.join.base import JoinError
from forebay.kube.client import Client
from forebay.kube.errors import Forbidden, KubeError, NotFound
from forebay.kube.secrets import SecretData, read_secret
from forebay.lifecycle.facts import source_of
from forebay.net.redaction import Redactor
from forebay.net.transport import TransportError
from forebay.offload.registry_login import InvalidLogin, RegistryLogin, registry_login
from forebay.providers.base import (
    BadCredentials,
    KeepsRegistryCredentials,
    OutcomeUnknown,
    Provider,
    ProviderError,
    Rejected,
)

log = structlog.get_logger(__name__)

_TIMEOUT: Final = 30.0


class PlannedCredential(NamedTuple):
    resource: SecondaryResource
    login: RegistryLogin


class RegistryCredentials:
    def __init__(
        self,
        client: Client,
        views: Views,
        provider_of: Callable[[GPUInstance], Provider | None],
        redactor: Redactor,
        cluster: str,
    ) -> None:
        self._client = client
        self._views = views
        self._provider_of = provider_of
        self._redactor = redactor
        self._cluster = cluster
        #: Nobody looks for a credential while another one decides whether to delete it.
        self._lock = asyncio.Lock()

    async def plan(self, record: GPUInstance) -> PlannedCredential | None:
        """The credential that the container needs; None: none. Raises `ContainerNotReady`."""
        container = record.spec.container
        if container is None or not container.pull_secrets or container.registry_auth is not None:
            return None
        namespace = record.spec.pods[0].namespace if record.spec.pods else ""
        held = {name: await self._read(namespace, name) for name in container.pull_secrets}
        found = {name: data for name, data in held.items() if data is not None}
        try:
            login = registry_login(container.image, found)
        except InvalidLogin as error:
            raise ContainerNotReady(str(error)) from None
        if login is None:
            return None
        self._redactor.register(login.password.reveal())
        # Two classes may have two accounts: what one has made is not there for the other.
        identity = (
            self._cluster,
            *source_of(record),
            namespace,
            login.secret,
            found[login.secret].version,
            login.registry,
        )
        digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:20]
        return PlannedCredential(SecondaryResource(kind=REGISTRY_CREDENTIAL, name=f"forebay-{digest}"), login)

    async def _read(self, namespace: str, name: str) -> SecretData | None:
        """The Secret; None where there is none: a kubelet goes on without it, too."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await read_secret(self._client, namespace, name)
        except NotFound:
            return None
        except Forbidden:
            raise ContainerNotReady(
                f"Forebay may not read Secret {namespace}/{name}, with which the image is pulled: grant its "
                "ServiceAccount get on it."
            ) from None
        except (KubeError, TransportError, TimeoutError) as error:
            told = f"Secret {namespace}/{name} could not be read: {error}."
            raise ContainerNotReady(told, passing=True) from error

    async def make(self, record: GPUInstance, planned: PlannedCredential) -> str:
        """Id of the credential, which is made where there is none yet. Raises `ContainerNotReady`."""
        provider: object = self._provider_of(record)
        if not isinstance(provider, KeepsRegistryCredentials):
            raise ContainerNotReady(
                f"{record.spec.provider} keeps no registry credentials, and the pod has imagePullSecrets."
            )
        try:
            async with self._lock, asyncio.timeout(_TIMEOUT):
                try:
                    return await self._found_or_made(provider, planned)
                except OutcomeUnknown:
                    # Perhaps it was made. A second one of the name would be deleted with the first.
                    return await self._found_or_made(provider, planned)
        except (ProviderError, TimeoutError) as error:
            why = str(error) or f"no answer within {_TIMEOUT:.0f} s"
            told = f"The credentials with which the image is pulled were not stored: {why}"
            raise ContainerNotReady(told, passing=not isinstance(error, Rejected | BadCredentials)) from error

    async def _found_or_made(self, provider: KeepsRegistryCredentials, planned: PlannedCredential) -> str:
        name, login = planned.resource.name, planned.login
        existing = (await provider.registry_credentials()).get(name)
        if existing:
            return existing[0]
        made = await provider.create_registry_credential(name, login.username, login.password)
        log.info("registry credential created", name=name)
        return made

    async def revoke(self, record: GPUInstance, resource: SecondaryResource) -> None:
        """Deletes the credential, unless another container needs it. Raises `JoinError`."""
        provider: object = self._provider_of(record)
        if not isinstance(provider, KeepsRegistryCredentials):
            raise JoinError(f"{record.spec.provider} is not configured any more: put it back into its class.")
        try:
            async with self._lock, asyncio.timeout(_TIMEOUT):
                if self._is_shared(record, resource):
                    return
                # A create whose answer was lost may have made a second one of the name.
                for each in (await provider.registry_credentials()).get(resource.name, ()):
                    await provider.delete_registry_credential(each)
                if (await provider.registry_credentials()).get(resource.name):
                    raise OutcomeUnknown("it is still listed")
        except (ProviderError, TimeoutError) as error:
            raise JoinError(str(error) or f"no answer within {_TIMEOUT:.0f} s") from error

    def _is_shared(self, record: GPUInstance, resource: SecondaryResource) -> bool:
        return any(
            each.uid != record.uid
            and each.state is not InstanceState.GONE
            and each.status is not None
            and any(
                (kept.kind, kept.name) == (resource.kind, resource.name) for kept in each.status.secondary_resources
            )
            for each in self._views.instances.values()
        )
