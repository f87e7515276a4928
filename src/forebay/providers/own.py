"""The providers of this release: one line each."""

from collections.abc import Mapping
from typing import Final

from forebay.providers.plugin import ProviderPlugin
from forebay.providers.simulated.plugin import PLUGIN as SIMULATED
from forebay.providers.webhook.plugin import PLUGIN as WEBHOOK

OWN: Final[Mapping[str, ProviderPlugin]] = {
    "simulated": SIMULATED,
    "webhook": WEBHOOK,
}
