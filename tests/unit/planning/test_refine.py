"""Column generation: better than greedy, proven where it can be, and over as soon as nothing can be gained."""

import random

import numpy as np
import pytest

from forebay.model.quantities import UsdPerHour
from forebay.model.requirements import Effect, Taint
from forebay.planning.arrays import ProblemArrays
from forebay.planning.candidate_groups import Inventory, packing_problem, price_candidates
from forebay.planning.greedy import Packer, PatternPurchase, Solution, fill_up, greedy, move_to_cheaper
from forebay.planning.linear import Column, Master
from forebay.planning.plan import Cap, Preferences
from forebay.planning.pod_groups import pod_groups
from forebay.planning.refine import Refinement
from forebay.planning.rounding import columns_to_fix
from forebay.planning.solve import resource_bound, solution_rank
from forebay.planning.work import Work
from tests.unit.planning.test_planner_work import CASES, offers
from tests.unit.planning.worlds import POOL, candidate, pods, shape

USUAL = Preferences()
PAIRS = [*pods(125, shape(3, cpu="1")), *pods(126, shape(3, cpu="2"))]


class Problem:
    def __init__(self, demand, offers, caps=()):
        self.groups = pod_groups(demand, ()).groups
        priced = price_candidates(offers, caps, USUAL)
        self.packer = Packer(packing_problem(pod_groups(demand, ()), priced, USUAL))
        self.inventory = Inventory(priced, caps)
        self.counts = [group.count for group in self.groups]
        self.first = greedy(self.packer, self.counts, self.inventory.copy())

    def refine(self, *, first=None, seconds=1.0, priorities=None):
        """(Refined solution, lower bound, share of the work that is left)."""
        work = Work(seconds, lambda: False)
        refinement = Refinement(
            self.packer, self.counts, self.inventory, first or self.first, work, seed=1, priorities=priorities
        )
        found = refinement.run(lambda each: solution_rank(self.packer, self.groups, each))
        return found, refinement.bound, work.left() / seconds

    def nodes(self, solution):
        return sum(each.times for each in solution.purchases)


def test_the_search_ends_when_no_plan_can_have_fewer_nodes():
    problem = Problem(PAIRS, [candidate(8, "2.5")])

    found, bound, left = problem.refine()

    assert problem.nodes(found) == 126
    assert bound == UsdPerHour("2.5").units * 126
    assert left > 0.9


def test_the_first_rounding_saves_the_search_for_more_columns():
    waiting, caps = CASES["plain"]
    problem = Problem(waiting, offers(random.Random(0)), caps)

    found, bound, left = problem.refine()

    assert bound <= problem.packer.expected(found) <= bound * 1.0001
    assert left > 0.975


def test_a_bad_first_solution_is_replaced():
    problem = Problem(PAIRS, [candidate(8, "2.5")])
    alone = [
        each._replace(pattern=((group, 1),), times=count)
        for each in problem.first.purchases[:1]
        for group, count in enumerate(problem.counts)
    ]

    found, _, _ = problem.refine(first=Solution(tuple(alone), (0, 0)))

    assert problem.nodes(found) == 126


def test_what_the_linear_program_takes_is_counted_as_work():
    problem = Problem(PAIRS, [candidate(8, "2.5")])
    arrays, work = ProblemArrays(problem.packer, problem.counts, problem.inventory), Work(1.0, lambda: False)
    master = Master(arrays, np.full(2, 100.0), work)

    master.add([Column(0, np.array([2, 0])), Column(0, np.array([0, 2]))])
    master.solve()
    once = 1.0 - work.left()
    master.solve()

    assert 1e-6 < once < 0.01
    assert once < 1.0 - work.left() <= 2 * once, "the second time it begins where it ended"


def test_pods_that_the_first_solution_leaves_out_stay_out_of_a_better_one():
    problem = Problem(PAIRS, [candidate(8, "2.5")])
    alone = [
        each._replace(pattern=((group, 1),), times=100) for each in problem.first.purchases[:1] for group in (0, 1)
    ]

    found, _, _ = problem.refine(first=Solution(tuple(alone), (25, 26)))

    assert problem.nodes(found) == 100
    assert found.left == (25, 26)


def test_without_any_work_left_the_first_solution_stays():
    problem = Problem(PAIRS, [candidate(8, "2.5")])

    found, bound, _ = problem.refine(seconds=1e-9)

    assert problem.packer.score(found) <= problem.packer.score(problem.first)
    assert 0 <= bound <= problem.packer.expected(found)


def test_prices_without_a_common_step_are_bounded_by_the_linear_program():
    problem = Problem(PAIRS, [candidate(8, "2.5000001"), candidate(3, "1.2500003", name="small")])

    found, bound, _ = problem.refine()

    assert bound <= problem.packer.expected(found) <= bound * 1.01


def test_under_a_limit_the_linear_program_serves_as_many_as_possible():
    limit = Cap(name="nodes", pools=frozenset({POOL}), nodes=10)
    problem = Problem([*pods(40, shape(5)), *pods(40, shape(3)), *pods(40, shape(2))], [candidate(8, "2")], [limit])

    found, _, _ = problem.refine(priorities=[0, 0, 0])

    assert sum(problem.counts) - sum(found.left) == 40
    assert problem.nodes(found) == 10


def test_nodes_are_filled_up_with_pods_that_were_left_over():
    problem = Problem([*pods(3, shape(5)), *pods(4, shape(2)), *pods(9, shape(1))], [candidate(8, "2")])
    large = problem.first.purchases[0]._replace(pattern=((0, 1),), times=3)

    filled = fill_up(problem.packer, Solution((large,), (0, 2, 4)))

    assert filled.left == (0, 0, 0)
    assert [(each.pattern, each.times) for each in filled.purchases] == [
        (((0, 1), (1, 1), (2, 1)), 2),
        (((0, 1), (2, 2)), 1),
    ]


def test_a_node_without_room_stays_as_it_is():
    problem = Problem([*pods(3, shape(8)), *pods(4, shape(2))], [candidate(8, "2")])
    full = problem.first.purchases[0]._replace(pattern=((0, 1),), times=3)

    assert fill_up(problem.packer, Solution((full,), (0, 4))) == Solution((full,), (0, 4))


def test_the_scarcest_resource_bounds_the_cost_before_anything_is_packed():
    problem = Problem([*pods(20, shape(1, cpu="8"))], [candidate(8, "8", cpu="32"), candidate(4, "5", name="four")])

    # 160 CPUs at a quarter of a dollar: five nodes of 32 CPUs for $8, or for $5 where there are as many CPUs.
    assert resource_bound(problem.packer, {0: 20}) == pytest.approx(UsdPerHour("25").units, rel=1e-3)
    # One pod needs a whole node, whatever share of it.
    assert resource_bound(problem.packer, {0: 1}) == pytest.approx(UsdPerHour("5").units, rel=1e-3)


def test_pods_move_to_cheaper_nodes_as_far_as_the_stock_goes():
    offers = [candidate(4, "8", name="large", stock=9), candidate(1, "1.9", name="one", stock=2)]
    problem = Problem(pods(3), offers)
    inventory = problem.inventory.copy()
    number, large = next(
        (number, each.members[0])
        for number, each in enumerate(problem.packer.problem.candidate_groups)
        if each.members[0].candidate.offer.instance_type == "large"
    )
    inventory.buy(large, 3)

    moved = move_to_cheaper(problem.packer, Solution((PatternPurchase(number, large, ((0, 1),), 3),), (0,)), inventory)

    assert [(each.priced.candidate.offer.instance_type, each.times) for each in moved.purchases] == [
        ("one", 2),
        ("large", 1),
    ]
    assert [inventory.stock(each.priced) for each in moved.purchases] == [0, 8]


def test_pods_move_from_a_node_that_they_would_rather_avoid_to_a_dearer_one_that_costs_less_all_in_all():
    avoided = (Taint("spare", "", Effect.PREFER_NO_SCHEDULE),)
    offers = [candidate(1, "1", name="avoided", taints=avoided), candidate(1, "1.0001", name="clean")]
    problem = Problem(pods(1), offers)
    groups = problem.packer.problem.candidate_groups
    at = {each.members[0].candidate.offer.instance_type: number for number, each in enumerate(groups)}

    def moved(name):
        inventory, priced = problem.inventory.copy(), groups[at[name]].members[0]
        inventory.buy(priced, 1)
        first = Solution((PatternPurchase(at[name], priced, ((0, 1),), 1),), (0,))
        (only,) = move_to_cheaper(problem.packer, first, inventory).purchases
        return only.priced.candidate.offer.instance_type

    assert moved("avoided") == "clean"
    assert moved("clean") == "clean"


PATTERNS = [Column(0, np.array([2, 1])), Column(0, np.array([0, 3])), Column(0, np.array([4, 0]))]


def fixed(used, remaining, patterns=PATTERNS):
    return columns_to_fix(np.array(used), patterns, np.array(remaining))


@pytest.mark.parametrize(
    ("used", "remaining", "expected"),
    [
        # Whole nodes are fixed, of fractions the largest, and those that are nearly one node.
        ([1.0, 1.4, 0.3], [9, 9], [(1, 2), (0, 1)]),
        ([0.85, 0.9, 0.3], [9, 9], [(1, 1), (0, 1)]),
        # No more than there are pods for, less those of patterns that were fixed before.
        ([3.0, 0.0, 2.0], [9, 9], [(0, 3)]),
        ([2.0, 2.0, 1.0], [8, 5], [(0, 2), (1, 1), (2, 1)]),
        # A node that is not full is better than none.
        ([0.1, 0.2, 0.6], [3, 1], [(2, 1)]),
        ([0.0, 0.0, 1.0], [3, 1], [(2, 1)]),
    ],
)
def test_diving_fixes_what_the_linear_program_is_nearly_sure_of(used, remaining, expected):
    assert fixed(used, remaining) == expected


def test_for_every_hundred_pods_that_wait_one_more_pattern_is_rounded_up():
    patterns = [Column(0, np.eye(4, dtype=np.int64)[n]) for n in range(4)]

    assert [number for number, _ in fixed([0.4, 0.5, 0.2, 0.3], [75] * 4, patterns)] == [1, 0, 3]
    assert [number for number, _ in fixed([0.4, 0.5, 0.2, 0.3], [74] * 4, patterns)] == [1, 0]
