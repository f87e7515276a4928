"""Gangs are served as a whole or not at all, and zones keep within their topology spread."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from forebay.planning.assembly import PartialPlan
from forebay.planning.gangs import GangKey, Gangs, least_size
from forebay.planning.placement import Spread
from forebay.planning.pod_groups import PodGroups

#: How many of the gangs that were dropped are tried again, one by one.
_TRIED_AGAIN = 16


class Serve(Protocol):
    """Plans for so many pods of each pod group. `refine`: not only greedily."""

    def __call__(self, counts: list[int], *, refine: bool) -> PartialPlan: ...


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
        placed = known.placed if known is not None else 0
        needed[key] = members if least is None else max(least - placed, 0)
    return needed


class _Attempt(NamedTuple):
    answer: PartialPlan
    #: Pods without a node, by pod group, those of dropped gangs included.
    left: tuple[int, ...]
    broken: tuple[GangKey, ...]
    too_many: Mapping[int, int]

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

    def plan(self, seconds_left: Callable[[], float]) -> PartialPlan:
        dropped = {key for key, members in self._members.items() if self._needed[key] > members}
        limited: dict[int, int] = {}
        impossible = frozenset(dropped)
        ruled = self._spread.counts_places or bool(self._members)
        found = self._try(dropped, limited, refine=not ruled)
        while not found.valid:
            limited |= found.too_many
            # Half of those that are not whole, because without them others may be.
            worst = sorted(found.broken, key=self._drop_order, reverse=True)
            few = len(worst) if seconds_left() <= 0 else (len(worst) + 1) // 2
            dropped |= set(worst[:few]) if not found.too_many else set()
            found = self._try(dropped, limited, refine=False)
        waiting = sorted(dropped - impossible, key=self._drop_order)
        for key in waiting[:_TRIED_AGAIN]:
            if seconds_left() <= 0:
                break
            again = self._try(dropped - {key}, limited, refine=False)
            if again.valid and not any(left for left, k in self._left_by_gang(again) if k == key):
                dropped, found = dropped - {key}, again
        if ruled and seconds_left() > 0:
            refined = self._try(dropped, limited, refine=True)
            found = refined if refined.valid and sum(refined.left) <= sum(found.left) else found
        return found.answer._replace(left=found.left, spread_limited=frozenset(limited))

    def _try(self, dropped: set[GangKey], limited: Mapping[int, int], *, refine: bool) -> _Attempt:
        groups = self._demand.groups
        counts = [
            0 if group.gang in dropped else min(group.count, limited.get(number, group.count))
            for number, group in enumerate(groups)
        ]
        answer = self._serve(counts, refine=refine)
        left = tuple(k.count - n + left for k, n, left in zip(groups, counts, answer.left, strict=True))
        missing: Counter[GangKey] = Counter()
        for group, without in zip(groups, left, strict=True):
            if group.gang is not None:
                missing[group.gang] += without
        broken = tuple(
            key
            for key, without in missing.items()
            if key not in dropped and self._members[key] - without < self._needed[key]
        )
        return _Attempt(answer, left, broken, self._spread.too_many(groups, left))

    def _left_by_gang(self, found: _Attempt) -> Iterable[tuple[int, GangKey | None]]:
        return ((left, group.gang) for left, group in zip(found.left, self._demand.groups, strict=True))

    def _drop_order(self, key: GangKey) -> tuple[object, ...]:
        """Sort key of a gang; of gangs that do not all fit the largest is dropped: lowest priority, then youngest."""
        pods = (pod for group in self._demand.groups if group.gang == key for pod in group.pods)
        return (*min((-pod.shape.priority, pod.created) for pod in pods), key)
