"""RunPod's provider as another package would bring it, first without RunPod's rate limits and then within them.

A thousand launches take half an hour at 60 requests a minute, and what they are launched for is to be measured later.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from forebay.api.gpu_node_class import ProviderEntry
from forebay.model.sources import Capabilities, Offer
from forebay.providers import registry
from forebay.providers.base import Provider
from forebay.providers.cloud_frame import builder
from forebay.providers.plugin import ProviderContext, ProviderPlugin
from forebay.providers.runpod.lanes import lane_of
from forebay.providers.runpod.provider import CAPABILITIES, RunpodProvider
from forebay.providers.runpod.wire import BASE
from tests.engine.test_toy_provider import install

NAME = "phased"
UNPACED = replace(CAPABILITIES, rate_limits=(), max_calls=64)


class Phase:
    """Whether providers that are built from now on keep to the limits."""

    paced = False


class PhasedRunpod(RunpodProvider):
    def capabilities(self) -> Capabilities:
        return CAPABILITIES if Phase.paced else UNPACED

    async def offers(self) -> Sequence[Offer]:
        return tuple(replace(each, provider=NAME) for each in await super().offers())


def _build(entry: ProviderEntry, context: ProviderContext) -> Provider:
    limits = CAPABILITIES if Phase.paced else UNPACED
    return builder(PhasedRunpod, limits, BASE, lane_of)(entry, context)


PLUGIN = ProviderPlugin(capabilities=CAPABILITIES, build=_build)


def add_to(folder: Path) -> None:
    """Installs the package in the folder, which is on the path."""
    install(folder, f"{NAME} = {__name__}:PLUGIN", name="phased_runpod")
    registry.providers.cache_clear()
