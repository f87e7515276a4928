"""Who may use the port of the virtual node: whom the cluster would let use a kubelet, by their client certificate."""

import asyncio
from typing import Final

import msgspec
import structlog

from forebay.api.meta import Object
from forebay.api.names import VIRTUAL_NODE
from forebay.kube.access_reviews import ReviewedUser, may_use_kubelet
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.kube.resources import Resource
from forebay.net.transport import PeerCertificate, TransportError

log = structlog.get_logger(__name__)

#: Seconds for which an answer is remembered; as kubelets do.
_ALLOWED_FOR: Final = 300.0
_DENIED_FOR: Final = 30.0
_MOST_REMEMBERED: Final = 1000


class TrustedAuthorities(Object, frozen=True):
    """What the API server publishes of the authorities that it accepts clients of."""

    data: dict[str, str] = msgspec.field(default_factory=dict)


_CONFIG_MAPS: Final = Resource(
    group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=TrustedAuthorities
)
#: ConfigMap with the authority that signs client certificates, and its key.
AUTHORITIES: Final = ("kube-system", "extension-apiserver-authentication")
_CLIENT_AUTHORITY: Final = "client-ca-file"


class PortAccess:
    """Asks the cluster, as every kubelet does, whether a client may use `nodes/proxy` of the virtual node."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Until when an answer holds by the clock of the event loop, and the answer, by user, groups and verb.
        self._answers: dict[tuple[str, tuple[str, ...], str], tuple[float, str | None]] = {}

    async def client_authority(self) -> bytes | None:
        """The authority of client certificates, PEM; None where the API server accepts none."""
        namespace, name = AUTHORITIES
        found = await self._client.get(_CONFIG_MAPS, name, namespace)
        authority = found.data.get(_CLIENT_AUTHORITY)
        return authority.encode() if authority else None

    async def refusal(self, who: PeerCertificate, verb: str) -> str | None:
        """Why the client may not do that; None: it may. Nobody may while the cluster cannot be asked."""
        if not who.common_name:
            return "Forbidden: the client certificate does not have exactly one common name."
        key = (who.common_name, who.organizations, verb)
        now = asyncio.get_running_loop().time()
        until, answer = self._answers.get(key, (0.0, None))
        if now < until:
            return answer
        try:
            answer = await self._ask(who, verb)
        except (KubeError, TransportError) as error:
            log.warning("access to the virtual node not reviewed", user=who.common_name, error=str(error))
            return f"Forbidden: Forebay could not ask the cluster whether {who.common_name} may {verb} nodes/proxy."
        if len(self._answers) >= _MOST_REMEMBERED:
            self._answers.clear()
        self._answers[key] = (now + (_DENIED_FOR if answer else _ALLOWED_FOR), answer)
        return answer

    async def _ask(self, who: PeerCertificate, verb: str) -> str | None:
        # Whoever has shown a valid certificate is in this group too.
        user = ReviewedUser(username=who.common_name, groups=(*who.organizations, "system:authenticated"))
        if await may_use_kubelet(self._client, user, verb, VIRTUAL_NODE):
            return None
        return f"Forbidden (user={who.common_name}, verb={verb}, resource=nodes, subresource=proxy)"
