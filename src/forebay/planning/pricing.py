"""Which filling of a node would be worth most, given what each pod is worth: quickly for all shelves at once, and
exactly for one.
"""

from typing import NamedTuple

import highspy
import numpy as np

from forebay.planning.linear import Column, Duals, quiet
from forebay.planning.numbers import Floats, Ints, Numbers


class Filler:
    """Fills a node of every shelf at once, by several measures of what a pod takes up."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        share = numbers.need[None, :, :] / np.maximum(numbers.capacity, 1.0)[:, None, :]
        measures = [share.max(axis=2), share.sum(axis=2), np.sqrt((share**2).sum(axis=2))]
        # One resource alone, where it is scarce on some shelf.
        scarce = np.flatnonzero((share.max(axis=(0, 1)) > 0.1))
        measures += [share[:, :, d] + 0.01 * measures[1] for d in scarce]
        self._size = np.maximum(np.stack(measures), 1e-12)

    def fill(self, worth: Floats, shelves: Ints) -> Ints:
        """By measure and shelf: how many of each kind."""
        numbers = self._numbers
        value = worth[None, :] - numbers.dislike[shelves]
        size = self._size[:, shelves, :]
        density = np.where((numbers.most[shelves] > 0) & (value > 0), value, -1.0)[None, :, :] / size
        order = np.argsort(-density, axis=2, kind="stable")
        measures, rows, kinds = density.shape
        flat_order = order.reshape(measures * rows, kinds)
        good = np.take_along_axis(density.reshape(measures * rows, kinds), flat_order, axis=1) > 0
        free = np.repeat(numbers.capacity[None, shelves, :], measures, axis=0).reshape(measures * rows, -1)
        most = np.repeat(numbers.most[None, shelves, :], measures, axis=0).reshape(measures * rows, kinds)
        counts = np.zeros((measures * rows, kinds), dtype=np.int64)
        every = np.arange(measures * rows)
        for position in range(kinds):
            kind = flat_order[:, position]
            if not good[:, position].any():
                break
            need = numbers.need[kind]
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(need > 0, np.floor(free / need), np.inf).min(axis=1)
            take = np.minimum(room, most[every, kind]) * good[:, position]
            take = np.maximum(take, 0)
            counts[every, kind] = take
            free -= need * take[:, None]
        return counts.reshape(measures, rows, kinds)

    def columns(self, duals: Duals, shelves: Ints, *, each: int = 2) -> list[Column]:
        """Fillings worth more than their node costs: of each shelf the best few that differ."""
        numbers = self._numbers
        counts = self.fill(duals.worth, shelves)
        value = ((duals.worth[None, None, :] - numbers.dislike[shelves][None, :, :]) * counts).sum(axis=2)
        gain = value / duals.node[shelves][None, :]
        found: list[tuple[float, Column]] = []
        for at, shelf in enumerate(shelves):
            seen: set[bytes] = set()
            for measure in np.argsort(-gain[:, at], kind="stable"):
                if gain[measure, at] <= 1.0 + 1e-7 or len(seen) == each:
                    break
                key = counts[measure, at].tobytes()
                if key not in seen:
                    seen.add(key)
                    found.append((float(gain[measure, at]), Column(int(shelf), counts[measure, at])))
        found.sort(key=lambda pair: -pair[0])
        return [column for _, column in found]


class Best(NamedTuple):
    counts: Ints
    value: float
    #: No filling is worth more.
    most: float
    #: Multipliers of the resources under which that is seen; of use for like shelves.
    multipliers: Floats


def relaxed(value: Floats, need: Floats, capacity: Floats, most: Ints, multipliers: Floats) -> float:
    """What a filling is worth at most, if resources are had at these prices: an upper bound for any that are >= 0."""
    return float(multipliers @ capacity + np.maximum(value - need @ multipliers, 0.0) @ most)


def multipliers(value: Floats, need: Floats, capacity: Floats, most: Ints) -> Floats:
    """What a unit of each resource is worth in a node that could be filled with parts of pods."""
    highs = quiet()
    kinds, resources = need.shape
    highs.addRows(
        resources,
        np.full(resources, -highspy.kHighsInf),
        # In shares of the node: memory in bytes beside single GPUs would be more than an LP's digits hold.
        np.ones(resources),
        0,
        np.zeros(resources, dtype=np.int32),
        np.array([], dtype=np.int32),
        np.array([]),
    )
    room = np.maximum(capacity, 1e-300)
    highs.addCols(
        kinds,
        -value,
        np.zeros(kinds),
        most.astype(np.float64),
        kinds * resources,
        np.arange(kinds, dtype=np.int32) * resources,
        np.tile(np.arange(resources, dtype=np.int32), kinds),
        (need / room).ravel(),
    )
    highs.run()
    duals = -np.array(highs.getSolution().row_dual)
    return np.maximum(duals, 0.0) / room


def exact(value: Floats, need: Floats, capacity: Floats, most: Ints, *, above: float, steps: int) -> Best:
    """The filling worth most, if that is more than `above`; depth first with the relaxation as a bound.

    Gives up after so many steps: then `most` is the relaxation's word for what was not looked at.
    """
    good = np.flatnonzero((value > 0) & (most > 0))
    prices = multipliers(value[good], need[good], capacity, most[good])
    weight = need[good] @ prices
    efficiency = value[good] / np.maximum(weight, 1e-300)
    order = np.lexsort((good, -efficiency))
    kinds = [int(good[n]) for n in order]
    values = [float(value[kind]) for kind in kinds]
    weights = [float(weight[n]) for n in order]
    rates = [min(float(efficiency[n]), 1.0) for n in order]
    limits = [int(most[kind]) for kind in kinds]
    needs = [[(d, float(a)) for d, a in enumerate(need[kind]) if a > 0] for kind in kinds]
    surplus = [0.0]
    for v, w, u in zip(reversed(values), reversed(weights), reversed(limits), strict=True):
        surplus.append(surplus[-1] + max(v - w, 0.0) * u)
    surplus.reverse()
    rates.append(0.0)
    free = [float(amount) for amount in capacity]
    best = above
    best_counts: dict[int, int] = {}
    chosen: dict[int, int] = {}
    left = steps
    unseen = 0.0

    def descend(at: int, got: float, room: float) -> None:
        nonlocal best, best_counts, left, unseen
        left -= 1
        if got > best:
            best, best_counts = got, dict(chosen)
        while at < len(kinds):
            bound = got + surplus[at] + rates[at] * room
            if bound <= best * (1 + 1e-12):
                return
            if left <= 0:
                unseen = max(unseen, bound)
                return
            count = limits[at]
            for d, amount in needs[at]:
                count = min(count, int(free[d] // amount))
            if count > 0:
                break
            at += 1
        else:
            return
        for d, amount in needs[at]:
            free[d] -= amount * count
        taken = count
        while taken > 0:
            chosen[kinds[at]] = taken
            descend(at + 1, got + values[at] * taken, room - weights[at] * taken)
            taken -= 1
            for d, amount in needs[at]:
                free[d] += amount
        chosen.pop(kinds[at], None)
        descend(at + 1, got, room)

    descend(0, 0.0, float(prices @ capacity))
    counts = np.zeros(len(value), dtype=np.int64)
    for kind, count in best_counts.items():
        counts[kind] = count
    return Best(counts, best, max(best, unseen), prices)
