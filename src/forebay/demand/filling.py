"""Rooms as they fill up while pods are settled in them, in an order that finds the tightest one that fits."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from forebay.demand.co_location import has_anti_affinity, keeps_apart
from forebay.demand.free_capacity import FreeNode, Port
from forebay.model.fit import barred
from forebay.model.workloads import Pod, PodShape


class Space:
    """A room that fills up."""

    __slots__ = ("free", "guests", "picky", "ports", "room")

    def __init__(self, room: FreeNode, pods_by_node: Mapping[str, Collection[Pod]] | None) -> None:
        self.room = room
        self.free = room.free
        self.ports: set[Port] | frozenset[Port] = room.ports
        self.guests: list[Pod] = list(pods_by_node.get(room.node.name, ())) if pods_by_node else []
        self.picky = any(has_anti_affinity(guest) for guest in self.guests)

    def takes(self, shape: PodShape) -> bool:
        """The part of `fit.misfit` that changes as the room fills up."""
        if shape.host_ports and any(port in self.ports for port in shape.host_ports):
            return False
        return shape.requests.fits_within(self.free)

    def suits(self, pod: Pod, *, picky: bool) -> bool:
        return not (picky or self.picky) or not keeps_apart(pod, self.guests)

    def take(self, pod: Pod, *, picky: bool) -> None:
        self.free -= pod.shape.requests
        if pod.shape.host_ports:
            self.ports = {*self.ports, *pod.shape.host_ports}
        self.guests.append(pod)
        self.picky = self.picky or picky


class Ask(NamedTuple):
    """What all pods of one shape have in common while they are settled. What did not suit them once never will."""

    shape: PodShape
    #: The resource by which rooms are ordered, and how much of it is asked for.
    gpu: str
    amount: int
    picky: bool
    taste: "Taste"
    #: Spaces, by their index, that have not enough for the shape.
    hopeless: set[int]


class Taste(NamedTuple):
    """What shapes that differ in their requests only have in common: the spaces whose nodes bar them, or do not."""

    barred: set[int]
    open: set[int]


class Tier:
    """Spaces in the order of what they have left of each GPU resource, the least first."""

    def __init__(self, spaces: Sequence[Space], indexes: Iterable[int]) -> None:
        self._spaces = spaces
        self._orders: dict[str, list[tuple[int, int]]] = {}
        #: Shapes that no space here can take any more.
        self._hopeless: set[int] = set()
        for index in indexes:
            for name, amount in spaces[index].free.items():
                # Not only `*/gpu`: the user may have named other resources.
                if "/" in name and amount > 0:
                    self._orders.setdefault(name, []).append((amount, index))
        for order in self._orders.values():
            order.sort()

    def seek(self, ask: Ask, pod: Pod) -> int | None:
        if id(ask.shape) in self._hopeless:
            return None
        hopeless, barred_from = ask.hopeless, ask.taste.barred
        order = self._orders.get(ask.gpu, [])
        company = False
        for _, index in islice(order, bisect_left(order, (ask.amount, -1)), None):
            if index in barred_from or index in hopeless:
                continue
            space = self._spaces[index]
            if not may_take(ask, index, space):
                continue
            if space.suits(pod, picky=ask.picky):
                return index
            company = True
        if not company:
            self._hopeless.add(id(ask.shape))
        return None

    def moved(self, index: int, space: Space, taken: PodShape) -> None:
        for name, amount in taken.requests.items():
            order = self._orders.get(name)
            if order is None:
                continue
            left = space.free.amount(name)
            at = bisect_left(order, (left + amount, index))
            if at < len(order) and order[at] == (left + amount, index):
                del order[at]
                if left > 0:
                    insort(order, (left, index))


def may_take(ask: Ask, index: int, space: Space) -> bool:
    barred_from, is_open = ask.taste
    if index not in is_open:
        if index in barred_from:
            return False
        if barred(ask.shape, space.room.node) is not None:
            barred_from.add(index)
            return False
        is_open.add(index)
    if not space.takes(ask.shape):
        ask.hopeless.add(index)
        return False
    return True
