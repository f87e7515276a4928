"""Remote containers, the fault list, and a crash before and after every request: no leak, no double, to the cent."""

import pytest

from forebay.simulate import market_faults as faults
from forebay.simulate.market_responses import MarketCall
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.places import deaths_of, survives
from tests.crash.test_markets import end, launch, listing, reclaim, refuse, vanish
from tests.crash.worlds import Work
from tests.engine.container_world import container_sku

_PARTS = 4
SKUS = {
    "alpha": (
        container_sku("0.60", instance_type="a40", region="west"),
        container_sku("0.90", instance_type="l4", region="east"),
    ),
}
NEVER = container_sku("0.50", instance_type="t4", region="south", boot=100_000.0)
REMOTE = (Work("one", 1, at=5, runs=40), Work("two", 1, at=8, runs=70))


def world(script=None, **fields):
    return MarketScenario(skus=SKUS, remote=REMOTE, script=script, **fields)


FAULTS = {
    "nothing": world(),
    "answer to the launch lost": world(launch(faults.answer_lost())),
    "launch request lost": world(launch(faults.request_lost())),
    "listings lag": world(options={"list_lag": 20.0}),
    "listings lag and the answer is lost": world(launch(faults.answer_lost()), options={"list_lag": 20.0}),
    "the answer is lost, then there is no capacity": world(
        launch(faults.answer_lost(), faults.answer_lost(), *[faults.no_capacity()] * 3), options={"list_lag": 20.0}
    ),
    "the request is lost, then there is no capacity": world(
        launch(faults.request_lost(), faults.request_lost(), *[faults.no_capacity()] * 3)
    ),
    "no capacity": world(launch(faults.no_capacity())),
    "quota": world(launch(faults.quota_reached())),
    "too many requests": world(launch(faults.rate_limited(20))),
    "server error": world(launch(faults.server_error(500))),
    "server error after acting": world(launch(faults.server_error(502, acts=True))),
    "hanging launch": world(launch(faults.hangs(acts=True))),
    "slow launch": world(launch(faults.slow_call(4))),
    "two containers for one order": world(launch(faults.rents_twice()), rents_twice=True),
    "two containers and no answer": world(launch(faults.rents_twice(lost=True)), rents_twice=True),
    "one that never runs": MarketScenario(skus={"alpha": (NEVER, SKUS["alpha"][1])}, remote=REMOTE),
    "answer to the termination lost": world(end(faults.answer_lost())),
    "termination refused, then lost": world(end(faults.server_error(500), faults.request_lost())),
    "listings fail": world(listing(*[faults.server_error(503)] * 6)),
    "preempted": world(later=((30.0, reclaim(0)),)),
    "vanished": world(later=((30.0, vanish),)),
    "credentials refused for a while": world(later=((6.0, refuse),)),
    "credentials refused at the end": world(later=((45.0, refuse),)),
}
#: Nothing is left of the first offer, the answer of the second launch is lost, and that of the termination.
MIXED = MarketScenario(
    skus=SKUS,
    remote=REMOTE[:1],
    script=lambda cloud: (
        cloud.markets["alpha"].script(MarketCall.LAUNCH, faults.no_capacity(), faults.answer_lost()),
        end(faults.answer_lost())(cloud),
    ),
    options={"list_lag": 3.0},
)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_runs_a_pod_twice_or_leaves_a_container_behind(fault):
    assert rents(FAULTS[fault]).found == ()


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("moment", Moment)
def test_no_request_is_a_bad_one_to_die_at_with_remote_containers(moment, part):
    whole = rents(MIXED)
    assert whole.found == ()
    assert any(sent.path.endswith("/binding") for sent in whole.ledger.requests)
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
