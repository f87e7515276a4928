"""From counts back to pods: purchases with their sentences, and a reason for every pod that is left out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.planning.candidate_groups import Inventory, PricedCandidate, admits, order
from forebay.planning.gangs import GangKey
from forebay.planning.greedy import Packer, Pattern
from forebay.planning.placement import Refused
from forebay.planning.plan import Alternative, Candidate, Excluded, LeftOut, Plan, Purchase
from forebay.planning.pod_groups import Pin, PodGroup, PodGroups
from forebay.planning.sentences import Considered, chosen, kind_of_offer, left_out
from forebay.planning.solve import Solved

_ALTERNATIVES = 3


class Assignment(NamedTuple):
    """Nodes of one candidate, each for the pods of one pattern."""

    priced: PricedCandidate
    pattern: Pattern
    times: int


class PartialPlan(NamedTuple):
    """The plan so far, in counts of pods."""

    bought: tuple[Assignment, ...]
    #: Pods without a node, by pod group.
    left: tuple[int, ...]
    # All three in units of `UsdPerHour`.
    expected: int
    score: int
    bound: int
    #: Stock and limits left after all purchases.
    inventory: Inventory | None = None
    #: Pod groups that were cut to keep the topology spread of a zone.
    spread_limited: frozenset[int] = frozenset()

    @classmethod
    def nothing(cls, counts: Sequence[int]) -> "PartialPlan":
        return cls((), tuple(counts), 0, 0, 0)

    def plus(self, packer: Packer, solved: Solved) -> "PartialPlan":
        """This partial plan with a solution for the pods it had left."""
        solution = solved.solution
        return PartialPlan(
            (*self.bought, *(Assignment(b.priced, b.pattern, b.times) for b in solution.purchases)),
            solution.left,
            self.expected + packer.expected(solution),
            self.score + packer.score(solution),
            self.bound + solved.bound,
        )


class GangCounts(NamedTuple):
    """Numbers of pods of each gang."""

    #: How many must be served for any to be served.
    needed: Mapping[GangKey, int]
    waiting: Mapping[GangKey, int]
    #: Of gangs that are not served: the plan if the gang were alone.
    alone: Mapping[GangKey, PartialPlan]


def assemble(
    demand: PodGroups,
    packed: PodGroups,
    priced_candidates: Sequence[PricedCandidate],
    answer: PartialPlan,
    *,
    excluded: Sequence[Excluded],
    unknown: Sequence[str],
    refused: Sequence[Refused],
    gangs: GangCounts,
) -> Plan:
    """The plan. `packed`: the pods served, in the groups that patterns count."""
    price = sum(
        (bought.priced.candidate.offer.price * bought.times for bought in answer.bought), start=UsdPerHour.zero()
    )
    return Plan(
        purchases=tuple(_purchases(packed, priced_candidates, answer.bought)),
        left_out=(
            *(LeftOut(pod=pod, reason=why, sentence=sentence) for pods, why, sentence in refused for pod in pods),
            *_left_out(
                demand,
                answer,
                Considered(priced_candidates, answer.inventory or Inventory(priced_candidates, ()), excluded, unknown),
                gangs,
            ),
        ),
        cost=UsdPerHour.from_units(answer.expected),
        bound=UsdPerHour.from_units(answer.bound),
        price=price,
    )


def _purchases(
    demand: PodGroups, priced_candidates: Sequence[PricedCandidate], bought: Iterable[Assignment]
) -> Iterable[Purchase]:
    taken = [0] * len(demand.groups)
    sentences: dict[tuple[int, Pattern], tuple[str, tuple[Alternative, ...]]] = {}
    admitted = _Admitted(priced_candidates)
    for priced, pattern, times in sorted(bought, key=lambda each: (each[0].score, order(each[0].candidate), each[1])):
        about = (id(priced), pattern)
        if about not in sentences:
            others = alternatives(demand, admitted, priced, pattern)
            sentences[about] = (chosen(priced, others), others)
        sentence, others = sentences[about]
        for _ in range(times):
            members: list[Pod] = []
            for group, count in pattern:
                members += demand.groups[group].pods[taken[group] : taken[group] + count]
                taken[group] += count
            yield Purchase(
                candidate=priced.candidate,
                pods=tuple(members),
                reason=Reason.CAPACITY_NEEDED,
                sentence=sentence,
                alternatives=others,
            )


class _Admitted(dict[tuple[int, str, int], bool]):
    """Whether a candidate admits pods of a shape and namespace, remembered."""

    def __init__(self, priced_candidates: Sequence[PricedCandidate]) -> None:
        super().__init__()
        everything = [(kind_of_offer(p.candidate), p) for p in priced_candidates if p.candidate.available != 0]
        self._by_place: dict[Pin | None, Sequence[tuple[object, PricedCandidate]]] = {None: everything}

    def at(self, pin: Pin | None) -> Sequence[tuple[object, PricedCandidate]]:
        """Candidates at a place with the kind of their offer, cheapest first."""
        if pin is not None and pin not in self._by_place:
            everything = self._by_place[None]
            self._by_place[pin] = [
                each for each in everything if each[1].candidate.node.labels.get(pin.key) == pin.value
            ]
        return self._by_place[pin]

    def on(self, group: PodGroup, candidate: Candidate) -> bool:
        pin = group.pin
        if pin is not None and candidate.node.labels.get(pin.key) != pin.value:
            return False
        key = (id(group.shape), group.namespace, id(candidate))
        if key not in self:
            self[key] = admits(group, candidate)
        return self[key]


def alternatives(
    demand: PodGroups, admitted: "_Admitted", priced: PricedCandidate, pattern: Pattern
) -> tuple[Alternative, ...]:
    """The cheapest other instance types that would take the same pods."""
    need: defaultdict[str, int] = defaultdict(int)
    for group, count in pattern:
        for name, amount in demand.groups[group].needs.items():
            if name not in demand.room:
                need[name] += amount * count
    seen: set[object] = {kind_of_offer(priced.candidate)}
    found: list[Alternative] = []
    for kind, other in admitted.at(demand.groups[pattern[0][0]].pin):
        if kind in seen:
            continue
        candidate = other.candidate
        free = candidate.node.allocatable
        if all(amount <= free.amount(name) for name, amount in need.items()) and all(
            admitted.on(demand.groups[group], candidate) for group, _ in pattern
        ):
            more = UsdPerHour.from_units(other.expected - priced.expected)
            found.append(Alternative(candidate=candidate, more=more))
            seen.add(kind)
            if len(found) == _ALTERNATIVES:
                break
    return tuple(found)


def _left_out(
    demand: PodGroups,
    answer: PartialPlan,
    known: Considered,
    gangs: GangCounts,
) -> Iterable[LeftOut]:
    members, needed, waiting = demand.gangs(), gangs.needed, gangs.waiting
    left_of: Counter[GangKey] = Counter()
    for group, left in zip(demand.groups, answer.left, strict=True):
        if group.gang is not None:
            left_of[group.gang] += left
    for number, (group, left) in enumerate(zip(demand.groups, answer.left, strict=True)):
        if not left:
            continue
        reason, sentence = left_out(group, known)
        if number in answer.spread_limited and group.pin is not None:
            reason, sentence = (
                Reason.SPREAD_IMPOSSIBLE,
                (
                    f"More such pods in {group.pin.key}={group.pin.value} would break their topology spread, because "
                    "too few can be served elsewhere: allow more offers in the other places, or raise maxSkew."
                ),
            )
        gang = group.gang
        if gang is not None and left_of[gang] == members[gang]:
            if needed[gang] > waiting[gang]:
                reason, sentence = (
                    Reason.GANG_INCOMPLETE,
                    (
                        f"Pod group {gang} needs {needed[gang]} pods and {waiting[gang]} wait for capacity: Forebay "
                        "launches capacity for the group when enough of its pods exist and are unschedulable."
                    ),
                )
            elif needed[gang] > members[gang] or reason in (Reason.LIMIT_REACHED, Reason.OUT_OF_STOCK):
                why = _why_incomplete(demand, (gang, members[gang]), known, gangs, sentence)
                reason = Reason.GANG_INCOMPLETE
                sentence = f"Pod group {gang} is served as a whole or not at all, and {why}"
        for pod in group.pods[group.count - left :]:
            yield LeftOut(pod=pod, reason=reason, sentence=sentence)


def _why_incomplete(
    demand: PodGroups, planned: tuple[GangKey, int], known: Considered, gangs: GangCounts, sentence: str
) -> str:
    """Why the gang is not served: how many of its pods could be if it were alone, and what holds back the others.

    `planned`: the gang, and how many of its pods were planned for.
    """
    gang, members = planned
    waiting, needed = gangs.waiting[gang], gangs.needed[gang]
    if needed > members:
        return f"not all of its {waiting} pods can be served now. See the sentences of its other pods."
    alone = gangs.alone.get(gang)
    missing = [] if alone is None else [n for n, left in enumerate(alone.left) if left]
    if alone is None or alone.inventory is None or not missing:
        return f"not all of its {waiting} pods can be served now. {sentence}"
    first = demand.groups[missing[0]]
    reason, sentence = left_out(first, known._replace(inventory=alone.inventory))
    served = members - sum(alone.left)
    most = f"there is capacity for {served} of its {waiting} pods; {needed - served} more must fit"
    if reason is Reason.OUT_OF_STOCK:
        return f"{most}: allow more regions, providers or GPU types, or add machines."
    return f"{most}. {sentence}" if reason is Reason.LIMIT_REACHED else f"{most}. Of {first.pods[0].name}: {sentence}"
