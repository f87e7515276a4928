"""Instance groups, the fault list, and a crash before and after every request: the size is the target at the end, no
node is deleted under a pod, nothing is bought twice, and the bill is exact.
"""

import pytest

from forebay.simulate import market_faults as faults
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power_faults import Boot
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.places import deaths_of, part_of_deaths, rests, survives
from tests.crash.test_pools import serve
from tests.crash.worlds import Work
from tests.engine.group_world import provision

_PARTS = 8
SKUS = {
    "alpha": (
        Sku(instance_type="near", gpus=2, hourly_price="2.40", zone="z-a", boot=20, driver=5, stock=4),
        Sku(instance_type="far", gpus=2, hourly_price="3.60", zone="z-b", boot=20, driver=5, stock=4),
    ),
}
WORK = (Work("one", 1, at=5), Work("two", 2, at=8, runs=40), Work("more", 2, at=30, runs=60))


def groups(cloud):
    cloud.markets["alpha"].add_group("first", "near")
    cloud.markets["alpha"].add_group("second", "far")
    # All nodes go in the end: the size at the server is the target when nothing is left.
    provision(cloud, groups=("first", "second"), minGPUUtilizationPercent=70, scaleDownDelay="30s")


def script(call, *which):
    return lambda cloud: cloud.markets["alpha"].script(call, *which)


def stock(amount, of="near"):
    return lambda cloud: cloud.markets["alpha"].restock(of, amount)


def recreate(cloud):
    first = cloud.markets["alpha"].groups["first"]
    for name, rented in first.members.items():
        if rented is not None:
            cloud.markets["alpha"].recreate("first", name)


def vanish(cloud):
    for instance in cloud.markets["alpha"].running:
        cloud.markets["alpha"].vanish(instance)


def by_hand(cloud):
    cloud.markets["alpha"].groups["first"].grow(["by-hand"])


def world(happens=None, **fields):
    return MarketScenario(skus=SKUS, work=WORK, configure=groups, script=happens, **fields)


GROW, SHRINK, GROUP = MarketCall.GROW, MarketCall.SHRINK, MarketCall.GROUP
FAULTS = {
    "nothing": world(),
    "answer to the growth lost": world(script(GROW, faults.answer_lost())),
    "growth request lost": world(script(GROW, faults.request_lost())),
    "growth refused": world(script(GROW, faults.no_capacity())),
    "quota": world(script(GROW, faults.quota_reached())),
    "too many requests": world(script(GROW, faults.rate_limited(20))),
    "server error": world(script(GROW, faults.server_error(500))),
    "server error after acting": world(script(GROW, faults.server_error(502, acts=True))),
    "hanging growth": world(script(GROW, faults.hangs(acts=True))),
    "listings lag": world(options={"list_lag": 15.0}),
    "listings fail": world(script(GROUP, None, *[faults.server_error(503)] * 6)),
    "answer to the deletion lost": world(script(SHRINK, faults.answer_lost())),
    "deletion refused, then lost": world(script(SHRINK, faults.server_error(500), faults.request_lost())),
    "stock-out in the first zone": world(stock(0)),
    "a machine that never joins": world(lambda cloud: cloud.markets["alpha"].script_boots(Boot(joins=False))),
    "a machine that fails at boot": world(
        lambda cloud: cloud.markets["alpha"].script_boots(Boot(joins=False, loses_power_after=8))
    ),
    "vanished": world(later=((50.0, vanish),)),
    "a member added by hand": world(later=((12.0, by_hand),)),
}
MIXED = MarketScenario(
    skus=SKUS,
    work=WORK[:2],
    configure=groups,
    script=lambda cloud: (
        script(GROW, faults.answer_lost())(cloud),
        script(SHRINK, faults.answer_lost())(cloud),
    ),
    options={"list_lag": 3.0},
)
#: Two pods stay of four, one on each of two nodes: one moves, so that a node is free. In the end they all go.
DEFRAGMENTED = MarketScenario(
    skus=SKUS,
    configure=lambda cloud: (
        cloud.markets["alpha"].add_group("first", "near"),
        provision(cloud, groups=("first",), minGPUUtilizationPercent=70, scaleDownDelay="30s", defragment=True),
    ),
    later=(
        (5.0, lambda cloud: serve(cloud, 4)),
        (60.0, lambda cloud: serve(cloud, 2)),
        (200.0, lambda cloud: serve(cloud, 0)),
    ),
)


def moved(outcome):
    steps = (step for each in outcome.cloud.records.values() for step in each["status"]["transitions"])
    return [step for step in steps if step["state"] == "Draining" and step["reason"] == "Underutilized"]


def test_no_request_is_a_bad_one_to_die_at_while_pods_move_together():
    whole = rests(DEFRAGMENTED)
    assert len(moved(whole)) == 1
    assert len(whole.rented) == 2, "nothing was bought for the pod that moved"
    assert [breach for death in deaths_of(DEFRAGMENTED, few=6) for breach in survives(DEFRAGMENTED, death)] == []


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_leaks_doubles_or_loses_anything_of_a_group(fault):
    outcome = rents(FAULTS[fault])
    assert outcome.found == ()
    assert [group.target for group in outcome.cloud.markets["alpha"].groups.values()] == [0, 0]


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("moment", Moment)
def test_no_request_is_a_bad_one_to_die_at_with_instance_groups(moment, part):
    for death in part_of_deaths(rests(MIXED), moment, part, _PARTS):
        assert survives(MIXED, death) == ()
