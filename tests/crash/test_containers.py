"""Remote containers, the fault list, and a crash before and after every request: no leak, no double, to the cent."""

import pytest

from forebay.simulate import market_faults as faults
from forebay.simulate.market_responses import MarketCall
from tests.crash.market_scripts import end, launch, reclaim, refuse, usual_faults, vanish
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.places import breaches_with_crashes, part_of_deaths, rests, survives
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


FAULTS = usual_faults(world) | {
    "the answer is lost, then there is no capacity": world(
        launch(faults.answer_lost(), faults.answer_lost(), *[faults.no_capacity()] * 3), options={"list_lag": 20.0}
    ),
    "the request is lost, then there is no capacity": world(
        launch(faults.request_lost(), faults.request_lost(), *[faults.no_capacity()] * 3)
    ),
    "two containers for one order": world(launch(faults.rents_twice()), rents_twice=True),
    "two containers and no answer": world(launch(faults.rents_twice(lost=True)), rents_twice=True),
    "one that never runs": MarketScenario(skus={"alpha": (NEVER, SKUS["alpha"][1])}, remote=REMOTE),
    "preempted": world(later=((30.0, reclaim(0)),)),
    "vanished": world(later=((30.0, vanish),)),
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
    whole = rests(MIXED)
    assert any(sent.path.endswith("/binding") for sent in whole.ledger.requests)
    for death in part_of_deaths(whole, moment, part, _PARTS):
        assert survives(MIXED, death) == ()


@pytest.mark.law
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_and_crash_together_do_more_harm_than_either(fault):
    assert breaches_with_crashes(FAULTS, fault) == []
