"""The providers of this release, and how each is built from an entry of a GPUNodeClass."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.machines import Machine
from forebay.api.providers import ProviderName
from forebay.net import clock as wall
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import Transport
from forebay.providers.base import Provider
from forebay.providers.secrets import SecretReader, Secrets
from forebay.providers.webhook.provider import WebhookProvider


class ProviderContext(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of providers, beside their entry."""

    #: Makes a transport with these TLS options (None: the system's).
    make_transport: Callable[[TlsOptions | None], Transport]
    secrets: SecretReader
    #: Namespace of the operator, and of Secrets whose reference names none.
    namespace: str
    #: UID of the cluster, with which rented instances are tagged.
    cluster: str
    redactor: Redactor
    clock: Callable[[], datetime] = wall.now


class NotInThisRelease(ValueError):
    """The API allows this provider, but this release does not implement it. The text is shown in a condition."""


def build_provider(entry: Entry, context: ProviderContext) -> Provider:
    """The provider of an entry. Raises `NotInThisRelease`."""
    build = _PROVIDERS.get(entry.name)
    if build is None:
        available = ", ".join(_PROVIDERS)
        raise NotInThisRelease(
            f"This release of Forebay does not support the provider {entry.name}; it supports {available}. "
            f"Upgrade Forebay, or set enabled: false on {entry.name}."
        )
    return build(entry, context)


def environment_entry(machines: Sequence[Machine]) -> Entry:
    """The entry that a GPUNodeClass would have for machines named by environment variables."""
    return Entry(name=ProviderName.WEBHOOK, machines=tuple(machines))


def _webhook(entry: Entry, context: ProviderContext) -> Provider:
    return WebhookProvider(
        entry.machines,
        make_transport=context.make_transport,
        secrets=Secrets(context.secrets, context.namespace, context.redactor),
        clock=context.clock,
    )


_PROVIDERS: Final[dict[ProviderName, Callable[[Entry, ProviderContext], Provider]]] = {
    ProviderName.WEBHOOK: _webhook,
}
