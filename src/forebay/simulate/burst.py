"""The demo's scenario `burst`: two machines of one's own, two clouds, and more Jobs than the machines can run.

The cheaper cloud runs out of machines at once, and takes its spot machine back in the middle of a Job.
"""

from typing import Final

from forebay.simulate.lab import Arrival, LabMachine
from forebay.simulate.market import Market
from forebay.simulate.market_faults import no_capacity
from forebay.simulate.market_goods import RentedNodes, Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power import Powered

OWNED: Final = (
    LabMachine(machine=Powered(name="desk-2", gpus=2, boot=45, hourly_price="0.72"), gpu_type="RTX4090"),
    LabMachine(machine=Powered(name="rack-4", gpus=4, boot=90, driver=20, hourly_price="1.80"), gpu_type="L40S"),
)
#: What the clouds rent out, by the cloud's name.
CLOUDS: Final = {
    "alpha": (
        Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="3.40", region="west", boot=100),
        Sku(
            instance_type="a100.8x",
            gpus=8,
            gpu_type="A100",
            hourly_price="6.20",
            region="west",
            spot=True,
            boot=120,
            reclaims_per_million_hours=50_000,
        ),
    ),
    "beta": (
        Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="4.10", region="east", boot=80),
        Sku(instance_type="a100.8x", gpus=8, gpu_type="A100", hourly_price="12.40", region="east", boot=120),
    ),
}
#: The cloud whose first launch finds no capacity, and that reclaims its first machine with 8 GPUs.
UNRELIABLE: Final = "alpha"
RECLAIMED_GPUS: Final = 8
#: Seconds from the launch of that machine until it is taken back, and of notice.
RECLAIMED_AFTER: Final = 400.0
NOTICE: Final = 60.0

ARRIVALS: Final = (
    Arrival(after=5, name="vision-01", pods=1, gpus=2, run_time=600),
    Arrival(after=20, name="speech-02", pods=1, gpus=4, run_time=900),
    Arrival(after=60, name="burst-03", pods=3, gpus=4, run_time=600),
    Arrival(after=30, name="train-04", pods=1, gpus=8, run_time=900),
    Arrival(after=300, name="vision-05", pods=2, gpus=1, run_time=300),
)


def clouds(nodes: RentedNodes) -> tuple[Market, ...]:
    """The clouds, with what goes wrong in them."""
    markets = tuple(Market(name, skus, nodes) for name, skus in CLOUDS.items())
    for market in markets:
        if market.name == UNRELIABLE:
            market.script(MarketCall.LAUNCH, no_capacity())
            market.script_reclaim(RECLAIMED_GPUS, after=RECLAIMED_AFTER, notice=NOTICE)
    return markets
