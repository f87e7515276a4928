"""Which credentials the machines of a class need to join."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.names import BOOTSTRAP_TOKEN
from forebay.api.values import duration
from forebay.bootstrap.cloud_init import BOOTSTRAP_TOKEN_VARIABLE, boot_template
from forebay.bootstrap.templates import variables_of
from forebay.join.base import JoinCredential
from forebay.join.bootstrap_tokens import BootstrapTokens, K3sTokens
from forebay.kube.client import Client
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.net.redaction import Redactor

#: How long a token lives where the class does not say.
_TOKEN_TTL: Final = timedelta(hours=1)


class JoinMethods:
    def __init__(self, client: Client, redactor: Redactor, clock: Callable[[], datetime]) -> None:
        self._client = client
        self._redactor = redactor
        self._clock = clock

    def needed(self, record: GPUInstance, node_class: GPUNodeClass | None) -> tuple[JoinCredential, ...]:
        """The credentials to make for a launch of this record. Owned machines and containers need none."""
        if node_class is None or not policy_of(record).joins_as_new_node:
            return ()
        spec = node_class.spec
        if spec.k3s_config is not None:
            return (K3sTokens(self._tokens(node_class), self._client),)
        writes = spec.kubeadm_config is not None or (
            spec.talos_config is not None and spec.talos_config.machine_config_template is None
        )
        if writes or BOOTSTRAP_TOKEN_VARIABLE in variables_of(boot_template(spec) or ""):
            return (self._tokens(node_class),)
        return ()

    def of_kind(self, kind: str, node_class: GPUNodeClass | None) -> JoinCredential | None:
        """What can revoke a credential of this kind; None for a kind of another release of Forebay."""
        return self._tokens(node_class) if kind == BOOTSTRAP_TOKEN else None

    def _tokens(self, node_class: GPUNodeClass | None) -> BootstrapTokens:
        kubeadm = node_class.spec.kubeadm_config if node_class is not None else None
        ttl = duration(kubeadm.token_ttl) if kubeadm is not None else _TOKEN_TTL
        return BootstrapTokens(self._client, self._redactor, ttl=ttl, clock=self._clock, signing=kubeadm is not None)
