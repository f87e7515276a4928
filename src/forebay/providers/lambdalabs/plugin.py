"""The provider `lambdalabs` as it is registered."""

from typing import Final

from forebay.providers.cloud_frame import builder
from forebay.providers.lambdalabs.provider import CAPABILITIES, LambdaProvider
from forebay.providers.lambdalabs.wire import BASE
from forebay.providers.plugin import ProviderPlugin

PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=builder(LambdaProvider, CAPABILITIES, BASE))
