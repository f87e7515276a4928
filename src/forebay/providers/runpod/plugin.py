"""The provider `runpod` as it is registered."""

from typing import Final

from forebay.providers.cloud_frame import builder
from forebay.providers.plugin import ProviderPlugin
from forebay.providers.runpod.provider import CAPABILITIES, RunpodProvider
from forebay.providers.runpod.wire import BASE

PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=builder(RunpodProvider, CAPABILITIES, BASE))
