"""Which credentials the machines of a class need to join."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.joining import OAuthCredentialsSecretRef, TailscaleConfig
from forebay.api.names import BOOTSTRAP_TOKEN, TAILSCALE_DEVICE, TAILSCALE_KEY
from forebay.api.values import duration
from forebay.bootstrap.cloud_init import BOOTSTRAP_TOKEN_VARIABLE, boot_template
from forebay.bootstrap.templates import variables_of
from forebay.join.base import JoinCredential, JoinRejected
from forebay.join.bootstrap_tokens import BootstrapTokens, K3sTokens
from forebay.join.tailnets.base import Tailnet, TailnetClient
from forebay.join.tailnets.headscale import HeadscaleTailnet
from forebay.join.tailnets.tailscale import TailscaleTailnet
from forebay.join.tailscale_credentials import TailscaleDevices, TailscaleKeys
from forebay.kube.client import Client
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.model.secret_text import SecretText
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import Transport

#: How long a token lives where the class does not say.
_TOKEN_TTL: Final = timedelta(hours=1)

#: Reads a Secret by namespace (None: the operator's own) and name. Raises `JoinError`.
ReadSecret = Callable[[str | None, str], Awaitable[Mapping[str, bytes]]]


class JoinMethods:
    """Makes what can make and revoke each credential. Control servers of tailnets share one transport."""

    def __init__(
        self,
        client: Client,
        redactor: Redactor,
        clock: Callable[[], datetime],
        *,
        read_secret: ReadSecret,
        make_transport: Callable[[TlsOptions | None], Transport],
    ) -> None:
        self._client = client
        self._redactor = redactor
        self._clock = clock
        self._read_secret = read_secret
        self._make_transport = make_transport
        self._transport: Transport | None = None
        #: By the URL of the control server; None: Tailscale's.
        self._tailnets: dict[str | None, Tailnet] = {}

    def needed(self, record: GPUInstance, node_class: GPUNodeClass | None) -> tuple[JoinCredential, ...]:
        """The credentials to make for a launch of this record. Owned machines and containers need none."""
        if node_class is None or not policy_of(record).joins_as_new_node:
            return ()
        return (*self._for_cluster(node_class), *self._for_tailnet(node_class))

    def of_kind(self, kind: str, node_class: GPUNodeClass | None) -> JoinCredential | None:
        """What can revoke a credential of this kind; None for a kind of another release of Forebay, and for what a
        class made that says nothing of it any more.
        """
        if kind == BOOTSTRAP_TOKEN:
            return self._tokens(node_class)
        return self.device(node_class) if kind == TAILSCALE_DEVICE else self._key(node_class, kind)

    def device(self, node_class: GPUNodeClass | None) -> TailscaleDevices | None:
        config = node_class.spec.tailscale_config if node_class is not None else None
        return None if config is None else TailscaleDevices(self._tailnet(config), config, self._client_of(config))

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()

    def _for_cluster(self, node_class: GPUNodeClass) -> tuple[JoinCredential, ...]:
        spec = node_class.spec
        if spec.k3s_config is not None:
            return (K3sTokens(self._tokens(node_class), self._client),)
        writes = spec.kubeadm_config is not None or (
            spec.talos_config is not None and spec.talos_config.machine_config_template is None
        )
        if writes or BOOTSTRAP_TOKEN_VARIABLE in variables_of(boot_template(spec) or ""):
            return (self._tokens(node_class),)
        return ()

    def _for_tailnet(self, node_class: GPUNodeClass) -> tuple[JoinCredential, ...]:
        key, device = self._key(node_class, TAILSCALE_KEY), self.device(node_class)
        return (device, key) if device is not None and key is not None else ()

    def _key(self, node_class: GPUNodeClass | None, kind: str) -> TailscaleKeys | None:
        config = node_class.spec.tailscale_config if node_class is not None else None
        if config is None or kind != TAILSCALE_KEY:
            return None
        return TailscaleKeys(self._tailnet(config), config, self._client_of(config))

    def _tailnet(self, config: TailscaleConfig) -> Tailnet:
        url = config.control_url
        if url not in self._tailnets:
            self._transport = self._transport or self._make_transport(None)
            self._tailnets[url] = (
                TailscaleTailnet(self._transport, self._redactor, self._clock)
                if url is None
                else HeadscaleTailnet(self._transport, self._redactor, self._clock, url=url)
            )
        return self._tailnets[url]

    def _client_of(self, config: TailscaleConfig) -> Callable[[], Awaitable[TailnetClient]]:
        return partial(self._read_client, config.oauth_credentials_secret_ref)

    async def _read_client(self, ref: OAuthCredentialsSecretRef) -> TailnetClient:
        found = await self._read_secret(ref.namespace, ref.name)
        values = []
        for key in (ref.client_id_key, ref.client_secret_key):
            if not found.get(key):
                raise JoinRejected(
                    f"Secret {ref.name} of tailscaleConfig has no key {key}: add it, or name another key."
                )
            values.append(found[key].decode(errors="replace").strip())
        self._redactor.register(values[1])
        return TailnetClient(id=values[0], secret=SecretText(values[1]))

    def _tokens(self, node_class: GPUNodeClass | None) -> BootstrapTokens:
        kubeadm = node_class.spec.kubeadm_config if node_class is not None else None
        ttl = duration(kubeadm.token_ttl) if kubeadm is not None else _TOKEN_TTL
        return BootstrapTokens(self._client, self._redactor, ttl=ttl, clock=self._clock, signing=kubeadm is not None)
