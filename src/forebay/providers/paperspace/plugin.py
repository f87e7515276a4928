"""The provider `paperspace` as it is registered."""

from typing import Final

from forebay.providers.cloud_frame import builder
from forebay.providers.paperspace.provider import CAPABILITIES, PaperspaceProvider
from forebay.providers.paperspace.wire import BASE
from forebay.providers.plugin import ProviderPlugin

PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=builder(PaperspaceProvider, CAPABILITIES, BASE))
