"""Many at once are rarely the nodes' own fault."""

import pytest

from forebay.lifecycle.unhealthy_limit import replacement_paused
from tests.unit.lifecycle.scenes import R, S, node, record


def pool(healthy, sick, given_up=0, missing=0):
    records = [record(S.READY, name=f"n{count}") for count in range(healthy + sick + missing)]
    records += [record(S.TERMINATING, because=R.UNHEALTHY, name=f"out{count}") for count in range(given_up)]
    nodes = {f"n{count}": node(f"n{count}", ready=count < healthy) for count in range(healthy + sick)}
    return records, nodes


@pytest.mark.parametrize(
    ("scene", "on"),
    [
        pytest.param(pool(10, 0), False, id="all well"),
        pytest.param(pool(0, 3), False, id="three may be chance, even if they are all"),
        pytest.param(pool(6, 4), True, id="four of ten are not"),
        pytest.param(pool(16, 4), False, id="one in five is the limit"),
        pytest.param(pool(15, 4), True, id="more than one in five"),
        pytest.param(pool(6, 0, missing=4), True, id="nodes that are gone count"),
        pytest.param(pool(6, 2, given_up=2), True, id="and so do those that were given up just now"),
    ],
)
def test_more_than_three_and_more_than_a_fifth_put_the_brake_on(scene, on):
    assert (replacement_paused(*scene) is not None) == on


def test_the_sentence_counts_and_says_what_to_do():
    sentence = replacement_paused(*pool(6, 4))

    assert sentence.startswith("4 of 10 nodes are unhealthy at once (n6, n7, n8, ...)")
    assert "delete a GPUInstance" in sentence


def test_machines_on_their_way_in_or_out_are_not_counted():
    others = [record(state, name=f"x{state}") for state in (S.REQUESTED, S.LAUNCHED, S.JOINED, S.DRAINING, S.GONE)]

    assert replacement_paused(others * 3, {}) is None
