"""`plan`: which instances to launch, which pods each one is for, and why any pod is left out."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from forebay.model.fit import barred
from forebay.model.nodes import Node
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import Effect
from forebay.model.workloads import Pod
from forebay.planning.assembly import GangCounts, PartialPlan, assemble
from forebay.planning.candidate_groups import (
    Inventory,
    PricedCandidate,
    expected_units,
    order,
    packing_problem,
    price_candidates,
    score_units,
    wrong_architecture,
)
from forebay.planning.components import SplitProblem, split
from forebay.planning.exact_plan import DemandPlan, improve, with_loose_bound, with_valid_bound
from forebay.planning.gangs import Gangs, gang_key
from forebay.planning.greedy import Packer
from forebay.planning.place_choices import Existing, place_choices
from forebay.planning.place_costs import PlaceCosts
from forebay.planning.placement import assign_places
from forebay.planning.plan import Alternative, Candidate, Cap, Excluded, Plan, Preferences, Purchase, RunningPod
from forebay.planning.pod_groups import PodGroups, pod_groups
from forebay.planning.sentences import chosen, kind_of_offer
from forebay.planning.solve import SearchEffort, solve
from forebay.planning.whole_gangs import WholeGangs, needed_pods, planned_alone
from forebay.planning.work import Work

_ALTERNATIVES = 3
#: Share of the deadline that is used: the counts of work are not exact.
_SEARCH_SHARE = 0.9
#: Seconds of work to group a pod and to write down where it goes; for each pair of pod group and candidate; and for
#: each pod group whenever its pods are served.
_PER_POD = 8e-6
_PER_PAIR = 5e-7
_PER_GROUP = 1.5e-6
#: Share of the search for the choice of places.
_PLACING_SHARE = 0.6
_NO_GANGS: Gangs = {}


def plan(
    pods: Sequence[Pod],
    candidates: Sequence[Candidate],
    caps: Sequence[Cap] = (),
    preferences: Preferences = Preferences(),  # noqa: B008 (immutable)
    *,
    excluded: Sequence[Excluded] = (),
    unknown: Sequence[str] = (),
    running: Sequence[RunningPod] = (),
    nodes: Sequence[Node] = (),
    gangs: Gangs = _NO_GANGS,
    clock: Callable[[], float] = time.monotonic,
) -> Plan:
    """The cheapest capacity for `pods`, none of which fit on capacity that is there or launching.

    `excluded` are candidates that must not be bought, `unknown` names sources without known offers: both go into the
    sentences of pods that are left out. `running` are the running pods and `nodes` the nodes of the cluster, for rules
    about zones. `gangs` is what is known of gangs beyond annotations. `clock` returns seconds, for the deadline.

    Never raises: whatever is wrong with the input becomes the reason why a pod is left out. The same input gives the
    same plan, in any order.
    """
    work = Work.within(preferences.deadline.total_seconds() * _SEARCH_SHARE, clock)
    caps = sorted(caps, key=_cap_order)
    if len(pods) == 1 and (one := _one_pod(pods[0], candidates, caps, preferences)) is not None:
        return one
    valid, invalid = _split_valid(candidates)
    served = sorted({c.namespaces for c in valid if c.namespaces is not None}, key=sorted)
    effort = SearchEffort(preferences.refine, preferences.seed, work)
    work.spend(_PER_POD * len(pods))
    waiting_pods = pod_groups(pods, served)
    priced = price_candidates(valid, caps, preferences)
    task = _Task(waiting_pods, priced, tuple(caps), preferences, effort, _packed(waiting_pods), {})
    # Before placement, which may refuse members of a gang: they are needed all the same.
    needed, waiting = needed_pods(task.demand, gangs), task.demand.gangs()
    existing = Existing(running, nodes)
    choices = place_choices(task.demand, task.priced_candidates, running, gangs)
    demand, refused, spread = assign_places(
        task.demand, choices, existing, needed, costs_of=task.place_costs, work=work.part(_PLACING_SHARE)
    )
    placed = task.of(demand)
    answer = WholeGangs(demand, needed, spread, placed.by_weight).plan(placed.shares, work)
    found = DemandPlan(demand, tuple(refused), answer, _served_by_kind(placed, answer))
    found = with_valid_bound(found, task, choices)
    if preferences.refine:
        found = improve(found, task, choices, existing, needed)
    found = with_loose_bound(found, task)
    return assemble(
        found.demand,
        found.packed,
        task.priced_candidates,
        found.answer,
        excluded=(*excluded, *invalid),
        unknown=unknown,
        refused=found.refused,
        gangs=GangCounts(
            needed,
            waiting,
            planned_alone(found.demand, found.answer.left, task.of(found.demand).by_weight, work) if waiting else {},
        ),
    )


def _cap_order(cap: Cap) -> tuple[object, ...]:
    """Sort key that is different for any two caps, so that their order in the input never matters."""
    return (
        cap.name,
        sorted(cap.pools),
        -1 if cap.nodes is None else cap.nodes,
        -1 if cap.hourly_cost is None else cap.hourly_cost.units,
        sorted((cap.resources or {}).items()),
    )


def _split_valid(candidates: Iterable[Candidate]) -> tuple[list[Candidate], list[Excluded]]:
    valid, invalid = [], []
    why = "its price is negative, which cannot be right: Forebay does not buy it"
    for candidate in candidates:
        if candidate.effective_price.units < 0 or candidate.offer.price.units < 0:
            invalid.append(Excluded(candidate=candidate, reason=Reason.OFFER_INVALID, sentence=why))
        else:
            valid.append(candidate)
    return valid, invalid


_Ranked = list[tuple[int, int, Candidate]]


def _rank(candidates: Sequence[Candidate], preferences: Preferences) -> _Ranked:
    """Valid candidates with (less their weight, score), in that order."""
    ranked = []
    for candidate in _split_valid(candidates)[0]:
        score = score_units(candidate, expected_units(candidate, preferences), preferences)
        ranked.append((-candidate.weight, score, candidate))
    ranked.sort(key=lambda each: each[:2])
    return ranked


class _RememberedRank:
    """The order of the last candidates, which stay the same objects from plan to plan while offers do not change."""

    def __init__(self) -> None:
        self._last: tuple[Sequence[Candidate], Preferences, _Ranked] = ((), Preferences(), [])

    def of(self, candidates: Sequence[Candidate], preferences: Preferences) -> _Ranked:
        known, of, ranked = self._last
        if known is not candidates or of != preferences:
            ranked = _rank(candidates, preferences)
            if isinstance(candidates, tuple):
                self._last = (candidates, preferences, ranked)
        return ranked


# The same candidates and preferences always give the same order, so it does not matter who asked before.
_RANKED = _RememberedRank()


def _one_pod(pod: Pod, candidates: Sequence[Candidate], caps: Sequence[Cap], preferences: Preferences) -> Plan | None:
    """The common case without building a packing problem: the cheapest candidate. None where it is not that simple."""
    shape = pod.shape
    if shape.pod_affinity or shape.pod_anti_affinity or shape.topology_spread or shape.preferred_node_affinity:
        return None
    if gang_key(pod) is not None:
        return None
    requests = shape.requests
    types: set[tuple[object, ...]] = set()
    found: list[tuple[tuple[object, ...], PricedCandidate]] = []
    for weight, score, candidate in _RANKED.of(candidates, preferences):
        if len(types) > _ALTERNATIVES and (weight, score) > found[0][0][:2]:
            break
        if (
            candidate.available == 0
            or not requests.fits_within(candidate.node.allocatable)
            or (candidate.namespaces is not None and pod.namespace not in candidate.namespaces)
            or barred(shape, candidate.node) is not None
            or wrong_architecture(shape, candidate)
        ):
            continue
        if any(taint.effect == Effect.PREFER_NO_SCHEDULE for taint in candidate.node.taints):
            return None
        priced = price_candidates([candidate], caps, preferences)[0]
        if Inventory([priced], caps).can_buy(priced):
            found.append(((weight, score, order(candidate)), priced))
            types.add(kind_of_offer(candidate))
    if not found:
        return None
    found.sort(key=lambda each: each[0])
    best = found[0][1]
    # The cheapest of each other type.
    by_type = {kind_of_offer(priced.candidate): priced for _, priced in reversed(found)}
    del by_type[kind_of_offer(best.candidate)]
    others = tuple(
        Alternative(candidate=priced.candidate, more=UsdPerHour.from_units(priced.expected - best.expected))
        for priced in sorted(
            by_type.values(), key=lambda each: (-each.candidate.weight, each.score, order(each.candidate))
        )
    )[:_ALTERNATIVES]
    cost = UsdPerHour.from_units(best.expected)
    purchase = Purchase(
        candidate=best.candidate,
        pods=(pod,),
        reason=Reason.CAPACITY_NEEDED,
        sentence=chosen(best, others),
        alternatives=others,
    )
    return Plan(purchases=(purchase,), cost=cost, bound=cost, price=best.candidate.offer.price)


def _packed(demand: PodGroups) -> tuple[PodGroups, list[int]]:
    groups, own = demand.by_kind()
    return msgspec.structs.replace(demand, groups=tuple(groups)), own


class _Task(NamedTuple):
    demand: PodGroups
    priced_candidates: Sequence[PricedCandidate]
    caps: tuple[Cap, ...]
    preferences: Preferences
    effort: SearchEffort
    #: The demand with one group for all that are alike to packing; and by pod group, the number of its own.
    packed: tuple[PodGroups, list[int]]
    #: Packing problems of the packed demand, by weight.
    problems: dict[int, SplitProblem]

    def of(self, demand: PodGroups) -> "_Task":
        """The same task for other pods."""
        return self._replace(demand=demand, packed=_packed(demand), problems={})

    def inventory(self) -> Inventory:
        return Inventory(self.priced_candidates, self.caps)

    def packer(self, demand: PodGroups) -> Packer:
        return Packer(packing_problem(demand, self.priced_candidates, self.preferences))

    @property
    def work(self) -> Work:
        return self.effort.work

    def place_costs(self, key: str, work: Work) -> PlaceCosts:
        return PlaceCosts(
            self.demand, self.priced_candidates, key, caps=self.caps, preferences=self.preferences, work=work
        )

    def shares(self) -> tuple[Sequence[float], Sequence[float]]:
        """By pod group, what a pod takes of a node on average, and what it costs where it is cheapest.

        Infinite where no node takes it.
        """
        packed, own = self.packed
        problem = packing_problem(packed, self.priced_candidates, self.preferences)
        inventory = self.inventory()
        of_node, cost = [], []
        for number in range(len(packed.groups)):
            taking = [each for each in problem.candidate_groups if each.most[number]]
            nodes = [(sum(map(inventory.can_buy, each.members)), each.most[number]) for each in taking]
            count = sum(n for n, _ in nodes)
            of_node.append(sum(n / most for n, most in nodes) / count if count else math.inf)
            cost.append(min((each.members[0].score / each.most[number] for each in taking), default=math.inf))
        return [of_node[number] for number in own], [cost[number] for number in own]

    def by_weight(self, counts: Sequence[int], work: Work, *, refine: bool) -> PartialPlan:
        """Serves pods from the pools of the largest weight first; what is left goes to the next ones."""
        inventory = self.inventory()
        packed, own = self.packed
        wanted = [0] * len(packed.groups)
        work.spend(_PER_GROUP * len(own))
        for number, count in zip(own, counts, strict=True):
            wanted[number] += count
        answer = PartialPlan.nothing(wanted)
        # A program that chooses pods knows nothing of spread; whether gangs are whole is looked at afterwards.
        choose = not any(group.rules for group in self.demand.groups)
        effort = self.effort._replace(refine=refine and self.effort.refine, choose=choose, work=work)
        for weight in sorted({priced.candidate.weight for priced in self.priced_candidates}, reverse=True):
            if not any(answer.left):
                break
            if weight not in self.problems:
                here = [priced for priced in self.priced_candidates if priced.candidate.weight == weight]
                work.spend(_PER_PAIR * len(here) * len(packed.groups))
                self.problems[weight] = split(packing_problem(packed, here, self.preferences))
            packer, solved = solve(self.problems[weight], packed.groups, answer.left, inventory, effort)
            answer = answer.plus(packer, solved)
        return answer._replace(left=_by_group(own, counts, wanted, answer.left), inventory=inventory)


def _served_by_kind(task: _Task, answer: PartialPlan) -> PodGroups:
    """The packed demand with the pods that the plan serves, and no others."""
    packed, own = task.packed
    pods: list[list[Pod]] = [[] for _ in packed.groups]
    for number, group, left in zip(own, task.demand.groups, answer.left, strict=True):
        pods[number] += group.pods[: group.count - left]
    groups = [msgspec.structs.replace(group, pods=tuple(mine)) for group, mine in zip(packed.groups, pods, strict=True)]
    return msgspec.structs.replace(packed, groups=tuple(groups))


def _by_group(own: Sequence[int], counts: Sequence[int], wanted: Sequence[int], left: Sequence[int]) -> tuple[int, ...]:
    """Pods without a node by pod group, from those by kind: the first groups are served first."""
    served = [count - without for count, without in zip(wanted, left, strict=True)]
    found = []
    for number, count in zip(own, counts, strict=True):
        mine = min(count, served[number])
        served[number] -= mine
        found.append(count - mine)
    return tuple(found)
