"""`Provider` over the API of a simulated market."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from forebay.api.parts import SecretKeyRef
from forebay.model.containers import ContainerSpec
from forebay.model.quantities import InvalidQuantity, Resources, UsdPerHour
from forebay.model.sources import (
    Billing,
    Capabilities,
    Check,
    Delivery,
    Failure,
    FailureKind,
    Found,
    Identity,
    Instance,
    Join,
    Offer,
)
from forebay.net.transport import Transport
from forebay.providers.base import (
    GroupMember,
    GroupMembers,
    LaunchRequest,
    LogLine,
    Unavailable,
)
from forebay.providers.cloud_frame import all_items, checked, of_one_account
from forebay.providers.secrets import Secrets
from forebay.providers.simulated.calls import CALL_SECONDS, market_calls
from forebay.providers.simulated.wire import (
    ACCOUNT,
    GROUPS,
    INSTANCES,
    OFFERS,
    MarketContainer,
    MarketGroup,
    MarketInstance,
    MarketListing,
    MarketLog,
    MarketMember,
    MarketNames,
    MarketNode,
    MarketOffer,
    MarketOffers,
    MarketOrder,
    MarketTaint,
    RefusalCode,
)

NAME: Final = "simulated"
CAPABILITIES: Final = Capabilities(
    deliveries=(Delivery.NODE, Delivery.CONTAINER),
    joins=frozenset(Join),
    has_groups=True,
    spot=True,
    identity=Identity.TAGS,
    # As most real ones: a launch that is repeated blindly rents a second machine.
    idempotent_launch=False,
    dead_man_switch=True,
    billing=Billing(minimum=timedelta(minutes=1), increment=timedelta(seconds=1)),
    settle_time=timedelta(seconds=30),
    launch_deadline=timedelta(minutes=5),
    join_deadline=timedelta(minutes=10),
    gpu_deadline=timedelta(minutes=5),
    # Twice: a call whose API key is refused is sent again with the one that the Secret holds now.
    call_timeout=timedelta(seconds=2 * CALL_SECONDS + 10),
)
#: Seconds between two looks at a log that is followed.
_FOLLOW: Final = 2.0


class SimulatedProvider:
    """Rents machines and containers of the market at `base`."""

    def __init__(  # noqa: PLR0917 (its dependencies)
        self,
        base: str,
        cluster: str,
        transport: Transport,
        secrets: Secrets,
        clock: Callable[[], datetime],
        key: SecretKeyRef | None = None,
        regions: Sequence[str] = (),
    ) -> None:
        self._calls = market_calls(base, transport, secrets, key, clock)
        self._cluster = cluster
        self._regions = frozenset(regions)

    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        found = (await self._calls.get(OFFERS, MarketOffers)).offers
        return tuple(_offer(each) for each in found if not self._regions or each.region in self._regions)

    async def launch(self, request: LaunchRequest) -> Instance:
        return _instance(await self._calls.act("POST", INSTANCES, MarketInstance, _order(request)))

    async def instances(self) -> Found:
        return await of_one_account(self.account, self._instances)

    async def account(self) -> str:
        return await self._calls.account()

    async def _instances(self) -> Found:
        """All pages. A page that cannot be read makes the whole listing an error."""
        ended: dict[str, datetime] = {}

        async def page(begin: str | None) -> tuple[tuple[MarketInstance, ...], str | None]:
            query = f"?cluster={quote(self._cluster, safe='')}&page={begin or 1}"
            listing = await self._calls.get(INSTANCES + query, MarketListing)
            ended.update(listing.ended)
            return listing.instances, None if listing.next is None else str(listing.next)

        listed = await all_items("The market's listing", page)
        found = {each.id: _instance(each) for each in listed if each.cluster == self._cluster}
        return Found(instances=tuple(found.values()), ended=ended)

    async def terminate(self, instance_id: str) -> None:
        await self._calls.delete(f"{INSTANCES}/{quote(instance_id, safe='')}")

    async def check(self) -> Check:
        return await checked(self._check())

    async def _check(self) -> str:
        await self._calls.get(ACCOUNT, dict[str, str])
        offers = len(await self.offers())
        return f"The market accepts the account and has {offers} offers."

    async def close(self) -> None:
        await self._calls.close()

    # Instance groups.

    async def members(self, group: str) -> GroupMembers:
        found = await self._calls.get(_group(group), MarketGroup)
        return GroupMembers(
            members=tuple(_member(each) for each in found.members),
            target=found.target,
            ended=found.ended,
            offer=_offer(found.offer),
        )

    async def grow(self, group: str, names: Collection[str]) -> Mapping[str, str]:
        await self._calls.act("POST", f"{_group(group)}/grow", dict[str, str], MarketNames(names=tuple(names)))
        return {}

    async def shrink(self, group: str, names: Collection[str]) -> None:
        await self._calls.act("POST", f"{_group(group)}/shrink", dict[str, str], MarketNames(names=tuple(names)))

    async def logs(
        self,
        instance_id: str,
        *,
        follow: bool = False,
        since: datetime | None = None,
        tail: int | None = None,
        opened: Callable[[], None] | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncIterator[LogLine]:
        del turn  # there is no stream
        shown = 0
        while True:
            log = await self._calls.get(f"{INSTANCES}/{quote(instance_id, safe='')}/logs", MarketLog)
            if opened is not None:
                opened()
                opened = None
            new = [each for each in log.lines[shown:] if since is None or each.at >= since]
            if not shown and tail is not None:
                new = new[len(new) - min(tail, len(new)) :]
            for line in new:
                yield LogLine(at=line.at, text=line.text)
            shown, tail = len(log.lines), None
            if not follow or not log.open:
                return
            await asyncio.sleep(_FOLLOW)


def _group(name: str) -> str:
    return f"{GROUPS}/{quote(name, safe='')}"


def _member(member: MarketMember) -> GroupMember:
    kinds = {RefusalCode.QUOTA: FailureKind.QUOTA}
    failure = None
    if member.message:
        kind = kinds.get(RefusalCode(member.code), FailureKind.NO_CAPACITY) if member.code else FailureKind.REJECTED
        failure = Failure(kind=kind, sentence=f"The market cannot create it: {member.message}.")
    instance = None if member.instance is None else _instance(member.instance)
    return GroupMember(name=member.name, instance=instance, failure=failure)


def _offer(offer: MarketOffer) -> Offer:
    try:
        allocatable = Resources.parse(offer.allocatable)
        price = UsdPerHour(offer.hourly_price)
        billing = Billing(
            minimum=timedelta(seconds=offer.minimum_seconds), increment=timedelta(seconds=offer.increment_seconds)
        )
        boot = None if offer.boot_seconds is None else timedelta(seconds=offer.boot_seconds)
    except (InvalidQuantity, ValueError, OverflowError) as error:
        raise Unavailable(f"The market's offer {offer.instance_type} cannot be read: {error}.") from None
    return Offer(
        provider=NAME,
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        spot=offer.spot,
        gpu_type=offer.gpu_type,
        gpu_count=offer.gpu_count,
        gpu_memory_gib=offer.gpu_memory_gib,
        price=price,
        stock=offer.stock,
        allocatable=allocatable,
        billing=billing,
        reclaims_per_million_hours=offer.reclaims_per_million_hours,
        boot=boot,
        delivers=offer.delivers,
    )


def _order(request: LaunchRequest) -> MarketOrder:
    offer, node, container = request.offer, None, request.container
    if container is None:
        taints = (*request.taints, *request.startup_taints)
        node = MarketNode(
            name=request.node_name,
            labels=request.labels,
            taints=tuple(MarketTaint(key=each.key, value=each.value, effect=each.effect) for each in taints),
        )
    return MarketOrder(
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        spot=offer.spot,
        cluster=request.cluster,
        owner=request.uid,
        name=request.name,
        tags=request.tags,
        node=node,
        container=None if container is None else _container(container),
        boot=None if request.boot is None else request.boot.text.reveal(),
        image=request.image,
        max_run_seconds=None if request.max_run_time is None else int(request.max_run_time.total_seconds()),
    )


def _container(container: ContainerSpec) -> MarketContainer:
    secret = {name: value.reveal() for name, value in container.secret_env.items()}
    return MarketContainer(
        image=container.image, command=container.command, args=container.args, env={**container.env, **secret}
    )


def _instance(instance: MarketInstance) -> Instance:
    return Instance(
        id=instance.id,
        phase=instance.phase,
        owner=instance.owner or None,
        price=_price(instance.hourly_price),
        created=instance.created,
        node_name=instance.node_name,
        provider_id=instance.provider_id,
        exit_code=instance.exit_code,
        message=instance.message,
        reclaim_at=instance.reclaim_at,
        delivers=instance.delivers,
    )


def _price(text: str) -> UsdPerHour | None:
    """None where it cannot be read: the machine exists all the same, and the price of its offer holds."""
    try:
        return UsdPerHour(text)
    except ValueError:
        return None
