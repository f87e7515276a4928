"""Gangs are served as a whole or not at all, and zones keep within their topology spread."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from forebay.planning.assembly import PartialPlan
from forebay.planning.gangs import GangKey, Gangs, least_size
from forebay.planning.placement import Spread
from forebay.planning.pod_groups import PodGroups
from forebay.planning.work import Work

#: Shares of the work that is left for adding gangs: greedily, and by the linear program, so many at once.
_GREEDY_SHARE = 0.25
_REFINE_SHARE = 0.5
_AT_ONCE = 16
#: Shares that differ by less are equal.
_DIGITS = 9

#: What one pod of each pod group takes of all that can be bought.
Shares = Sequence[float]


class Serve(Protocol):
    """Plans for so many pods of each pod group. `refine`: not only greedily, in the time that `work` has left."""

    def __call__(self, counts: list[int], work: Work, *, refine: bool) -> PartialPlan: ...


def needed_pods(demand: PodGroups, gangs: Gangs) -> dict[GangKey, int]:
    """How many of the waiting pods must get a node for any of their gang to get one, by gang."""
    least_sizes: defaultdict[GangKey, list[int]] = defaultdict(list)
    for group in demand.groups:
        if group.gang is not None and (least := least_size(group.pods[0])) is not None:
            least_sizes[group.gang].append(least)
    needed = {}
    for key, members in demand.gangs().items():
        known = gangs.get(key)
        least = (
            known.min_count
            if known is not None and known.min_count is not None
            else max(least_sizes[key], default=None)
        )
        placed, others = (known.placed, known.others) if known is not None else (0, 0)
        needed[key] = members + others if least is None else max(least - placed, 0)
    return needed


def planned_alone(demand: PodGroups, left: Sequence[int], serve: Serve, work: Work) -> dict[GangKey, PartialPlan]:
    """Of gangs without a single node (of the first few): the plan if the gang were alone."""
    served = {group.gang for group, without in zip(demand.groups, left, strict=True) if without < group.count}
    found: dict[GangKey, PartialPlan] = {}
    for key in sorted(set(demand.gangs()).difference(served))[:_AT_ONCE]:
        counts = [group.count if group.gang == key else 0 for group in demand.groups]
        found[key] = serve(counts, work, refine=False)
    return found


class _Attempt(NamedTuple):
    answer: PartialPlan
    #: Pods without a node, by pod group, those of dropped gangs included.
    left: tuple[int, ...]
    broken: tuple[GangKey, ...]
    too_many: Mapping[int, int]
    #: Sort key, least is best: pods without a node, highest priority first, and the score.
    rank: tuple[tuple[int, ...], int]

    @property
    def valid(self) -> bool:
        return not self.broken and not self.too_many


class WholeGangs:
    """Finds pods that can be served without breaking a gang or a spread, first greedily, and then plans for them."""

    def __init__(self, demand: PodGroups, needed: Mapping[GangKey, int], spread: Spread, serve: Serve) -> None:
        self._demand = demand
        self._needed = needed
        self._spread = spread
        self._serve = serve
        self._members = demand.gangs()
        self._priorities = sorted({group.priority for group in demand.groups}, reverse=True)

    def plan(self, shares: Callable[[], Sequence[Shares]], work: Work) -> PartialPlan:
        """The plan. `shares`: ways to compare what pods take of all that can be bought, by pod group."""
        dropped = {key for key, members in self._members.items() if self._needed[key] > members}
        limited: dict[int, int] = {}
        ruled = self._spread.counts_places or bool(self._members)
        found = self._try(dropped, limited, work, refine=not ruled)
        while not found.valid:
            limited |= found.too_many
            if not found.too_many:
                found, dropped = self._choose(dropped, limited, shares(), work)
                break
            found = self._try(dropped, limited, work, refine=False)
        if not found.valid:
            # Fewer pods of some place, because of a gang that is dropped: what is left over there goes too.
            found, dropped = self._without_broken(found, dropped, limited, work)
        if ruled and work.left() > 0:
            refined = self._try(dropped, limited, work, refine=True)
            found = refined if refined.valid and refined.rank <= found.rank else found
        return found.answer._replace(left=found.left, spread_limited=frozenset(limited))

    def _choose(
        self, dropped: set[GangKey], limited: Mapping[int, int], shares: Sequence[Shares], work: Work
    ) -> tuple[_Attempt, set[GangKey]]:
        """Chooses gangs where not all can be whole: as many pods as possible, so those first that take least."""
        best: tuple[_Attempt, list[GangKey], list[GangKey]] | None = None
        dropped = dropped.union(
            group.gang
            for group, share in zip(self._demand.groups, shares[0], strict=True)
            if group.gang is not None and math.isinf(share) and self._needed[group.gang] >= self._members[group.gang]
        )
        for share in shares:
            order = sorted((key for key in self._members if key not in dropped), key=self._order(share))

            def first_gangs(many: int, order: list[GangKey] = order) -> _Attempt:
                return self._try(dropped.union(order[many:]), limited, work, refine=False)

            # Whether all of the first so many gangs can be served is monotonous, but for the whims of the packing.
            many = bisect_left(range(1, len(order) + 1), True, key=lambda many: bool(first_gangs(many).broken))
            attempt = first_gangs(many)
            if best is None or (bool(attempt.broken), attempt.rank) < (bool(best[0].broken), best[0].rank):
                best = (attempt, order[:many], order[many:])
        assert best is not None
        attempt, kept, rest = best
        attempt, kept, rest = self._add(attempt, kept, rest, limited, work.part(_GREEDY_SHARE), refine=False)
        attempt, kept, rest = self._add(attempt, kept, rest, limited, work.part(_REFINE_SHARE), refine=True)
        return attempt, dropped.union(rest)

    def _add(
        self,
        found: _Attempt,
        kept: list[GangKey],
        rest: list[GangKey],
        limited: Mapping[int, int],
        work: Work,
        *,
        refine: bool,
    ) -> tuple[_Attempt, list[GangKey], list[GangKey]]:
        """Adds gangs of the rest while all can be whole: several at once, then fewer."""
        others = {key for key in self._members if key not in kept and key not in rest}
        at, many = 0, _AT_ONCE if refine else 1
        while at < len(rest) and many and work.left() > 0:
            some = rest[at : at + many]
            attempt = self._try(others.union(key for key in rest if key not in some), limited, work, refine=refine)
            if attempt.valid and attempt.rank < found.rank:
                found, kept = attempt, [*kept, *some]
                rest = [key for key in rest if key not in some]
            elif many > 1:
                many //= 2
            else:
                at += 1
        return found, kept, rest

    def _without_broken(
        self, found: _Attempt, dropped: set[GangKey], limited: dict[int, int], work: Work
    ) -> tuple[_Attempt, set[GangKey]]:
        while not found.valid:
            limited |= found.too_many
            dropped = dropped.union(found.broken)
            found = self._try(dropped, limited, work, refine=False)
        return found, dropped

    def _try(self, dropped: set[GangKey], limited: Mapping[int, int], work: Work, *, refine: bool) -> _Attempt:
        groups = self._demand.groups
        counts = [
            0 if group.gang in dropped else min(group.count, limited.get(number, group.count))
            for number, group in enumerate(groups)
        ]
        answer = self._serve(counts, work, refine=refine)
        left = tuple(k.count - n + left for k, n, left in zip(groups, counts, answer.left, strict=True))
        missing: Counter[GangKey] = Counter()
        by_priority: Counter[int] = Counter()
        for group, without in zip(groups, left, strict=True):
            by_priority[group.priority] += without
            if group.gang is not None:
                missing[group.gang] += without
        broken = tuple(
            key
            for key, without in missing.items()
            if key not in dropped and self._members[key] - without < self._needed[key]
        )
        rank = (tuple(by_priority[priority] for priority in self._priorities), answer.score)
        return _Attempt(answer, left, broken, self._spread.too_many(groups, left), rank)

    def _order(self, share: Shares) -> Callable[[GangKey], tuple[object, ...]]:
        """Sort key of a gang: highest priority first, then those that take least for each pod, then the oldest."""
        takes: defaultdict[GangKey, float] = defaultdict(float)
        oldest: dict[GangKey, tuple[object, ...]] = {}
        for group, each in zip(self._demand.groups, share, strict=True):
            if group.gang is not None:
                takes[group.gang] += 0.0 if math.isinf(each) else each * group.count
                age = min((-pod.shape.priority, pod.created) for pod in group.pods)
                oldest[group.gang] = min(oldest.get(group.gang, age), age)
        return lambda key: (
            oldest[key][0],
            round(takes[key] / self._members[key], _DIGITS),
            oldest[key],
            key,
        )
