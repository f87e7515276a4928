"""The cheapest nodes of a pool that is to have some whatever pods there are."""

import pytest

from forebay.planning.candidates import CandidateSet
from forebay.planning.cheapest_nodes import cheapest_nodes
from forebay.planning.plan import Cap, PoolKey, Preferences
from tests.unit.planning.worlds import POOL, candidate

OFFERS = (
    candidate(1, "2", name="dear"),
    candidate(1, "1", name="cheap", stock=2),
    candidate(1, "0.5", name="elsewhere", pool=PoolKey("team", "other")),
)


def found(count, offers=OFFERS, caps=()):
    return cheapest_nodes(
        POOL, count, CandidateSet(candidates=offers), caps, preferences=Preferences(), why="minNodes asks for it"
    )


def types(made):
    return [each.candidate.offer.instance_type for each in made.purchases]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_as_many_as_asked_for_are_the_cheapest_of_the_pool_and_nothing_is_lacking(count):
    made = found(count)

    assert types(made) == ["cheap", "cheap", "dear"][:count]
    assert made.lacking is None
    assert all(
        each.sentence.endswith("the cheapest that the pool permits: minNodes asks for it.") for each in made.purchases
    )


def test_the_limit_that_leaves_no_room_is_named():
    limit = Cap(name="limits.maxNodes of GPUNodePool team/pool", pools=frozenset({POOL}), nodes=1)

    made = found(2, caps=[limit])

    assert types(made) == ["cheap"]
    assert made.lacking == "limits.maxNodes of GPUNodePool team/pool leaves no room for one more"


def test_stock_that_ends_is_told_as_such():
    made = found(3, offers=OFFERS[1:])

    assert types(made) == ["cheap", "cheap"]
    assert made.lacking == "its providers have no more in stock"
