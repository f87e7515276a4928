"""Rented machines, the fault list, and a crash before and after every request: no leak, no double, to the cent."""

import pytest

from forebay.simulate import market_faults as faults
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power_faults import Boot
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.places import deaths_of, survives
from tests.crash.worlds import Work

_PARTS = 8
SKUS = {
    "alpha": (Sku(instance_type="small", gpus=1, hourly_price="1.20", region="west", boot=20, driver=5, stock=3),),
    "beta": (Sku(instance_type="large", gpus=4, hourly_price="4.80", region="east", boot=20, driver=5, stock=3),),
}
WORK = (Work("one", 1, at=5), Work("four", 4, at=8, runs=40))


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


def leave(cloud):
    uid = cloud.store.get(cloud.store.kinds.named("v1", "Namespace"), None, "kube-system")["metadata"]["uid"]
    cloud.markets["alpha"].leave_behind("small", uid)


def world(script=None, **fields):
    return MarketScenario(skus=SKUS, work=WORK, script=script, **fields)


FAULTS = {
    "nothing": world(),
    "answer to the launch lost": world(launch(faults.answer_lost())),
    "launch request lost": world(launch(faults.request_lost())),
    "listings lag": world(options={"list_lag": 20.0}),
    "listings lag and the answer is lost": world(launch(faults.answer_lost()), options={"list_lag": 20.0}),
    "no capacity": world(launch(faults.no_capacity())),
    "no capacity in the zone": world(launch(faults.no_capacity(zone=True))),
    "quota": world(launch(faults.quota_reached())),
    "too many requests": world(launch(faults.rate_limited(20))),
    "server error": world(launch(faults.server_error(500))),
    "server error after acting": world(launch(faults.server_error(502, acts=True))),
    "hanging launch": world(launch(faults.hangs(acts=True))),
    "slow launch": world(launch(faults.slow_call(4))),
    "two machines for one order": world(launch(faults.rents_twice()), rents_twice=True),
    "two machines and no answer": world(launch(faults.rents_twice(lost=True)), rents_twice=True),
    "a machine that never joins": world(boots(Boot(joins=False))),
    "GPUs that never appear": world(boots(Boot(gpus_appear=False))),
    "a machine that fails at boot": world(boots(Boot(joins=False, loses_power_after=8))),
    "answer to the termination lost": world(end(faults.answer_lost())),
    "termination refused, then lost": world(end(faults.server_error(500), faults.request_lost())),
    "listings fail": world(listing(*[faults.server_error(503)] * 6)),
    "preempted without notice": world(later=((60.0, reclaim(0)),)),
    "preempted with notice": world(later=((45.0, reclaim(20)),)),
    "vanished": world(later=((50.0, vanish),)),
    "credentials refused for a while": world(later=((6.0, refuse),)),
    "credentials refused at the end": world(later=((60.0, refuse),)),
    "a leftover": world(later=((10.0, leave),)),
}
#: The first cloud has none left, the second loses its answers, and its listings lag.
MIXED = MarketScenario(
    skus=SKUS,
    work=WORK[:1],
    script=lambda cloud: (
        cloud.markets["alpha"].script(MarketCall.LAUNCH, faults.no_capacity()),
        cloud.markets["beta"].script(MarketCall.LAUNCH, faults.answer_lost()),
        end(faults.answer_lost())(cloud),
    ),
    options={"list_lag": 3.0},
)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_leaks_doubles_or_loses_anything(fault):
    assert rents(FAULTS[fault]).found == ()


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("moment", Moment)
def test_no_request_is_a_bad_one_to_die_at_with_rented_machines(moment, part):
    whole = rents(MIXED)
    assert whole.found == ()
    places = sum(sent.at <= whole.quiet_at + 35 for sent in whole.ledger.requests)
    for number in range(1 + part, places + 1, _PARTS):
        outcome = rents(MIXED, {number: moment})
        killed = [f"{moment} {sent}" for sent, moment in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())


@pytest.mark.law
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_and_crash_together_do_more_harm_than_either(fault):
    found = [
        breach
        for death in deaths_of(FAULTS[fault], few=2, nth=list(FAULTS).index(fault))
        for breach in survives(FAULTS[fault], death)
    ]
    assert found == []
