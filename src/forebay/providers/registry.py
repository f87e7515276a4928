"""Which providers this release has, and how each is made from what a GPUNodeClass or the environment says."""

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
    """What a provider needs beyond its entry."""

    #: A transport to the outside, with these TLS options (None: the system's).
    make_transport: Callable[[TlsOptions | None], Transport]
    secrets: SecretReader
    #: Where Forebay runs: Secrets are looked for there, unless their reference says otherwise.
    namespace: str
    #: UID of the cluster, the mark on everything that is rented.
    cluster: str
    redactor: Redactor
    clock: Callable[[], datetime] = wall.now


class NotInThisRelease(ValueError):
    """The API knows the provider's name, this release has no code for it. The text is fit for a condition."""


def build_provider(entry: Entry, context: ProviderContext) -> Provider:
    """Raises `NotInThisRelease`. Entries that are equal give providers that do the same."""
    make = _PROVIDERS.get(entry.name)
    if make is None:
        have = ", ".join(_PROVIDERS)
        raise NotInThisRelease(
            f"This release of Forebay cannot use the provider {entry.name} yet; it has {have}. "
            "Upgrade to a release that has it, or set enabled: false on it."
        )
    return make(entry, context)


def environment_entry(machines: Sequence[Machine]) -> Entry:
    """Machines that the environment names, as a class would list them."""
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
