"""What goes wrong with a market, as scripts of a `MarketScenario`."""

from forebay.simulate import market_faults as faults
from forebay.simulate.market_responses import MarketCall


def launch(*which):
    return lambda cloud: [each.script(MarketCall.LAUNCH, *which) for each in cloud.markets.values()]


def end(*which):
    return lambda cloud: [each.script(MarketCall.TERMINATE, *which) for each in cloud.markets.values()]


def listing(*which):
    return lambda cloud: [each.script(MarketCall.LIST, None, *which) for each in cloud.markets.values()]


def boots(*which):
    return lambda cloud: [each.script_boots(*which) for each in cloud.markets.values()]


def reclaim(notice):
    def take(cloud):
        for market in cloud.markets.values():
            for instance in market.running:
                market.reclaim(instance, notice)

    return take


def vanish(cloud):
    for market in cloud.markets.values():
        for instance in market.running:
            market.vanish(instance)


def refuse(cloud):
    for market in cloud.markets.values():
        market.refuse_credentials(60)


def usual_faults(world):
    """Faults that machines and containers have in common; `world(script, ...)` makes the scenario of each."""
    return {
        "nothing": world(),
        "answer to the launch lost": world(launch(faults.answer_lost())),
        "launch request lost": world(launch(faults.request_lost())),
        "listings lag": world(options={"list_lag": 20.0}),
        "listings lag and the answer is lost": world(launch(faults.answer_lost()), options={"list_lag": 20.0}),
        "no capacity": world(launch(faults.no_capacity())),
        "quota": world(launch(faults.quota_reached())),
        "too many requests": world(launch(faults.rate_limited(20))),
        "server error": world(launch(faults.server_error(500))),
        "server error after acting": world(launch(faults.server_error(502, acts=True))),
        "hanging launch": world(launch(faults.hangs(acts=True))),
        "slow launch": world(launch(faults.slow_call(4))),
        "answer to the termination lost": world(end(faults.answer_lost())),
        "termination refused, then lost": world(end(faults.server_error(500), faults.request_lost())),
        "listings fail": world(listing(*[faults.server_error(503)] * 6)),
        "credentials refused for a while": world(later=((6.0, refuse),)),
    }
