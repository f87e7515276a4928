"""What an operator can know of instances whose end the market does not tell: what complete listings show, no more."""

from datetime import timedelta

from forebay.simulate.market_responses import MarketCall

#: Seconds until a second listing shows that an instance has vanished, or until another process leads and lists.
_UNSEEN = 40
#: Bills are in whole seconds, and a listing is acted upon a moment later.
_ROUNDING = 2


def unseen_seconds(market, rented):
    """Seconds for which a vanished instance may be billed after its end: until the second listing without it."""
    without = [at for at in _shown(market) if at >= rented.line.ended]
    if len(without) < 2:
        return _UNSEEN
    return max(
        _UNSEEN, (without[1] + timedelta(seconds=market.list_lag) - rented.line.ended).total_seconds() + _ROUNDING
    )


def never_shown(market, rented):
    """Whether no listing could show the instance before it vanished."""
    return not any(rented.line.created < at < rented.line.ended for at in _shown(market))


def _shown(market):
    """The moments whose instances listings have shown."""
    lag = timedelta(seconds=market.list_lag)
    return [call.at - lag for call in market.calls_of(MarketCall.LIST) if call.status == 200]
