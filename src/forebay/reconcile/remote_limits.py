"""Limits of pools and classes, as the remote containers of one tick use them up."""

from collections.abc import Iterable

from msgspec.structs import replace

from forebay.model.quantities import Resources
from forebay.model.sources import Offer
from forebay.planning.plan import Cap, PoolKey


class RemainingLimits:
    """What pools and classes may still order. A container counts as a node, with its price and its GPUs."""

    def __init__(self, caps: Iterable[Cap]) -> None:
        self._caps = list(caps)

    def refusal(self, pool: PoolKey, offer: Offer) -> str | None:
        """Name of a limit that one more such container would break."""
        return next((each.name for each in self._caps if pool in each.pools and _breaks(each, offer)), None)

    def take(self, pool: PoolKey, offer: Offer) -> None:
        self._caps = [_less(each, offer) if pool in each.pools else each for each in self._caps]


def _breaks(cap: Cap, offer: Offer) -> bool:
    if cap.nodes is not None and cap.nodes < 1:
        return True
    if cap.hourly_cost is not None and cap.hourly_cost < offer.price:
        return True
    return cap.resources is not None and offer.gpu_count > cap.resources.get(offer.gpu_resource, offer.gpu_count)


def _less(cap: Cap, offer: Offer) -> Cap:
    nodes = None if cap.nodes is None else cap.nodes - 1
    cost = None if cap.hourly_cost is None else cap.hourly_cost - offer.price
    resources = cap.resources
    if resources is not None and offer.gpu_resource in resources:
        left = resources[offer.gpu_resource] - offer.gpu_count
        # As in `planning.limits`: -1 stands for nothing left.
        resources = Resources({**resources, offer.gpu_resource: left if left > 0 else -1})
    return replace(cap, nodes=nodes, hourly_cost=cost, resources=resources)
