"""A simulated market: machines and containers for rent behind HTTP, in virtual or real time, with scripted faults.

It is one cloud's account. What can be rented, in which stock and at which price, is scripted, and so is what goes
wrong. Machines boot, become nodes and are reclaimed; containers run and exit. The market keeps its own bill.

`Market.answer` is a handler: call it in process, or serve it on a socket. `providers.simulated.wire` has its API.
"""

import asyncio
import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from forebay.model.sources import Delivery, InstancePhase
from forebay.net.clock import now
from forebay.net.transport import AnswerLost, Handler, Headers, Request, Response
from forebay.providers.simulated.wire import (
    MarketListing,
    MarketLog,
    MarketNames,
    MarketOffers,
    MarketOrder,
    RefusalCode,
)
from forebay.simulate.market_bill import BillLine, total
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_goods import Rented, RentedNodes, Sku
from forebay.simulate.market_groups import SimulatedGroup
from forebay.simulate.market_responses import MarketCall, asked_of, json_response, refusal
from forebay.simulate.power_faults import Boot

#: Part of its boot time after which a machine is listed as running.
_POWERED_AT: Final = 0.5
_OK: Final = 200
_CREATED: Final = 201
_ACCEPTED: Final = 202


class ReceivedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded call."""

    at: datetime
    asked: MarketCall
    #: Id of the instance, or tag of the order.
    about: str = ""
    #: Whether it took effect.
    acted: bool
    #: None: no answer was sent.
    status: int | None


class Market:
    """One cloud. `key`: the API key that it requires. `list_lag`: seconds by which its listings lag behind."""

    def __init__(
        self,
        name: str,
        skus: Iterable[Sku],
        nodes: RentedNodes | None = None,
        *,
        key: str | None = None,
        list_lag: float = 0.0,
        quota: int | None = None,
        page_size: int = 100,
    ) -> None:
        self.name = name
        self.calls: Final[list[ReceivedCall]] = []
        self.instances: Final[dict[str, Rented]] = {}
        self.groups: Final[dict[str, SimulatedGroup]] = {}
        self.list_lag = list_lag
        self.key = key
        self.quota = quota
        self._page_size = page_size
        self._nodes = nodes
        self._skus = {sku.key: sku for sku in skus}
        self._stock = {key: sku.stock for key, sku in self._skus.items()}
        self._faults: dict[MarketCall, deque[MarketFault | None]] = defaultdict(deque)
        self._boots: deque[Boot] = deque()
        self._reclaims: list[tuple[int, float, float]] = []
        self._numbers = itertools.count(1)
        self._refuses_until: datetime | None = None

    # The script.

    def script(self, call: MarketCall, *faults: MarketFault | None) -> None:
        """Faults of the next such calls, in order; None is a call without a fault, as are all later calls."""
        self._faults[call].extend(faults)

    def script_boots(self, *boots: Boot) -> None:
        """How the next machines boot, in the order of their launches; later ones succeed."""
        self._boots.extend(boots)

    def script_reclaim(self, gpus: int, *, after: float, notice: float) -> None:
        """Takes the next machine with so many GPUs back, so many seconds after its launch."""
        self._reclaims.append((gpus, after, notice))

    def restock(self, instance_type: str, stock: int | None) -> None:
        """Sets how many there are, in every zone."""
        self._stock |= {key: stock for key, sku in self._skus.items() if sku.instance_type == instance_type}
        for group in self.groups.values():
            group.fill()

    def reprice(self, instance_type: str, hourly_price: str) -> None:
        """Sets the price of later orders."""
        for key, sku in self._skus.items():
            if sku.instance_type == instance_type:
                self._skus[key] = msgspec.structs.replace(sku, hourly_price=hourly_price)

    def refuse_credentials(self, seconds: float) -> None:
        """Answers every call with 401 for so long."""
        self._refuses_until = now() + timedelta(seconds=seconds)

    def reclaim(self, instance: str, notice: float = 0.0) -> None:
        """Takes a machine back, with so many seconds of notice. It is not billed any longer, and shows as stopped."""
        rented = self.instances[instance]
        rented.reclaim_at = now() + timedelta(seconds=notice)
        rented.later(notice, partial(self._preempt, rented))

    def vanish(self, instance: str) -> None:
        """Ends an instance without a trace, as the account's owner does by hand."""
        self.instances[instance].traceless = True
        self._end(self.instances[instance])

    def leave_behind(self, instance_type: str, cluster: str, owner: str = "nobody") -> str:
        """Rents a machine that carries a cluster's tag and that no record knows. Returns its id."""
        sku = next(sku for sku in self._skus.values() if sku.instance_type == instance_type)
        order = MarketOrder(
            instance_type=instance_type, region=sku.region, zone=sku.zone, cluster=cluster, owner=owner, name="leftover"
        )
        return self._rent(sku, order).id

    def add_group(
        self, name: str, instance_type: str, members: Iterable[str] = (), labels: Mapping[str, str] | None = None
    ) -> SimulatedGroup:
        """An instance group of the account's owner, with these members."""
        sku = next(sku for sku in self._skus.values() if sku.instance_type == instance_type)
        group = self.groups[name] = SimulatedGroup(name, sku, self._rent_member, labels or {})
        group.grow(members)
        return group

    def recreate(self, group: str, member: str) -> None:
        """Replaces the machine of a member under the same name, as autohealing does."""
        rented = self.groups[group].members[member]
        if rented is not None:
            self._end(rented)
        self.groups[group].recreate(member)

    def stop(self) -> None:
        """Cancels all pending state changes."""
        for rented in self.instances.values():
            rented.cancel()

    # What is so.

    @property
    def billed(self) -> tuple[BillLine, ...]:
        return tuple(each.line for each in self.instances.values())

    def bill(self) -> Fraction:
        """Dollars so far."""
        return total(self.billed, now())

    @property
    def running(self) -> frozenset[str]:
        """Ids of the instances that exist."""
        return frozenset(each.id for each in self.instances.values() if each.gone_at is None)

    def calls_of(self, asked: MarketCall) -> list[ReceivedCall]:
        return [call for call in self.calls if call.asked is asked]

    # The API.

    async def answer(self, request: Request) -> Response:
        """Handles one HTTP request."""
        parts = urlsplit(request.url)
        asked, about = asked_of(request.method, parts.path)
        if asked is None:
            return refusal(404, "there is nothing of that path")
        if (refused := self._unauthorized(request)) is not None:
            self._record(asked, about, acted=False, status=refused.status)
            return refused
        faults = self._faults[asked]
        fault = (faults.popleft() if faults else None) or MarketFault(acts=True, status=None)
        response = self._act(asked, about, request, fault) if fault.acts else Response(fault.status or 500)
        status = response.status if fault.status is None else fault.status
        acted = fault.acts and response.ok
        self._record(asked, about, acted=acted, status=None if fault.hangs or fault.breaks else status)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.breaks:
            raise AnswerLost(f"{request}: the connection was closed", request)
        if fault.hangs:
            await asyncio.Event().wait()
        if fault.status is None:
            return response
        return Response(fault.status, Headers(fault.headers), fault.body)

    def _unauthorized(self, request: Request) -> Response | None:
        if self._refuses_until is not None and now() < self._refuses_until:
            return refusal(401, "the API key is not valid at the moment")
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return refusal(401, "the API key is not valid")
        return None

    def _act(self, asked: MarketCall, about: str, request: Request, fault: MarketFault) -> Response:
        match asked:
            case MarketCall.ACCOUNT:
                return json_response(_OK, {"account": self.name})
            case MarketCall.OFFERS:
                offers = (sku.offer(self._stock[key]) for key, sku in self._skus.items())
                return json_response(_OK, MarketOffers(offers=tuple(offers)))
            case MarketCall.LAUNCH:
                return self._launch(request.body or b"", copies=fault.copies)
            case MarketCall.LIST:
                return self._list(parse_qs(urlsplit(request.url).query))
            case MarketCall.TERMINATE:
                return self._terminate(about)
            case MarketCall.LOGS:
                return self._logs(about)
            case MarketCall.GROUP | MarketCall.GROW | MarketCall.SHRINK:
                return self._group(asked, about, request.body or b"")

    def _group(self, asked: MarketCall, name: str, body: bytes) -> Response:
        group = self.groups.get(name)
        if group is None:
            return refusal(404, f"there is no group {name}")
        if asked is MarketCall.GROUP:
            seen = now() - timedelta(seconds=self.list_lag)
            return json_response(_OK, group.shown(self._stock[group.sku.key], lambda rented: rented.listed_at(seen)))
        names = msgspec.json.decode(body, type=MarketNames).names
        if asked is MarketCall.GROW:
            group.grow(names)
        else:
            for rented in group.shrink(names):
                self._terminate(rented.id)
        return json_response(_ACCEPTED, {"group": name})

    def _rent_member(self, sku: Sku, order: MarketOrder) -> Rented | None:
        return None if self._stock[sku.key] == 0 else self._rent(sku, order)

    def _launch(self, body: bytes, *, copies: int) -> Response:
        try:
            order = msgspec.json.decode(body, type=MarketOrder)
        except msgspec.DecodeError as error:
            return refusal(400, f"the order cannot be read: {error}")
        key = (order.instance_type, order.region, order.zone, order.spot)
        sku = self._skus.get(key)
        if sku is None or (order.container is None) is (sku.delivers is Delivery.CONTAINER):
            return refusal(422, f"there is no offer of {order.instance_type} like that")
        if self.quota is not None and len(self.running) >= self.quota:
            return refusal(409, f"at most {self.quota} instances", RefusalCode.QUOTA)
        left = self._stock[key]
        if left == 0:
            return refusal(409, f"no {order.instance_type} left", RefusalCode.NO_CAPACITY)
        rented = [self._rent(sku, order) for _ in range(copies)]
        return json_response(_CREATED, rented[0].shown())

    def _new_id(self, order: MarketOrder) -> str:  # noqa: ARG002 (of clouds whose ids are names)
        return f"{self.name}-{next(self._numbers)}"

    def _rent(self, sku: Sku, order: MarketOrder) -> Rented:
        stock = self._stock[sku.key]
        self._stock[sku.key] = None if stock is None else max(stock - 1, 0)
        rented = Rented(self._new_id(order), self.name, sku, order)
        self.instances[rented.id] = rented
        boot = self._boots.popleft() if self._boots else Boot()
        after = sku.boot if boot.after is None else boot.after
        if sku.delivers is Delivery.CONTAINER:
            rented.later(after, rented.runs_container)
        else:
            rented.later(after * _POWERED_AT, partial(rented.enters, InstancePhase.RUNNING))
            if boot.joins and order.node is not None and self._nodes is not None:
                rented.later(after, partial(self._nodes.boot, rented, gpus_appear=boot.gpus_appear))
        if boot.loses_power_after is not None:
            rented.later(boot.loses_power_after, partial(self._fail, rented))
        for scripted in [each for each in self._reclaims if each[0] == sku.gpus][:1]:
            self._reclaims.remove(scripted)
            rented.later(scripted[1], partial(self.reclaim, rented.id, scripted[2]))
        if order.max_run_seconds is not None:
            rented.later(order.max_run_seconds, partial(self._end, rented))
        return rented

    def _list(self, query: dict[str, list[str]]) -> Response:
        cluster, page = query.get("cluster", [""])[0], int(query.get("page", ["1"])[0])
        seen = now() - timedelta(seconds=self.list_lag)
        of_cluster = [each for each in self.instances.values() if each.order.cluster == cluster]
        listed = [each for each in of_cluster if each.listed_at(seen)]
        first = (page - 1) * self._page_size
        shown = listed[first : first + self._page_size]
        more = len(listed) > first + self._page_size
        ended = {
            each.id: each.line.ended
            for each in of_cluster
            if page == 1 and each.line.ended is not None and not each.listed_at(seen) and not each.traceless
        }
        listing = MarketListing(
            instances=tuple(each.shown() for each in shown), ended=ended, next=page + 1 if more else None
        )
        return json_response(_OK, listing)

    def _terminate(self, instance: str) -> Response:
        rented = self.instances.get(instance)
        if rented is None or rented.gone_at is not None:
            return refusal(404, f"there is no instance {instance}")
        if rented.phase is not InstancePhase.ENDING:
            rented.cancel()
            rented.enters(InstancePhase.ENDING)
            self._stop_node(rented)
            rented.later(rented.sku.shutdown, partial(self._end, rented))
        return json_response(_ACCEPTED, {"id": instance})

    def _logs(self, instance: str) -> Response:
        rented = self.instances.get(instance)
        if rented is None or rented.gone_at is not None:
            return refusal(404, f"there is no instance {instance}")
        return json_response(_OK, MarketLog(lines=tuple(rented.log), open=rented.exit_code is None))

    # What happens by itself.

    def _preempt(self, rented: Rented) -> None:
        if rented.phase is InstancePhase.ENDING:
            return
        rented.cancel()
        self._stop_node(rented)
        rented.stop_billing()
        # Who has taken its place is another customer: the stock stays as it is.
        rented.enters(InstancePhase.STOPPED, "preempted")

    def _fail(self, rented: Rented) -> None:
        rented.cancel()
        self._stop_node(rented)
        rented.enters(InstancePhase.FAILED, "the machine has failed")

    def _end(self, rented: Rented) -> None:
        rented.cancel()
        self._stop_node(rented)
        if rented.line.ended is None and (stock := self._stock[rented.sku.key]) is not None:
            self._stock[rented.sku.key] = stock + 1
        rented.stop_billing()
        rented.gone_at = rented.gone_at or now()

    def _stop_node(self, rented: Rented) -> None:
        if self._nodes is not None:
            self._nodes.stop(rented)

    def _record(self, asked: MarketCall, about: str, *, acted: bool, status: int | None) -> None:
        self.calls.append(ReceivedCall(at=now(), asked=asked, about=about, acted=acted, status=status))


def by_host(handlers: Mapping[str, Handler]) -> Handler:
    """A handler for several worlds: each request goes to the one whose name is the host of its URL."""

    async def answer(request: Request) -> Response:
        handler = handlers.get(urlsplit(request.url).hostname or "")
        return Response(502, body=b"no such host\n") if handler is None else await handler(request)

    return answer
