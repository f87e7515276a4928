"""Groups that Forebay rents itself, at every cloud: the fault list, and crashes. Nothing leaks or is bought twice,
no node is deleted under a pod, and the bill is exact, or never too small where the cloud does not tell an end.
"""

from functools import partial

import pytest

from forebay.simulate import market_faults as faults
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.crash.market_worlds import JOINS, MarketScenario, rents
from tests.crash.places import deaths_of, survives
from tests.crash.test_clouds import CLOUDS, FAULTS, JOIN_LINE
from tests.crash.test_clouds import world as cloud_world
from tests.crash.worlds import Work
from tests.deep import DEEP
from tests.engine.group_world import change, rent

WORK = (Work("one", 1, at=5), Work("two", 1, at=8, runs=40), Work("more", 1, at=30, runs=60))
TYPES = {"crusoe": "l40s-48gb.1x", "gcp": "g2-standard-8", "lambdalabs": "gpu_1x_h100", "paperspace": "A4000"}
NEAR = Sku(instance_type="near", gpus=2, hourly_price="2.40", zone="z-a", boot=20, driver=5, stock=2)
FAR = Sku(instance_type="near", gpus=2, hourly_price="3.60", zone="z-b", boot=20, driver=5, stock=4)


def group(cloud, *, provider, instance_type, joins):
    """All machines go in the end."""
    (of,) = cloud.markets
    provider = {"name": provider, "instanceType": instance_type}
    rent(cloud, of=of, provider=provider, node_class=joins, minGPUUtilizationPercent=70, scaleDownDelay="30s")


def world(cloud, **fields):
    shebang = CLOUDS[cloud][1]
    joins = {"cloudInit": {"template": f"{shebang}\n# {JOIN_LINE}\n"}}
    configure = partial(group, provider=cloud, instance_type=TYPES[cloud], joins=joins)
    return cloud_world(cloud, work=WORK, configure=configure, **fields)


def simulated(script=None, **fields):
    configure = partial(group, provider="simulated", instance_type="near", joins=JOINS)
    skus = {"alpha": (NEAR, FAR)}
    # Two pods fill what the DaemonSet leaves of a machine.
    return MarketScenario(skus=skus, work=WORK, pod_cpu="10", configure=configure, script=script, **fields)


def mixed(cloud):
    """No capacity in one zone, an answer that is lost; and at the end again."""
    cloud.markets["alpha"].script(MarketCall.LAUNCH, faults.no_capacity(zone=True), faults.answer_lost())
    cloud.markets["alpha"].script(MarketCall.TERMINATE, faults.answer_lost())


def relabel(cloud):
    """The machines that are there have drifted."""
    change(cloud, labels={"tier": "new"})


def purposes(outcome):
    return {each["spec"]["purpose"] for each in outcome.cloud.records.values()}


#: Every fault at every cloud under `make deep`; else each at one of them in turn.
PAIRS = [
    (fault, cloud)
    for number, fault in enumerate(FAULTS)
    for turn, cloud in enumerate(CLOUDS)
    if DEEP or number % len(CLOUDS) == turn
]


@pytest.mark.parametrize(("fault", "cloud"), PAIRS)
def test_no_fault_of_a_cloud_leaks_doubles_or_loses_anything_of_a_rented_group(fault, cloud):
    outcome = rents(world(cloud, **FAULTS[fault]))
    assert outcome.found == ()
    assert "Group" in purposes(outcome)


@pytest.mark.parametrize("cloud", ["crusoe", "lambdalabs"])
def test_no_request_is_a_bad_one_to_die_at_with_a_rented_group_of_a_cloud(cloud):
    scenario = world(cloud)
    assert [breach for death in deaths_of(scenario, few=5) for breach in survives(scenario, death)] == []


def test_no_request_is_a_bad_one_to_die_at_with_a_rented_group():
    scenario = simulated(mixed, options={"list_lag": 3.0}, later=((40.0, relabel),))
    whole = rents(scenario)
    assert (whole.found, purposes(whole)) == ((), {"Group"})
    assert [breach for death in deaths_of(scenario, few=10) for breach in survives(scenario, death)] == []
