"""Rented machines, the fault list, and a crash before and after every request: no leak, no double, to the cent."""

import pytest

from forebay.simulate import market_faults as faults
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power_faults import Boot
from tests.crash.market_scripts import boots, end, launch, reclaim, refuse, usual_faults, vanish
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.places import breaches_with_crashes, part_of_deaths, rests, survives
from tests.crash.worlds import Work

_PARTS = 8
SKUS = {
    "alpha": (Sku(instance_type="small", gpus=1, hourly_price="1.20", region="west", boot=20, driver=5, stock=3),),
    "beta": (Sku(instance_type="large", gpus=4, hourly_price="4.80", region="east", boot=20, driver=5, stock=3),),
}
WORK = (Work("one", 1, at=5), Work("four", 4, at=8, runs=40))
#: All that the DaemonSet leaves of a machine.
POD_CPU = "20"


def leave(cloud):
    uid = cloud.store.get(cloud.store.kinds.named("v1", "Namespace"), None, "kube-system")["metadata"]["uid"]
    cloud.markets["alpha"].leave_behind("small", uid)


def world(script=None, **fields):
    return MarketScenario(skus=SKUS, work=WORK, pod_cpu=POD_CPU, script=script, **fields)


FAULTS = usual_faults(world) | {
    "no capacity in the zone": world(launch(faults.no_capacity(zone=True))),
    "two machines for one order": world(launch(faults.rents_twice()), rents_twice=True),
    "two machines and no answer": world(launch(faults.rents_twice(lost=True)), rents_twice=True),
    "a machine that never joins": world(boots(Boot(joins=False))),
    "GPUs that never appear": world(boots(Boot(gpus_appear=False))),
    "a machine that fails at boot": world(boots(Boot(joins=False, loses_power_after=8))),
    "preempted without notice": world(later=((60.0, reclaim(0)),)),
    "preempted with notice": world(later=((45.0, reclaim(20)),)),
    "vanished": world(later=((50.0, vanish),)),
    "credentials refused at the end": world(later=((60.0, refuse),)),
    "a leftover": world(later=((10.0, leave),)),
}
#: The first cloud has none left, the second loses its answers, and its listings lag.
MIXED = MarketScenario(
    skus=SKUS,
    work=WORK[:1],
    pod_cpu=POD_CPU,
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
    for death in part_of_deaths(rests(MIXED), moment, part, _PARTS):
        assert survives(MIXED, death) == ()


@pytest.mark.law
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_and_crash_together_do_more_harm_than_either(fault):
    assert breaches_with_crashes(FAULTS, fault) == []
