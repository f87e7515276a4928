"""`plan`: which instances to launch, which pods each one is for, and why any pod is left out."""

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
from forebay.planning.assembly import PartialPlan, assemble
from forebay.planning.candidate_groups import (
    Inventory,
    PackingProblem,
    PricedCandidate,
    expected_units,
    order,
    packing_problem,
    price_candidates,
    score_units,
    wrong_architecture,
)
from forebay.planning.exact_plan import DemandPlan, improve
from forebay.planning.gangs import Gangs, gang_key
from forebay.planning.greedy import Packer
from forebay.planning.place_choices import Existing, Place, PlaceChoice, place_choices, promising_places
from forebay.planning.placement import assign_places
from forebay.planning.plan import Alternative, Candidate, Cap, Excluded, Plan, Preferences, Purchase, RunningPod
from forebay.planning.pod_groups import PodGroup, PodGroups, pod_groups
from forebay.planning.sentences import chosen
from forebay.planning.solve import SearchEffort, solve
from forebay.planning.whole_gangs import WholeGangs, needed_pods

_ALTERNATIVES = 3
#: Share of the deadline for the search; the rest is for writing out the plan.
_SEARCH_SHARE = 0.8
#: Share of the deadline that must be left for trials of places.
_LATE = 0.4
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
    end = clock() + preferences.deadline.total_seconds() * _SEARCH_SHARE
    valid, invalid = _split_valid(candidates)
    caps = sorted(caps, key=_cap_order)
    if len(pods) == 1 and (one := _one_pod(pods[0], valid, caps, preferences)) is not None:
        return one
    served = sorted({c.namespaces for c in valid if c.namespaces is not None}, key=sorted)
    effort = SearchEffort(preferences.refine, preferences.seed, lambda: end - clock())
    task = _Task(
        pod_groups(pods, served), price_candidates(valid, caps, preferences), tuple(caps), preferences, effort, {}
    )
    # Before placement, which may refuse members of a gang: they are needed all the same.
    needed, waiting = needed_pods(task.demand, gangs), task.demand.gangs()
    existing = Existing(running, nodes)
    choices = place_choices(task.demand, task.priced_candidates, running, gangs)
    demand, refused, spread = assign_places(task.demand, choices, existing, task.promising, task.trial)
    placed = task._replace(demand=demand, problems={})
    answer = WholeGangs(demand, needed, spread, placed.by_weight).plan(effort.seconds_left)
    found = DemandPlan(demand, tuple(refused), answer)
    if preferences.refine:
        found = improve(found, task, choices, existing, needed)
    return assemble(
        found.demand,
        task.priced_candidates,
        found.answer,
        excluded=(*excluded, *invalid),
        unknown=unknown,
        refused=found.refused,
        needed=needed,
        waiting=waiting,
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


def _one_pod(pod: Pod, candidates: Sequence[Candidate], caps: Sequence[Cap], preferences: Preferences) -> Plan | None:
    """The common case without building a packing problem: the cheapest candidate. None where it is not that simple."""
    shape = pod.shape
    if shape.pod_affinity or shape.pod_anti_affinity or shape.topology_spread or shape.preferred_node_affinity:
        return None
    if gang_key(pod) is not None:
        return None
    ranked = []
    for number, candidate in enumerate(candidates):
        score = score_units(candidate, expected_units(candidate, preferences), preferences)
        ranked.append((-candidate.weight, score, number))
    ranked.sort()
    requests = shape.requests
    found: list[tuple[tuple[object, ...], PricedCandidate]] = []
    for weight, score, number in ranked:
        candidate = candidates[number]
        if len(found) > _ALTERNATIVES and (weight, score) > found[0][0][:2]:
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
    if not found:
        return None
    found.sort(key=lambda each: each[0])
    best = found[0][1]
    others = tuple(
        Alternative(candidate=priced.candidate, more=UsdPerHour.from_units(priced.expected - best.expected))
        for _, priced in found[1 : _ALTERNATIVES + 1]
    )
    cost = UsdPerHour.from_units(best.expected)
    purchase = Purchase(
        candidate=best.candidate,
        pods=(pod,),
        reason=Reason.CAPACITY_NEEDED,
        sentence=chosen(best, others),
        alternatives=others,
    )
    return Plan(purchases=(purchase,), cost=cost, bound=cost, price=best.candidate.offer.price)


class _Task(NamedTuple):
    demand: PodGroups
    priced_candidates: Sequence[PricedCandidate]
    caps: tuple[Cap, ...]
    preferences: Preferences
    effort: SearchEffort
    #: Packing problems of the demand, by weight.
    problems: dict[int, PackingProblem]

    def inventory(self) -> Inventory:
        return Inventory(self.priced_candidates, self.caps)

    def packer(self, demand: PodGroups) -> Packer:
        return Packer(packing_problem(demand, self.priced_candidates, self.preferences))

    def seconds_left(self) -> float:
        return self.effort.seconds_left()

    def promising(self, groups: Sequence[PodGroup], choice: PlaceChoice) -> Sequence[Place]:
        found = promising_places(groups, choice, self.priced_candidates)
        # Each trial is a greedy plan: late ones would leave no time for the plan itself.
        late = self.effort.seconds_left() < self.preferences.deadline.total_seconds() * _LATE
        return found[:1] if late else found

    def trial(self, members: Sequence[PodGroup]) -> tuple[int, int]:
        """How many pods are left over, and the score, when only these pod groups are served."""
        alone = self._replace(demand=msgspec.structs.replace(self.demand, groups=tuple(members)), problems={})
        answer = alone.by_weight([group.count for group in members], refine=False)
        return sum(answer.left), answer.score

    def by_weight(self, counts: Sequence[int], *, refine: bool) -> PartialPlan:
        """Serves pods from the pools of the largest weight first; what is left goes to the next ones."""
        inventory = self.inventory()
        answer = PartialPlan.nothing(counts)
        # A program that chooses pods knows nothing of gangs and of spread.
        choose = not any(group.gang is not None or group.rules for group in self.demand.groups)
        effort = self.effort._replace(refine=refine and self.effort.refine, choose=choose)
        for weight in sorted({priced.candidate.weight for priced in self.priced_candidates}, reverse=True):
            if not any(answer.left):
                break
            if weight not in self.problems:
                here = [priced for priced in self.priced_candidates if priced.candidate.weight == weight]
                self.problems[weight] = packing_problem(self.demand, here, self.preferences)
            packer, solved = solve(self.problems[weight], self.demand.groups, answer.left, inventory, effort)
            answer = answer.plus(packer, solved)
        return answer._replace(inventory=inventory)
