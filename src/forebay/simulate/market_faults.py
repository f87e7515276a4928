"""Scripted faults of calls to a market. Times in seconds."""

from collections.abc import Mapping

import msgspec

from forebay.providers.simulated.wire import MarketRefusal, RefusalCode


class MarketFault(msgspec.Struct, frozen=True, kw_only=True):
    """How one call goes wrong."""

    #: The call takes effect.
    acts: bool = False
    #: How many instances a launch rents: more than one is the market's mistake.
    copies: int = 1
    delay: float = 0.0
    #: None: the answer is that of a call without a fault.
    status: int | None = 500
    headers: Mapping[str, str] = {}
    body: bytes = b""
    #: The connection is closed instead of an answer.
    breaks: bool = False
    #: No answer ever comes.
    hangs: bool = False


def answer_lost() -> MarketFault:
    """The call takes effect, and its answer is lost."""
    return MarketFault(acts=True, breaks=True)


def request_lost() -> MarketFault:
    return MarketFault(breaks=True)


def no_capacity(*, zone: bool = False) -> MarketFault:
    """The market has none left, whatever its offers said; with `zone`, nothing at all in that zone."""
    code = RefusalCode.ZONE_FULL if zone else RefusalCode.NO_CAPACITY
    return _refusal(409, code, "out of stock")


def quota_reached() -> MarketFault:
    return _refusal(409, RefusalCode.QUOTA, "the quota of the account is used up")


def rate_limited(seconds: int) -> MarketFault:
    return MarketFault(status=429, headers={"Retry-After": str(seconds)})


def bad_credentials() -> MarketFault:
    return _refusal(401, "", "the API key is not valid")


def server_error(status: int = 500, *, acts: bool = False) -> MarketFault:
    return MarketFault(status=status, acts=acts)


def hangs(*, acts: bool) -> MarketFault:
    return MarketFault(acts=acts, hangs=True)


def slow_call(seconds: float) -> MarketFault:
    return MarketFault(acts=True, delay=seconds, status=None)


def rents_twice(*, lost: bool = False) -> MarketFault:
    """One launch rents two instances; with `lost`, nobody is told."""
    return MarketFault(acts=True, copies=2, status=None, breaks=lost)


def _refusal(status: int, code: str, message: str) -> MarketFault:
    return MarketFault(status=status, body=msgspec.json.encode(MarketRefusal(code=code, message=message)))
