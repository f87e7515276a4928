"""What an operator can know of instances whose end the market does not tell: what complete listings show, no more."""

from datetime import timedelta
from itertools import pairwise

from forebay.lifecycle.orphans import ORPHAN_AFTER
from forebay.lifecycle.presence import settle_time
from forebay.providers.registry import providers
from forebay.simulate.market_responses import MarketCall

#: Seconds until a second listing shows that an instance has vanished, or until another process leads and lists.
_UNSEEN = 40
#: Bills are in whole seconds, and a listing is acted upon a moment later.
_ROUNDING = 2


def unseen_seconds(market, rented):
    """Seconds for which a vanished instance may be billed after its end: until the second listing without it.

    Of one that no listing has shown yet, those without it count only after the settle time: listings may lag behind.
    One that was reclaimed is listed as stopped until it vanishes, and listings do not tell when its bill had ended.
    """
    counted_from = rented.gone_at
    if not any(rented.line.created < at < rented.line.ended for at in _shown(market)):
        settles = settle_time(providers()[getattr(market, "provider", "simulated")].capabilities)
        counted_from = max(counted_from, rented.line.created + settles)
    without = [at for at in _shown(market) if at >= counted_from]
    if len(without) < 2:
        return _UNSEEN
    return max(
        _UNSEEN, (without[1] + timedelta(seconds=market.list_lag) - rented.line.ended).total_seconds() + _ROUNDING
    )


def too_short_lived(market, rented, deaths=()):
    """Whether the instance vanished before it could get a record: where no answer told of it, two listings must show
    it to one process of the operator, the last of them a minute after the first of all. `deaths`: when one died.
    """
    lag, moment = timedelta(seconds=market.list_lag), timedelta(seconds=_ROUNDING)
    shown = [at for at in _shown(market) if rented.line.created < at < rented.line.ended]
    lives = [
        [at for at in shown if since < at + lag < until - moment]
        for since, until in pairwise([rented.line.created, *deaths, rented.line.ended + lag + 2 * moment])
    ]
    return not any(len(life) > 1 and life[-1] - shown[0] >= ORPHAN_AFTER for life in lives)


def _shown(market):
    """The moments whose instances listings have shown."""
    lag = timedelta(seconds=market.list_lag)
    return [call.at - lag for call in market.calls_of(MarketCall.LIST) if call.status == 200]
