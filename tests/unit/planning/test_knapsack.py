from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.planning.knapsack import exact, whole_table
from forebay.planning.pattern_bound import worthiest_pattern
from forebay.planning.work import Work

numbers = st.integers(0, 9)


@st.composite
def knapsacks(draw):
    groups, resources = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    need = [[draw(numbers) for _ in range(resources)] for _ in range(groups)]
    value = [draw(st.integers(-2, 20)) for _ in range(groups)]
    capacity = [draw(st.integers(1, 25)) for _ in range(resources)]
    most = [draw(st.integers(0, 3)) for _ in range(groups)]
    return tuple(np.array(each, dtype=np.float64) for each in (value, need, capacity)), np.array(most, dtype=np.int64)


def best_of_all(value, need, capacity, most):
    patterns = (np.array(counts) for counts in product(*(range(n + 1) for n in most)))
    return max(float(value @ counts) for counts in patterns if (counts @ need <= capacity).all())


@given(knapsacks(), st.integers(0, 30))
def test_the_best_pattern_is_found_and_none_is_worth_more(knapsack, above):
    (value, need, capacity), most = knapsack
    best = exact(value, need, capacity, most, above=float(above), steps=100_000, cells=10_000)

    truth = best_of_all(value, need, capacity, most)
    assert best.most >= truth - 1e-9 or best.most >= above >= truth
    if truth > above:
        assert abs(float(value @ best.patterns[0]) - truth) < 1e-9
        assert abs(best.most - truth) < 1e-9
    for counts in best.patterns:
        assert (counts @ need <= capacity).all()
        assert (counts <= most).all()
        assert float(value @ counts) > above


@given(knapsacks(), st.integers(1, 3))
def test_the_bound_covers_what_was_not_searched(knapsack, steps):
    (value, need, capacity), most = knapsack
    best = exact(value, need, capacity, most, above=0.0, steps=steps, cells=50)

    assert best.most >= best_of_all(value, need, capacity, most) - 1e-9


@given(knapsacks())
def test_the_integer_program_finds_the_best_pattern_and_proves_its_worth(knapsack):
    (value, need, capacity), most = knapsack
    # Pods that the node can never take are known before.
    most = np.where((need <= capacity).all(axis=1), most, 0)
    work = Work(1.0, lambda: False)

    best = worthiest_pattern(value, need, capacity, most, work)

    truth = best_of_all(value, need, capacity, most)
    assert truth <= best.bound <= truth * 1.001
    if best.counts is not None:
        assert (best.counts @ need <= capacity).all()
        assert (best.counts <= most).all()
        assert value @ best.counts == pytest.approx(truth, rel=1e-4)
    assert truth == 0 or best.counts is not None
    assert truth == 0 or work.left() < 1.0


@given(knapsacks())
def test_a_shared_table_never_bounds_a_node_below_its_best_pattern(knapsack):
    (value, need, capacity), most = knapsack
    worth = np.maximum(value, 0.0)

    table, scale = whole_table(worth, need, capacity, most, axes=[0, need.shape[1] - 1][: need.shape[1]])

    cell = np.floor(capacity[[0, -1][: need.shape[1]]] * scale + 1e-9).astype(np.int64)
    assert table[tuple(cell)] >= best_of_all(worth, need, capacity, most) - 1e-9
    # No more than all pods together, and a few for the rounding to powers of two.
    assert table.max() <= 2 * float(worth @ most)
