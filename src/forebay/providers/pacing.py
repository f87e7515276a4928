"""Transports that keep to a provider's published rate limits."""

from datetime import timedelta

from forebay.model.sources import Capabilities
from forebay.net.rate_budget import RateBudget
from forebay.net.transport import Transport


def paced(transport: Transport, capabilities: Capabilities) -> Transport:
    """The transport, which sends no more than every rate limit of the provider allows.

    Half of a limit may be sent at once and the other half evenly over its span, so that no window, wherever it begins,
    has more than the whole.
    """
    for limit in sorted(capabilities.rate_limits, key=lambda each: each.per):
        burst = max(limit.requests // 2, 1)
        rest = max(limit.requests - burst, 1)
        transport = RateBudget(transport, qps=rest / (limit.per / timedelta(seconds=1)), burst=burst)
    return transport
