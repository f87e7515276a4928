"""Column generation: better than greedy, proven where it can be, and over as soon as nothing can be gained."""

from forebay.model.quantities import UsdPerHour
from forebay.planning.candidate_groups import Inventory, packing_problem, price_candidates
from forebay.planning.greedy import Packer, Solution, fill_up, greedy
from forebay.planning.plan import Cap, Preferences
from forebay.planning.pod_groups import pod_groups
from forebay.planning.refine import Refinement
from forebay.planning.solve import solution_rank
from forebay.planning.work import Work
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


def test_a_bad_first_solution_is_replaced():
    problem = Problem(PAIRS, [candidate(8, "2.5")])
    alone = [
        each._replace(pattern=((group, 1),), times=count)
        for each in problem.first.purchases[:1]
        for group, count in enumerate(problem.counts)
    ]

    found, _, _ = problem.refine(first=Solution(tuple(alone), (0, 0)))

    assert problem.nodes(found) == 126


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
