"""Random inputs, checked by an independent implementation of the rules."""

import pytest
from hypothesis import settings

from forebay.model.quantities import Resources
from forebay.planning.plan import Cap
from tests.unit.planning.checker import Instance, violations
from tests.unit.planning.odd_instances import odd_instance
from tests.unit.planning.random_plans import against_brute_force, faults, odd_against_brute_force, planned
from tests.unit.planning.worlds import GPU, POOL, candidate, pods, shape

pytestmark = pytest.mark.law

MANY = settings().max_examples


def test_moving_pods_to_a_cheaper_node_stays_within_the_limit():
    offers = [
        candidate(1, "3.7", name="a", cpu="3", stock=2),
        candidate(1, "0.8", name="b", cpu="4", stock=2),
        candidate(2, "3.2", name="c", cpu="6", stock=1),
        candidate(4, "0.7", name="d", cpu="1", stock=1),
    ]
    limit = Cap(name="limit", pools=frozenset({POOL}), resources=Resources({GPU: 4}))
    given = Instance(pods(2, shape(cpu="1")), offers, [limit])

    assert violations(given, planned(given)) == []


def test_the_checker_finds_nothing_wrong_with_random_plans():
    assert {seed: found for seed in range(MANY) if (found := faults(seed))} == {}


def test_small_plans_are_as_good_as_brute_force():
    results = {seed: against_brute_force(seed) for seed in range(MANY)}

    assert [seed for seed, result in results.items() if result != ([], True, True)] == []


def test_nor_with_plans_beside_running_pods_gangs_in_part_and_odd_offers():
    assert {seed: found for seed in range(MANY) if (found := faults(seed, odd_instance))} == {}
    results = {seed: odd_against_brute_force(seed) for seed in range(MANY)}
    assert [seed for seed, result in results.items() if result != ([], True, True)] == []


@pytest.mark.parametrize("seed", [491, 956])
def test_places_are_chosen_together_where_one_after_another_would_cost_more(seed):
    # Found by mutants: pods that keep to themselves in a zone, which only the integer program places best.
    assert against_brute_force(seed) == ([], True, True)
