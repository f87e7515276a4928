"""The provider `crusoe` as it is registered."""

from typing import Final

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.providers.base import Provider
from forebay.providers.crusoe.provider import CAPABILITIES, PUBLIC_API, CrusoeProvider
from forebay.providers.pacing import cloud_transport
from forebay.providers.plugin import ProviderContext, ProviderPlugin
from forebay.providers.secrets import Secrets


def _build(entry: Entry, context: ProviderContext) -> Provider:
    return CrusoeProvider(
        entry.endpoint or PUBLIC_API,
        context.cluster,
        cloud_transport(context.make_transport(None), CAPABILITIES),
        Secrets(context.secrets, context.namespace, context.redactor),
        entry.credentials_ref,
        context.clock,
        regions=entry.regions,
    )


PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=_build)
