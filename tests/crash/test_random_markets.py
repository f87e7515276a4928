"""Markets by chance: rented machines and containers, faults and deaths."""

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from forebay.simulate import market_faults as faults
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power_faults import Boot
from tests.crash.findings import no_law_is_broken
from tests.crash.market_scripts import reclaim, refuse, vanish
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.worlds import Work
from tests.deep import worlds_in_deep
from tests.engine.container_world import container_sku

MACHINES = {
    "alpha": (Sku(instance_type="small", gpus=1, hourly_price="1.20", region="west", boot=20, driver=5),),
    "beta": (Sku(instance_type="large", gpus=4, hourly_price="4.80", region="east", boot=20, driver=5),),
}
CONTAINERS = (
    container_sku("0.60", instance_type="a40", region="west"),
    container_sku("0.90", instance_type="l4", region="east"),
)
deaths = st.dictionaries(st.integers(1, 300), st.sampled_from(Moment), max_size=3)
lost = st.sampled_from(
    [None, faults.answer_lost(), faults.request_lost(), faults.hangs(acts=True), faults.slow_call(4)]
)
refused = st.sampled_from([faults.server_error(500), faults.server_error(502, acts=True), faults.rate_limited(20)])
no_launch = st.sampled_from([faults.no_capacity(), faults.no_capacity(zone=True), faults.quota_reached()])
doubled = st.sampled_from([faults.rents_twice(), faults.rents_twice(lost=True)])
boots = st.lists(
    st.sampled_from([Boot(), Boot(joins=False), Boot(gpus_appear=False), Boot(joins=False, loses_power_after=8)]),
    max_size=2,
)
changes = st.lists(
    st.tuples(st.integers(5, 120).map(float), st.sampled_from([reclaim(0), reclaim(20), vanish, refuse])), max_size=2
)


@st.composite
def worlds(draw, *, rented=True, remote=False):
    launches = draw(st.lists(lost | refused | no_launch | doubled, max_size=3))
    ends = draw(st.lists(lost | refused, max_size=2))
    listings = draw(st.lists(st.none() | refused, max_size=6))
    booting = draw(boots) if rented else []

    def script(cloud):
        for each in cloud.markets.values():
            each.script(MarketCall.LAUNCH, *launches)
            each.script(MarketCall.TERMINATE, *ends)
            each.script(MarketCall.LIST, *listings)
            each.script_boots(*booting)

    def work(prefix, sizes):
        return tuple(
            Work(f"{prefix}{number}", draw(sizes), at=draw(st.integers(0, 60)), runs=draw(st.sampled_from([5, 40, 70])))
            for number in range(draw(st.integers(1, 2)))
        )

    skus = MACHINES if rented else {"alpha": ()}
    if remote:
        skus = {**skus, "alpha": (*skus["alpha"], *CONTAINERS)}
    scenario = MarketScenario(
        skus=skus,
        work=work("w", st.sampled_from([1, 4])) if rented else (),
        remote=work("r", st.just(1)) if remote else (),
        script=script,
        later=tuple(sorted(draw(changes), key=lambda each: each[0])),
        options={"list_lag": draw(st.sampled_from([0.0, 3.0, 20.0]))},
        rents_twice=any(each is not None and each.copies > 1 for each in launches),
        seed=draw(st.integers(0, 999)),
    )
    note(f"launches {launches}, ends {ends}, listings {listings}, boots {booting}")
    return scenario


#: Such a world takes as long as three with machines that are owned.
fewer = worlds_in_deep(700, everyday=12)


@pytest.mark.law
@fewer
@given(worlds(), deaths)
def test_markets_may_fail_and_operators_die(scenario, dead):
    no_law_is_broken(rents(scenario, dead))


@pytest.mark.law
@fewer
@given(worlds(rented=False, remote=True), deaths)
def test_so_they_may_with_containers(scenario, dead):
    no_law_is_broken(rents(scenario, dead))


@pytest.mark.law
@fewer
@given(worlds(remote=True), deaths)
def test_machines_and_containers_may_come_from_one_market(scenario, dead):
    no_law_is_broken(rents(scenario, dead))
