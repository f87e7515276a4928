"""From counts back to pods: purchases with their sentences, and a reason for everyone who is left out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.planning.gangs import GangKey
from forebay.planning.greedy import Packer, Pattern
from forebay.planning.market import Inventory, Item, admits, order
from forebay.planning.placement import Refused
from forebay.planning.plan import Alternative, Excluded, LeftOut, Plan, Purchase
from forebay.planning.pod_groups import PodGroups
from forebay.planning.sentences import Considered, chosen, left_out
from forebay.planning.solve import Solved

_ALTERNATIVES = 3


class Assignment(NamedTuple):
    item: Item
    pattern: Pattern
    times: int


class PartialPlan(NamedTuple):
    bought: tuple[Assignment, ...]
    #: By kind.
    left: tuple[int, ...]
    # In units.
    expected: int = 0
    score: int = 0
    bound: int = 0
    #: As it is after everything was bought.
    shop: Inventory | None = None
    #: Kinds of which more would have been too many in their zone.
    held: frozenset[int] = frozenset()

    @classmethod
    def nothing(cls, counts: Sequence[int]) -> "PartialPlan":
        return cls((), tuple(counts))

    def plus(self, packer: Packer, solved: Solved) -> "PartialPlan":
        """With what was then done about what this had left."""
        solution = solved.solution
        return PartialPlan(
            (*self.bought, *(Assignment(b.item, b.pattern, b.times) for b in solution.buyings)),
            solution.left,
            self.expected + packer.expected(solution),
            self.score + packer.score(solution),
            self.bound + solved.bound,
        )


def assemble(
    demand: PodGroups,
    goods: Sequence[Item],
    answer: PartialPlan,
    *,
    excluded: Sequence[Excluded],
    unknown: Sequence[str],
    refused: Sequence[Refused],
    needed: Mapping[GangKey, int],
) -> Plan:
    price = sum((bought.item.candidate.offer.price * bought.times for bought in answer.bought), start=UsdPerHour.zero())
    return Plan(
        purchases=tuple(_purchases(demand, goods, answer.bought)),
        left_out=(
            *(LeftOut(pod=pod, reason=why, sentence=sentence) for pods, why, sentence in refused for pod in pods),
            *_left_out(
                demand, answer, Considered(goods, answer.shop or Inventory(goods, ()), excluded, unknown), needed
            ),
        ),
        cost=UsdPerHour.from_units(answer.expected),
        bound=UsdPerHour.from_units(answer.bound),
        price=price,
    )


def _purchases(demand: PodGroups, goods: Sequence[Item], bought: Iterable[Assignment]) -> Iterable[Purchase]:
    taken = [0] * len(demand.groups)
    said: dict[tuple[int, Pattern], tuple[str, tuple[Alternative, ...]]] = {}
    for item, pattern, times in sorted(bought, key=lambda each: (each[0].score, order(each[0].candidate), each[1])):
        about = (id(item), pattern)
        if about not in said:
            others = alternatives(demand, goods, item, pattern)
            said[about] = (chosen(item, others), others)
        sentence, others = said[about]
        for _ in range(times):
            members: list[Pod] = []
            for kind, count in pattern:
                members += demand.groups[kind].pods[taken[kind] : taken[kind] + count]
                taken[kind] += count
            yield Purchase(
                candidate=item.candidate,
                pods=tuple(members),
                reason=Reason.CAPACITY_NEEDED,
                sentence=sentence,
                alternatives=others,
            )


def alternatives(demand: PodGroups, goods: Sequence[Item], item: Item, pattern: Pattern) -> tuple[Alternative, ...]:
    """The cheapest other things that would take the same pods; the same type elsewhere is not another thing."""
    need: defaultdict[str, int] = defaultdict(int)
    for kind, count in pattern:
        for name, amount in demand.groups[kind].needs.items():
            if name not in demand.room:
                need[name] += amount * count
    mine = item.candidate.offer
    found = []
    for other in goods:
        candidate = other.candidate
        offer = candidate.offer
        if candidate.available == 0 or (
            (offer.provider, offer.instance_type, offer.spot) == (mine.provider, mine.instance_type, mine.spot)
        ):
            continue
        free = candidate.node.allocatable
        if all(amount <= free.amount(name) for name, amount in need.items()) and all(
            admits(demand.groups[kind], candidate) for kind, _ in pattern
        ):
            more = UsdPerHour.from_units(other.expected - item.expected)
            found.append(Alternative(candidate=candidate, more=more))
            if len(found) == _ALTERNATIVES:
                break
    return tuple(found)


def _left_out(
    demand: PodGroups, answer: PartialPlan, known: Considered, needed: Mapping[GangKey, int]
) -> Iterable[LeftOut]:
    members = demand.gangs()
    left_of: Counter[GangKey] = Counter()
    for kind, left in zip(demand.groups, answer.left, strict=True):
        if kind.gang is not None:
            left_of[kind.gang] += left
    for number, (kind, left) in enumerate(zip(demand.groups, answer.left, strict=True)):
        if not left:
            continue
        reason, sentence = left_out(kind, known)
        if number in answer.held and kind.pin is not None:
            reason, sentence = (
                Reason.SPREAD_IMPOSSIBLE,
                (
                    f"More such pods in {kind.pin.key}={kind.pin.value} would break their topology spread, because not "
                    "enough can be had in other places: allow more offers there, or raise maxSkew."
                ),
            )
        gang = kind.gang
        if gang is not None and left_of[gang] == members[gang]:
            if needed[gang] > members[gang]:
                reason, sentence = (
                    Reason.GANG_INCOMPLETE,
                    (
                        f"It is one of the group {gang}, of which {needed[gang]} are needed and {members[gang]} wait: "
                        "capacity is bought when all of them exist."
                    ),
                )
            elif reason in (Reason.LIMIT_REACHED, Reason.OUT_OF_STOCK):
                reason, sentence = (
                    Reason.GANG_INCOMPLETE,
                    (
                        f"It is one of the group {gang}, which is served as a whole or not at all, and not all of its "
                        f"{members[gang]} pods can have a place now. {sentence}"
                    ),
                )
        for pod in kind.pods[kind.count - left :]:
            yield LeftOut(pod=pod, reason=reason, sentence=sentence)
