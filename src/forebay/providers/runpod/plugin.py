"""The provider `runpod` as it is registered."""

from typing import Final

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.providers.base import Provider
from forebay.providers.pacing import paced
from forebay.providers.plugin import ProviderContext, ProviderPlugin
from forebay.providers.runpod.provider import CAPABILITIES, RunpodProvider
from forebay.providers.runpod.wire import BASE
from forebay.providers.secrets import Secrets


def _build(entry: Entry, context: ProviderContext) -> Provider:
    return RunpodProvider(
        context.cluster,
        paced(context.make_transport(None), CAPABILITIES),
        Secrets(context.secrets, context.namespace, context.redactor),
        context.clock,
        entry.credentials_ref,
        entry.endpoint or BASE,
        entry.regions,
    )


PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=_build)
