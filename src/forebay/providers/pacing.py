"""Transports of cloud providers: they keep to the published rate limits, and repeat a read that fails at once."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from forebay.model.sources import Capabilities
from forebay.net.rate_budget import Lane, RateBudget
from forebay.net.repeated_reads import RepeatedReads
from forebay.net.transport import Request, Transport

#: Seconds that a request may wait for its turn.
_LONGEST_WAIT: Final = 30.0
#: What pods wait for, or what ends a bill, comes before what is only to be known; one in ten is for that.
_CHANGES: Final = Lane("changes", 9)
_READS: Final = Lane("reads")


def cloud_transport(
    transport: Transport, capabilities: Capabilities, lane_of: Callable[[Request], Lane] | None = None
) -> Transport:
    """The transport, paced, which repeats reads that fail at once. Each repetition counts for the rate limits."""
    return RepeatedReads(paced(transport, capabilities, lane_of))


def paced(
    transport: Transport, capabilities: Capabilities, lane_of: Callable[[Request], Lane] | None = None
) -> Transport:
    """The transport, which sends no more than every rate limit of the provider allows.

    Half of a limit may be sent at once and the other half evenly over its span, so that no window, wherever it begins,
    has more than the whole. `lane_of` says which requests wait together: they delay no others, so less of the limit is
    kept for what must be sent at once (a quarter), and they may wait for longer, though not for as long as the call
    that they are part of (what was never sent has done nothing for certain). Without it, requests that change something
    come first.
    """
    longest = _LONGEST_WAIT if lane_of is None else capabilities.call_timeout.total_seconds() * 0.75
    part = 2 if lane_of is None else 4
    for limit in sorted(capabilities.rate_limits, key=lambda each: each.per):
        burst = max(limit.requests // part, 1)
        rest = max(limit.requests - burst, 1)
        qps = rest / (limit.per / timedelta(seconds=1))
        transport = RateBudget(transport, qps=qps, burst=burst, longest_wait=longest, lane_of=lane_of or _changes_first)
    return transport


def _changes_first(request: Request) -> Lane:
    return _READS if request.method == "GET" else _CHANGES
