"""Independent parts of a packing problem: pods at different places share no node, so each place is solved by itself."""

from collections import defaultdict
from collections.abc import Hashable
from typing import NamedTuple

from forebay.planning.candidate_groups import CandidateGroup, PackingProblem


class Component(NamedTuple):
    """A part of a packing problem, with pod groups and candidate groups numbered anew."""

    problem: PackingProblem
    #: Numbers in the whole problem.
    groups: list[int]
    candidate_groups: list[int]


class SplitProblem(NamedTuple):
    whole: PackingProblem
    parts: list[Component]


def split(problem: PackingProblem) -> SplitProblem:
    return SplitProblem(problem, _components(problem))


def _components(problem: PackingProblem) -> list[Component]:
    """The parts that share no pod group, stock or limit, in the order of their first candidate group."""
    joined = _Joined()
    first: dict[Hashable, int] = {}
    for number, candidate_group in enumerate(problem.candidate_groups):
        shared: set[Hashable] = {("group", group) for group in candidate_group.takes}
        for priced in candidate_group.members:
            shared.add(("stock", priced.stock_key))
            shared.update(("cap", cap) for cap in priced.caps)
        for other in {first.setdefault(each, number) for each in shared}:
            joined.join(other, number)
    by_root: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(problem.candidate_groups)):
        by_root[joined.root(number)].append(number)
    if len(by_root) <= 1:
        return [Component(problem, list(range(len(problem.needs))), list(range(len(problem.candidate_groups))))]
    return [_component(problem, numbers) for numbers in by_root.values()]


def _component(problem: PackingProblem, numbers: list[int]) -> Component:
    here = [problem.candidate_groups[number] for number in numbers]
    groups = sorted({group for each in here for group in each.takes})
    number_of = {group: number for number, group in enumerate(groups)}
    used = [d for d in range(len(problem.resources)) if any(problem.needs[group][d] for group in groups)]
    return Component(
        PackingProblem(
            tuple(problem.resources[d] for d in used),
            tuple(tuple(problem.needs[group][d] for d in used) for group in groups),
            tuple(
                CandidateGroup(
                    tuple(each.capacity[d] for d in used),
                    tuple(each.most[group] for group in groups),
                    tuple(each.preference_cost[group] for group in groups),
                    each.members,
                    tuple(number_of[group] for group in each.takes),
                )
                for each in here
            ),
        ),
        groups,
        numbers,
    )


class _Joined(dict[int, int]):
    """Sets of numbers that belong together."""

    def root(self, key: int) -> int:
        path = []
        while (parent := self.setdefault(key, key)) != key:
            path.append(key)
            key = parent
        for each in path:
            self[each] = key
        return key

    def join(self, one: int, other: int) -> None:
        self[self.root(one)] = self.root(other)
