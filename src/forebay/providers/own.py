"""The providers of this release: one line each."""

from collections.abc import Mapping
from typing import Final

from forebay.providers.crusoe.plugin import PLUGIN as CRUSOE
from forebay.providers.gcp.plugin import PLUGIN as GCP
from forebay.providers.lambdalabs.plugin import PLUGIN as LAMBDALABS
from forebay.providers.paperspace.plugin import PLUGIN as PAPERSPACE
from forebay.providers.plugin import ProviderPlugin
from forebay.providers.runpod.plugin import PLUGIN as RUNPOD
from forebay.providers.simulated.plugin import PLUGIN as SIMULATED
from forebay.providers.webhook.plugin import PLUGIN as WEBHOOK

OWN: Final[Mapping[str, ProviderPlugin]] = {
    "crusoe": CRUSOE,
    "gcp": GCP,
    "lambdalabs": LAMBDALABS,
    "paperspace": PAPERSPACE,
    "runpod": RUNPOD,
    "simulated": SIMULATED,
    "webhook": WEBHOOK,
}
