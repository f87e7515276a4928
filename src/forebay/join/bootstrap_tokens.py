"""Bootstrap tokens: one per launch call, short-lived, good for one certificate of one node.

The token lets a machine request a kubelet's client certificate and nothing else: its group has the role
system:node-bootstrapper and no automatic approval. Forebay itself approves the request that names the expected node
(`lifecycle.node_certificates`).
"""

import hashlib
import secrets
import string
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ClassVar, Final

from forebay.api.gpu_instance import GPUInstance, ResourceLifetime, SecondaryResource
from forebay.api.names import BOOTSTRAP_GROUP, BOOTSTRAP_TOKEN, INSTANCE_LABEL, TOKEN_NAMESPACE
from forebay.bootstrap.k3s import is_k3s
from forebay.join.base import JoinError, Made
from forebay.kube.client import Client
from forebay.kube.errors import KubeError, NotFound
from forebay.kube.secrets import SECRETS
from forebay.net.redaction import Redactor
from forebay.net.transport import TransportError

_ALPHABET: Final = string.digits + string.ascii_lowercase
_ID_LENGTH: Final = 6
_SECRET_LENGTH: Final = 16
_NAME_PREFIX: Final = "bootstrap-token-"


class BootstrapTokens:
    kind: ClassVar[str] = BOOTSTRAP_TOKEN

    def __init__(
        self,
        client: Client,
        redactor: Redactor,
        *,
        ttl: timedelta,
        clock: Callable[[], datetime],
        signing: bool = False,
    ) -> None:
        """`signing`: the token also proves the cluster to the machine, which kubeadm asks for."""
        self._client = client
        self._signing = signing
        self._redactor = redactor
        self._ttl = ttl
        self._clock = clock

    def planned(self, record: GPUInstance, attempt: int) -> SecondaryResource:
        token_id = _token_id(f"{record.uid}/{attempt}")
        return SecondaryResource(kind=self.kind, name=token_id, until=ResourceLifetime.JOINED, attempt=attempt)

    async def make(self, record: GPUInstance, planned: SecondaryResource) -> Made:
        secret = "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))
        # The redactor must know it before any request holds it.
        self._redactor.register(secret)
        token = f"{planned.name}.{secret}"
        self._redactor.register(token)
        expiration = (self._clock() + self._ttl).replace(microsecond=0)
        manifest = {
            "metadata": {"name": f"{_NAME_PREFIX}{planned.name}", "labels": {INSTANCE_LABEL: record.uid}},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "description": f"Join credential of GPUInstance {record.metadata.name}; Forebay deletes it.",
                "token-id": planned.name,
                "token-secret": secret,
                "expiration": expiration.isoformat().replace("+00:00", "Z"),
                "usage-bootstrap-authentication": "true",
                "auth-extra-groups": BOOTSTRAP_GROUP,
                **({"usage-bootstrap-signing": "true"} if self._signing else {}),
            },
        }
        try:
            await self._client.create(SECRETS, manifest, namespace=TOKEN_NAMESPACE)
        except (KubeError, TransportError) as error:
            # AlreadyExists as well: a lost answer to an earlier call. The secret of that call is lost, so the token is
            # of no use; the next attempt has another id.
            raise JoinError(f"Bootstrap token {planned.name} could not be created: {error}") from error
        return Made(planned, {"BootstrapToken": token})

    async def revoke(self, resource: SecondaryResource) -> None:
        try:
            await self._client.delete(SECRETS, f"{_NAME_PREFIX}{resource.name}", TOKEN_NAMESPACE)
        except NotFound:
            return
        except (KubeError, TransportError) as error:
            raise JoinError(f"Bootstrap token {resource.name} could not be deleted: {error}") from error


class K3sTokens:
    """Bootstrap tokens where the API server is k3s, whose agents join with them; elsewhere none.

    Which of both holds is found out when one is to be made: the name of a token that was never made is noted too, and
    its deletion does no harm.
    """

    kind: ClassVar[str] = BOOTSTRAP_TOKEN

    def __init__(self, tokens: BootstrapTokens, client: Client) -> None:
        self._tokens = tokens
        self._client = client

    def planned(self, record: GPUInstance, attempt: int) -> SecondaryResource:
        return self._tokens.planned(record, attempt)

    async def make(self, record: GPUInstance, planned: SecondaryResource) -> Made:
        try:
            version = (await self._client.version()).git_version
        except (KubeError, TransportError) as error:
            raise JoinError(f"The version of the cluster could not be read: {error}") from error
        if is_k3s(version):
            return await self._tokens.make(record, planned)
        note = (
            f"{record.metadata.name} joins with the agent token of its class, which every machine of the class shares: "
            f"the API server ({version or 'of unknown version'}) is not k3s, so it takes no token of one machine."
        )
        return Made(planned, {}, note)

    async def revoke(self, resource: SecondaryResource) -> None:
        await self._tokens.revoke(resource)


def _token_id(identity: str) -> str:
    number = int.from_bytes(hashlib.sha256(identity.encode()).digest())
    digits = []
    for _ in range(_ID_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)
