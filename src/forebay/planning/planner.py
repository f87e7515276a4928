"""`plan`: which instances to ask for, which pods each is for, and why any pod is left out."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from forebay.model.fit import barred
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import Effect
from forebay.model.workloads import Pod
from forebay.planning.assembly import PartialPlan, assemble
from forebay.planning.gangs import GangKey, Gangs, gang_key, least_size
from forebay.planning.market import Inventory, Item, expected_units, items, market, order, score_units
from forebay.planning.placement import Spread, assign_places
from forebay.planning.plan import Alternative, Candidate, Cap, Excluded, Plan, Preferences, Present, Purchase
from forebay.planning.pod_groups import PodGroup, PodGroups, pod_groups
from forebay.planning.sentences import chosen
from forebay.planning.solve import TimeLimit, solve

_ALTERNATIVES = 3
#: Share of the deadline that thinking may take; then the plan is written out.
_TO_THINK = 0.8
_NO_GANGS: Gangs = {}


def plan(
    pods: Sequence[Pod],
    candidates: Sequence[Candidate],
    caps: Sequence[Cap] = (),
    preferences: Preferences = Preferences(),  # noqa: B008 (immutable)
    *,
    excluded: Sequence[Excluded] = (),
    unknown: Sequence[str] = (),
    present: Sequence[Present] = (),
    gangs: Gangs = _NO_GANGS,
    clock: Callable[[], float] = time.monotonic,
) -> Plan:
    """The cheapest capacity for `pods`, none of which fit on anything that is there or coming.

    `excluded`: what must not be bought, and `unknown`: sources of which nothing is known, both told to pods that are
    left out. `present`: pods that run, for rules about zones. `gangs`: what is known of groups beyond annotations.
    `clock`: seconds, by which the deadline is kept.

    Total: whatever is wrong with the input becomes the reason why a pod is left out. The same input gives the same
    plan, in whatever order it comes.
    """
    end = clock() + preferences.deadline.total_seconds() * _TO_THINK
    sound, unsound = _sound(candidates)
    caps = sorted(caps, key=_in_order)
    if len(pods) == 1 and (one := _one_pod(pods[0], sound, caps, preferences)) is not None:
        return one
    served = sorted({c.namespaces for c in sound if c.namespaces is not None}, key=sorted)
    thinking = TimeLimit(preferences.refine, preferences.seed, lambda: end - clock())
    task = _Task(pod_groups(pods, served), items(sound, caps, preferences), tuple(caps), preferences, thinking)
    demand, refused, spread = assign_places(task.demand, task.goods, present, gangs, task.trial)
    needed = _needed(demand, gangs)
    answer = _keeping_rules(task._replace(demand=demand), needed, spread)
    return assemble(
        demand, task.goods, answer, excluded=(*excluded, *unsound), unknown=unknown, refused=refused, needed=needed
    )


def _in_order(cap: Cap) -> tuple[object, ...]:
    """Tells any two caps apart, so that the order in which they were given never matters."""
    return (
        cap.name,
        sorted(cap.pools),
        -1 if cap.nodes is None else cap.nodes,
        -1 if cap.hourly_cost is None else cap.hourly_cost.units,
        sorted((cap.resources or {}).items()),
    )


def _sound(candidates: Iterable[Candidate]) -> tuple[list[Candidate], list[Excluded]]:
    sound, unsound = [], []
    why = "its price is negative, which cannot be right: nothing is bought at it"
    for candidate in candidates:
        if candidate.effective_price.units < 0 or candidate.offer.price.units < 0:
            unsound.append(Excluded(candidate=candidate, reason=Reason.OFFER_INVALID, sentence=why))
        else:
            sound.append(candidate)
    return sound, unsound


def _one_pod(pod: Pod, candidates: Sequence[Candidate], caps: Sequence[Cap], preferences: Preferences) -> Plan | None:
    """The common case, without building anything: the cheapest that takes it. None where it is not that simple."""
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
    found: list[tuple[tuple[object, ...], Item]] = []
    for weight, score, number in ranked:
        candidate = candidates[number]
        if len(found) > _ALTERNATIVES and (weight, score) > found[0][0][:2]:
            break
        if (
            candidate.available == 0
            or not requests.fits_within(candidate.node.allocatable)
            or (candidate.namespaces is not None and pod.namespace not in candidate.namespaces)
            or barred(shape, candidate.node) is not None
        ):
            continue
        if any(taint.effect == Effect.PREFER_NO_SCHEDULE for taint in candidate.node.taints):
            return None
        item = items([candidate], caps, preferences)[0]
        if Inventory([item], caps).can_buy(item):
            found.append(((weight, score, order(candidate)), item))
    if not found:
        return None
    found.sort(key=lambda each: each[0])
    best = found[0][1]
    others = tuple(
        Alternative(candidate=item.candidate, more=UsdPerHour.from_units(item.expected - best.expected))
        for _, item in found[1 : _ALTERNATIVES + 1]
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
    goods: Sequence[Item]
    caps: tuple[Cap, ...]
    preferences: Preferences
    thinking: TimeLimit

    def trial(self, members: Sequence[PodGroup]) -> tuple[int, int]:
        """What it takes to serve these kinds alone: how many pods are left over, and the score."""
        alone = self._replace(
            demand=msgspec.structs.replace(self.demand, groups=tuple(members)),
            thinking=self.thinking._replace(refine=False),
        )
        answer = alone.by_weight([kind.count for kind in members])
        return sum(answer.left), answer.score

    def by_weight(self, counts: Sequence[int]) -> PartialPlan:
        """Pools with more weight first; what they leave goes to the next."""
        shop = Inventory(self.goods, self.caps)
        answer = PartialPlan.nothing(counts)
        for weight in sorted({item.candidate.weight for item in self.goods}, reverse=True):
            if not any(answer.left):
                break
            goods = [item for item in self.goods if item.candidate.weight == weight]
            here = market(self.demand, goods, self.preferences)
            packer, solved = solve(here, self.demand.groups, answer.left, shop, self.thinking)
            answer = answer.plus(packer, solved)
        return answer._replace(shop=shop)


def _needed(demand: PodGroups, gangs: Gangs) -> dict[GangKey, int]:
    """By gang: how many of the pods at hand must have a place for any to have one."""
    said: defaultdict[GangKey, list[int]] = defaultdict(list)
    for kind in demand.groups:
        if kind.gang is not None and (least := least_size(kind.pods[0])) is not None:
            said[kind.gang].append(least)
    needed = {}
    for key, members in demand.gangs().items():
        known = gangs.get(key)
        least = known.min_count if known is not None and known.min_count is not None else max(said[key], default=None)
        placed = known.placed if known is not None else 0
        needed[key] = members if least is None else max(least - placed, 0)
    return needed


def _keeping_rules(task: _Task, needed: Mapping[GangKey, int], spread: Spread) -> PartialPlan:
    """Leaves out gangs that cannot be whole, one after the other: without one, another may be. And pods that would be
    too many in their zone, where others could not be had.
    """
    demand = task.demand
    members = demand.gangs()
    dropped = {key for key, least in needed.items() if least > members[key]}
    held: dict[int, int] = {}
    while True:
        counts = [
            0 if kind.gang in dropped else min(kind.count, held.get(number, kind.count))
            for number, kind in enumerate(demand.groups)
        ]
        answer = task.by_weight(counts)
        without = [k.count - n + left for k, n, left in zip(demand.groups, counts, answer.left, strict=True)]
        if too_many := spread.too_many(demand.groups, without):
            held |= too_many
            continue
        missing: Counter[GangKey] = Counter()
        for kind, left in zip(demand.groups, answer.left, strict=True):
            if kind.gang is not None and kind.gang not in dropped:
                missing[kind.gang] += left
        broken = [key for key, left in missing.items() if members[key] - left < needed[key]]
        if not broken:
            return answer._replace(left=tuple(without), held=frozenset(held))
        dropped.add(max(broken, key=lambda key: _last(demand, key)))


def _last(demand: PodGroups, key: GangKey) -> tuple[object, ...]:
    """When not all gangs can be whole, the one of which this is largest is left out: least priority, then youngest."""
    pods = (pod for kind in demand.groups if kind.gang == key for pod in kind.pods)
    return (*min((-pod.shape.priority, pod.created) for pod in pods), key)
