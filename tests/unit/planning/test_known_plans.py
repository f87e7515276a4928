"""Plans of fixed random inputs are no worse than the best known: pods served, cost, proven bound and counted work."""

import pytest

from tests.unit.planning.known_plans import PLANS, known


def test_limits_gangs_and_places_are_planned_as_well_as_is_known():
    plan_of, _ = PLANS["ruled"]
    worse = {}
    for seed, (left, cost, bound) in known("ruled").items():
        mine_left, mine_cost, mine_bound = plan_of(seed)
        if (mine_left, mine_cost) > (left, cost) or (mine_left == left and mine_bound < bound - 0.001):
            worse[seed] = (mine_left, mine_cost, mine_bound), (left, cost, bound)

    assert worse == {}


@pytest.mark.parametrize("table", ["packed", "chosen"])
def test_packing_is_as_cheap_proven_as_far_and_as_little_work_as_is_known(table):
    plan_of, _ = PLANS[table]
    worse = {}
    for seed, (left, cost, bound, spare) in known(table).items():
        mine_left, mine_cost, mine_bound, mine_spare = plan_of(seed)
        dearer = (mine_left, mine_cost) > (left, cost)
        # Where pods are chosen, nothing is proven.
        if dearer or mine_spare < spare - 0.01 or (table == "packed" and mine_bound < bound - 0.001):
            worse[seed] = (mine_left, mine_cost, mine_bound, mine_spare), (left, cost, bound, spare)

    assert worse == {}
