"""All ways to fill one node, or nothing at all where there are too many of them."""

import pytest

from forebay.model.quantities import UsdPerHour
from forebay.model.requirements import LabelOperator, NodeSelectorTerm, PreferredTerm, Requirement
from forebay.planning.candidate_groups import packing_problem, price_candidates
from forebay.planning.fillings import all_fillings
from forebay.planning.plan import Preferences
from forebay.planning.pod_groups import pod_groups
from forebay.planning.work import Work
from tests.unit.planning.worlds import candidate, pods, shape

PATIENT = Preferences(per_preference_point=UsdPerHour("0.001"))


def fillings(demand, offers, *, most=100, seconds=1.0):
    """(Candidate group, pods of each pod group) of each filling, and the work that was spent."""
    groups = pod_groups(demand, ())
    problem = packing_problem(groups, price_candidates(offers, (), PATIENT), PATIENT)
    counts = [group.count for group in groups.groups]
    work = Work(seconds, lambda: False)
    found = all_fillings(problem, counts, range(len(problem.candidate_groups)), most, work)
    shown = None
    if found is not None:
        shown = sorted(
            (number, tuple(dict(pattern).get(n, 0) for n in range(len(counts)))) for number, pattern in found
        )
    return shown, seconds - work.left()


def test_every_filling_is_listed_that_no_larger_one_contains():
    demand = [*pods(2, shape(3)), *pods(5, shape(1, "2"))]

    found, spent = fillings(demand, [candidate(4, "1")])

    assert found == [(0, (0, 4)), (0, (1, 1))]
    assert spent > 0


def test_a_filling_has_no_more_pods_than_wait():
    assert fillings(pods(3), [candidate(8, "1")])[0] == [(0, (3,))]


def test_nodes_of_two_sizes_have_fillings_of_their_own():
    found, _ = fillings(pods(5), [candidate(2, "1"), candidate(4, "1")])

    assert sorted(pattern for _, pattern in found) == [(2,), (4,)]


def test_smaller_fillings_are_listed_where_pods_would_rather_be_elsewhere():
    elsewhere = NodeSelectorTerm((Requirement("disk", LabelOperator.EXISTS),))
    choosy = shape(1, preferred_node_affinity=(PreferredTerm(10, elsewhere),))

    assert fillings(pods(3, choosy), [candidate(2, "1")])[0] == [(0, (1,)), (0, (2,))]


@pytest.mark.parametrize("limits", [{"most": 1}, {"seconds": 2e-5}], ids=["more than allowed", "no time to find all"])
def test_a_part_of_all_fillings_is_never_taken_for_all(limits):
    demand = [*pods(2, shape(3)), *pods(5, shape(1, "2"))]

    assert fillings(demand, [candidate(4, "1")], **limits)[0] is None


def test_fillings_of_all_nodes_together_are_counted():
    demand, offers = pods(5), [candidate(2, "1"), candidate(4, "1")]

    assert fillings(demand, offers, most=2)[0] is not None
    assert fillings(demand, offers, most=1)[0] is None
