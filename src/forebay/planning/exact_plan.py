"""Small demand is planned once more by an integer program, where the plan so far is not proven to be the best."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from forebay.planning.assembly import Assignment, PartialPlan
from forebay.planning.candidate_groups import LARGEST_TIE, Inventory, PricedCandidate
from forebay.planning.gangs import GangKey
from forebay.planning.greedy import Packer
from forebay.planning.place_choices import Existing, PlaceChoice, Places
from forebay.planning.placement import Refused
from forebay.planning.pod_groups import PodGroup, PodGroups
from forebay.planning.solve import resource_bound
from forebay.planning.work import Work

if TYPE_CHECKING:
    from forebay.planning.exact_program import ProgramResult

#: More pods have too many fillings, and column generation is nearly as good.
_MOST_PODS = 200
_MOST_GROUPS = 80


class DemandPlan(NamedTuple):
    """A plan in counts, with the demand that it is for: pod groups at their places."""

    demand: PodGroups
    refused: tuple[Refused, ...]
    answer: PartialPlan
    #: The pods that are served, in the groups that the patterns of `answer.bought` count.
    packed: PodGroups


class PlanningTask(Protocol):
    @property
    def demand(self) -> PodGroups: ...

    @property
    def priced_candidates(self) -> Sequence[PricedCandidate]: ...

    def inventory(self) -> Inventory: ...

    def packer(self, demand: PodGroups) -> Packer: ...

    @property
    def work(self) -> Work: ...


def with_valid_bound(first: DemandPlan, task: PlanningTask, choices: Sequence[PlaceChoice | None]) -> DemandPlan:
    """The plan with a bound that also holds where places were chosen: other places may cost less."""
    if not any(choice is not None and not choice.sentence for choice in choices):
        return first
    relaxed = min(_relaxed_bound(first, task), first.answer.expected)
    return first._replace(answer=first.answer._replace(bound=relaxed))


def with_loose_bound(found: DemandPlan, task: PlanningTask) -> DemandPlan:
    """The plan with a bound that also holds for plans that the scheduler would accept and Forebay does not make."""
    if not found.demand.is_strict:
        return found
    room = found.demand.room
    loose = [
        msgspec.structs.replace(group, needs={name: each for name, each in group.needs.items() if name not in room})
        for group in found.demand.groups
    ]
    demand = msgspec.structs.replace(found.demand, groups=tuple(loose))
    bound = min(_relaxed_bound(found._replace(demand=demand), task), found.answer.bound)
    return found._replace(answer=found.answer._replace(bound=bound))


def improve(
    first: DemandPlan,
    task: PlanningTask,
    choices: Sequence[PlaceChoice | None],
    existing: Existing,
    needed: Mapping[GangKey, int],
) -> DemandPlan:
    """The first plan or a better one.

    `task.demand` and `choices`: pod groups before places were chosen for them.
    """
    demand = task.demand
    pods = sum(group.count for group in demand.groups)
    weights = {priced.candidate.weight for priced in task.priced_candidates}
    if pods > _MOST_PODS or len(weights) != 1:
        return first
    near = first.answer.expected - first.answer.bound <= LARGEST_TIE * pods
    places = Places.of(demand, choices, existing.running, existing.nodes)
    packer = task.packer(msgspec.structs.replace(demand, groups=tuple(each.group for each in places.groups)))
    servable = {
        each.origin
        for n, each in enumerate(places.groups)
        if any(candidate_group.most[n] for candidate_group in packer.problem.candidate_groups)
    }
    wanted = sum(demand.groups[number].count for number in servable)
    if (near and _served(first) == wanted) or not servable or len(places.groups) > _MOST_GROUPS:
        return first
    # numpy and HiGHS take longer to load than small demand takes to plan.
    from forebay.planning.exact_program import ExactProgram  # noqa: PLC0415

    result = ExactProgram(packer, places, needed, task.inventory()).solve(task.work)
    if result is None:
        return first
    refused = tuple(
        Refused(group.pods, each.reason, each.sentence)
        for group, choice in zip(demand.groups, choices, strict=True)
        if choice is not None and choice.sentence
        for each in first.refused
        if each.pods == group.pods
    )
    better = _from_program(packer, result, places, demand, task.inventory())
    found = DemandPlan(better[0], refused, better[1], better[0])
    if _rank(found) > _rank(first):
        same = _rank(found)[0] == _rank(first)[0]
        bound = min(max(first.answer.bound, result.bound), first.answer.expected) if same else first.answer.bound
        return first._replace(answer=first.answer._replace(bound=bound))
    return found


def _served(found: DemandPlan) -> int:
    return sum(group.count for group in found.demand.groups) - sum(found.answer.left)


def _rank(found: DemandPlan) -> tuple[tuple[int, ...], int]:
    """Sort key, least is best: more pods served, highest priority first, then the lower score."""
    served: Counter[int] = Counter()
    for group, left in zip(found.demand.groups, found.answer.left, strict=True):
        served[group.priority] += group.count - left
    for pods, _, _ in found.refused:
        served[pods[0].shape.priority] += 0
    return tuple(-served[priority] for priority in sorted(served, reverse=True)), found.answer.score


def _relaxed_bound(found: DemandPlan, task: PlanningTask) -> int:
    """Lower bound on the cost of the same pods when each may go anywhere."""
    counts: Counter[int] = Counter()
    kinds: dict[int, PodGroup] = {}
    for group, left in zip(found.demand.groups, found.answer.left, strict=True):
        counts[group.kind] += group.count - left
        kinds.setdefault(group.kind, msgspec.structs.replace(group, pin=None))
    packer = task.packer(msgspec.structs.replace(found.demand, groups=tuple(kinds.values())))
    return resource_bound(packer, {n: counts[kind] for n, kind in enumerate(kinds) if counts[kind]})


def _from_program(
    packer: Packer, result: "ProgramResult", places: Places, demand: PodGroups, inventory: Inventory
) -> tuple[PodGroups, PartialPlan]:
    """Pod groups with the pods of each place, and the plan for them."""
    solution = result.solution
    groups: list[PodGroup] = []
    number_of: dict[int, int] = {}
    left: list[int] = []
    by_origin: defaultdict[int, list[int]] = defaultdict(list)
    for n, each in enumerate(places.groups):
        by_origin[each.origin].append(n)
    for origin, numbers in by_origin.items():
        pods = demand.groups[origin].pods
        served = {n: places.groups[n].group.count - solution.left[n] for n in numbers}
        without = pods[sum(served.values()) :]
        at = 0
        # Pods that are left out are said to wait for the first place, the cheapest where pods are spread.
        for n in numbers:
            mine = pods[at : at + served[n]]
            at += served[n]
            rest = without if n == numbers[0] else ()
            if mine or rest:
                number_of[n] = len(groups)
                groups.append(msgspec.structs.replace(places.groups[n].group, pods=(*mine, *rest)))
                left.append(len(rest))
    bought = []
    for purchase in solution.purchases:
        inventory.buy(purchase.priced, purchase.times)
        pattern = tuple(sorted((number_of[n], count) for n, count in purchase.pattern))
        bought.append(Assignment(purchase.priced, pattern, purchase.times))
    open_groups = {
        n
        for candidate_group in packer.problem.candidate_groups
        if any(inventory.can_buy(priced) for priced in candidate_group.members)
        for n, most in enumerate(candidate_group.most)
        if most
    }
    limited = frozenset(number for n, number in number_of.items() if groups[number].rules and n in open_groups)
    expected = packer.expected(solution)
    return msgspec.structs.replace(demand, groups=tuple(groups)), PartialPlan(
        tuple(bought), tuple(left), expected, packer.score(solution), min(result.bound, expected), inventory, limited
    )
