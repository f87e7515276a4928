"""RunPod's provider without RunPod's rate limits, as another package would bring it: for a server that has none.

What is shown with it is how Jobs end; how long 60 requests a minute take is shown in virtual time.
"""

from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from forebay.providers.cloud_frame import builder
from forebay.providers.plugin import ProviderPlugin
from forebay.providers.runpod.provider import CAPABILITIES, RunpodProvider
from forebay.providers.runpod.wire import BASE
from tests.engine.test_toy_provider import install

NAME = "unpaced"
UNPACED = replace(
    CAPABILITIES,
    rate_limits=(),
    poll=timedelta(seconds=1),
    fast_poll=timedelta(seconds=1),
)


class UnpacedRunpod(RunpodProvider):
    def capabilities(self):
        return UNPACED

    async def offers(self):
        return tuple(replace(each, provider=NAME) for each in await super().offers())


PLUGIN = ProviderPlugin(capabilities=UNPACED, build=builder(UnpacedRunpod, UNPACED, BASE))


def installed(folder: Path) -> dict[str, str]:
    """The environment of a process beside which the package is installed."""
    install(folder, f"{NAME} = {__name__}:PLUGIN", name="unpaced_runpod")
    return {"PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}"}
