"""The demo's scenario `offload`: one machine of one's own, and containers elsewhere for Jobs that are marked for it.

The first GPU type of the provider is out of stock, so that the next one is tried at once.
"""

from typing import Final

from forebay.api.names import MANAGED_MARK, OFFLOAD_ANNOTATION
from forebay.model.sources import Delivery
from forebay.simulate.lab import Arrival, LabMachine
from forebay.simulate.market import Market
from forebay.simulate.market_faults import no_capacity
from forebay.simulate.market_goods import RentedNodes, Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power import Powered

OWNED: Final = (
    LabMachine(machine=Powered(name="rack-2", gpus=2, boot=60, driver=20, hourly_price="0.90"), gpu_type="L40S"),
)
PROVIDER: Final = "remote"
_SKUS: Final = (
    Sku(
        instance_type="a40",
        gpus=1,
        gpu_type="A40",
        gpu_memory_gib=48,
        hourly_price="0.39",
        boot=25,
        delivers=Delivery.CONTAINER,
    ),
    Sku(
        instance_type="rtx4090",
        gpus=1,
        gpu_type="RTX4090",
        gpu_memory_gib=24,
        hourly_price="0.44",
        boot=20,
        delivers=Delivery.CONTAINER,
    ),
)
_MARKED: Final = {MANAGED_MARK: "true"}
_FORCED: Final = {**_MARKED, OFFLOAD_ANNOTATION: "true"}

ARRIVALS: Final = (
    Arrival(after=5, name="vision-01", pods=1, gpus=2, run_time=900),
    # The machine is taken: these two would need another one.
    Arrival(after=60, name="sweep-02", pods=3, gpus=1, run_time=420, annotations=_MARKED),
    Arrival(after=30, name="speech-03", pods=1, gpus=1, run_time=300, annotations=_FORCED),
    # Not marked: waits until the machine is free.
    Arrival(after=20, name="batch-04", pods=2, gpus=1, run_time=300),
)


def providers(nodes: RentedNodes) -> tuple[Market, ...]:
    """The provider of containers, whose first launch finds no capacity."""
    market = Market(PROVIDER, _SKUS, nodes)
    market.script(MarketCall.LAUNCH, no_capacity())
    return (market,)
