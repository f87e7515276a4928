"""Instance groups of a market: members by name, which the group creates as soon as the market has them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from forebay.model.sources import InstancePhase
from forebay.net.clock import now
from forebay.providers.simulated.wire import MarketGroup, MarketMember, MarketNode, MarketOrder, RefusalCode
from forebay.simulate.market_goods import Rented, Sku


class SimulatedGroup:
    """One group. `rent` rents a machine for a member; None where the market has none left."""

    def __init__(
        self, name: str, sku: Sku, rent: Callable[[Sku, MarketOrder], Rented | None], labels: Mapping[str, str]
    ) -> None:
        self.name: Final = name
        self.sku: Final = sku
        self._rent = rent
        self._labels = dict(labels)
        #: The machine of each member; None: the group tries to create it.
        self._members: dict[str, Rented | None] = {}
        #: Deletions that were asked for: when, and of which member.
        self.shrunk: Final[list[tuple[datetime, str]]] = []

    @property
    def members(self) -> dict[str, Rented | None]:
        """Members, without those that are gone."""
        return {name: each for name, each in self._members.items() if each is None or each.gone_at is None}

    @property
    def target(self) -> int:
        return sum(each is None or each.phase is not InstancePhase.ENDING for each in self.members.values())

    def grow(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.members:
                self._members[name] = None
        self.fill()

    def fill(self) -> None:
        """Creates the members that the market had no machine for so far."""
        for name, each in self.members.items():
            if each is None:
                self._members[name] = self._rent(self.sku, self._order(name))

    def shrink(self, names: Iterable[str]) -> Iterator[Rented]:
        """Drops members; yields the machines to end."""
        for name in names:
            if name not in self.members:
                continue
            self.shrunk.append((now(), name))
            rented = self._members[name]
            if rented is None:
                del self._members[name]
            else:
                yield rented

    def recreate(self, name: str) -> None:
        """Another machine under the same name, as autohealing does, once the old one has ended."""
        self._members[name] = self._rent(self.sku, self._order(name))

    def shown(self, stock: int | None, visible: Callable[[Rented], bool]) -> MarketGroup:
        members = tuple(
            MarketMember(name=name, code=RefusalCode.NO_CAPACITY, message=f"no {self.sku.instance_type} left")
            if rented is None
            else MarketMember(name=name, instance=rented.shown())
            for name, rented in self._members.items()
            if rented is None or visible(rented)
        )
        ended = {
            name: rented.line.ended
            for name, rented in self._members.items()
            if rented is not None and rented.line.ended is not None and not visible(rented) and not rented.traceless
        }
        return MarketGroup(target=self.target, members=members, ended=ended, offer=self.sku.offer(stock))

    def _order(self, name: str) -> MarketOrder:
        # The market's own tag of a group, which is no cluster's.
        return MarketOrder(
            instance_type=self.sku.instance_type,
            region=self.sku.region,
            zone=self.sku.zone,
            spot=self.sku.spot,
            cluster=f"group:{self.name}",
            owner="",
            name=name,
            node=MarketNode(name=name, labels=self._labels),
        )
