"""Where many nodes are unhealthy at once, none is replaced."""

import pytest

from forebay.lifecycle.unhealthy_limit import replacement_paused
from tests.unit.lifecycle.builders import R, S, node, record


def pool(healthy, unhealthy, being_replaced=0, missing=0):
    records = [record(S.READY, name=f"n{count}") for count in range(healthy + unhealthy + missing)]
    records += [record(S.TERMINATING, because=R.UNHEALTHY, name=f"out{count}") for count in range(being_replaced)]
    nodes = {f"n{count}": node(f"n{count}", ready=count < healthy) for count in range(healthy + unhealthy)}
    return records, nodes


@pytest.mark.parametrize(
    ("members", "paused"),
    [
        pytest.param(pool(10, 0), False, id="all healthy"),
        pytest.param(pool(0, 3), False, id="three may be chance, even if they are all"),
        pytest.param(pool(6, 4), True, id="four of ten are more than chance"),
        pytest.param(pool(16, 4), False, id="one in five is the limit"),
        pytest.param(pool(15, 4), True, id="more than one in five"),
        pytest.param(pool(6, 0, missing=4), True, id="missing nodes count"),
        pytest.param(pool(6, 2, being_replaced=2), True, id="and so do those that are being replaced"),
    ],
)
def test_more_than_three_and_more_than_a_fifth_pause_replacement(members, paused):
    assert (replacement_paused(*members) is not None) == paused


def test_the_sentence_counts_and_says_what_to_do():
    sentence = replacement_paused(*pool(6, 4))

    assert sentence.startswith("4 of 10 nodes are unhealthy at once (n6, n7, n8, ...)")
    assert "delete a GPUInstance" in sentence


def test_machines_that_are_launching_or_terminating_are_not_counted():
    others = [record(state, name=f"x{state}") for state in (S.REQUESTED, S.LAUNCHED, S.JOINED, S.DRAINING, S.GONE)]

    assert replacement_paused(others * 3, {}) is None
