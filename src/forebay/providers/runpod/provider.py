"""`Provider` over RunPod's REST API v2."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from forebay.api.parts import SecretKeyRef
from forebay.model.counts import counted
from forebay.model.secret_text import SecretText
from forebay.model.sources import (
    Capabilities,
    Check,
    Delivery,
    FailureScope,
    Found,
    Identity,
    Instance,
    Offer,
    RateLimit,
)
from forebay.net.transport import Transport
from forebay.providers.base import (
    InstanceGone,
    LaunchRequest,
    LogLine,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    Rejected,
    Unavailable,
)
from forebay.providers.cloud_calls import CloudCalls, CloudDialect
from forebay.providers.cloud_frame import checked, of_one_account, require_regions
from forebay.providers.runpod.errors import DIALECT, InvalidOrder, PodNotFound, RefusedOrder
from forebay.providers.runpod.log_stream import Following, log_lines
from forebay.providers.runpod.offers import COUNTS, cloud_of, gpu_id, in_stock, offers
from forebay.providers.runpod.orders import instance_of, order_of, owner_of
from forebay.providers.runpod.restarts import Restarts
from forebay.providers.runpod.wire import (
    BASE,
    DATA_CENTERS,
    GPUS,
    PODS,
    REGISTRIES,
    SECURE,
    RunpodDataCenters,
    RunpodGpuType,
    RunpodGpuTypes,
    RunpodPod,
    RunpodPods,
    RunpodRegistries,
    RunpodRegistry,
    RunpodRegistryOrder,
)
from forebay.providers.secrets import Secrets

CAPABILITIES: Final = Capabilities(
    deliveries=(Delivery.CONTAINER,),
    needs_credentials=True,
    identity=Identity.NAME,
    billed_until_accepted=True,
    settle_time=timedelta(minutes=2),
    # Images of many gigabytes are pulled first.
    launch_deadline=timedelta(minutes=20),
    call_timeout=timedelta(seconds=120),
    # At 60 requests a minute no more would be answered within that time.
    max_calls=8,
    rate_limits=(
        RateLimit(requests=60, per=timedelta(minutes=1)),
        RateLimit(requests=3000, per=timedelta(hours=1)),
        RateLimit(requests=50_000, per=timedelta(days=1)),
    ),
    # One request for the whole account. Of a container without a command nothing else tells that it has ended, and a
    # listing may wait more than a second for its turn: this shows an end within five.
    poll=timedelta(seconds=3.5),
    fast_poll=timedelta(seconds=3.5),
    # One request for each number of GPUs.
    offers_poll=timedelta(minutes=2),
)

_TERMINATED: Final = "TERMINATED"
_ENDED: Final = frozenset({"EXITED", "ERROR", _TERMINATED})
#: Pods that are missing from a listing and asked for one by one.
_MOST_DOUBTED: Final = 3
#: A listing that was asked for since then tells whether a log has ended: log streams pause for at least so long.
_RECENT: Final = timedelta(seconds=5)


class RunpodProvider:
    """Runs containers under the account that the API key belongs to."""

    def __init__(  # noqa: PLR0917 (its dependencies)
        self,
        cluster: str,
        transport: Transport,
        secrets: Secrets,
        clock: Callable[[], datetime],
        key: SecretKeyRef | None,
        base: str = BASE,
        regions: Sequence[str] = (),
        *,
        dialect: CloudDialect = DIALECT,
    ) -> None:
        self._calls = CloudCalls(dialect, base, transport, secrets, key, clock)
        self._cluster = cluster
        self._regions = frozenset(regions)
        self._clock = clock
        #: When pods were created that no listing has shown yet: a fresh one may be unknown to RunPod for a while.
        self._created: dict[str, datetime] = {}
        #: Pods whose GPUs did nothing when they were last listed.
        self._idle: frozenset[str] = frozenset()
        self._restarts = Restarts()
        #: When pods were last asked for, and the status of each by the answer.
        self._listed = datetime.min.replace(tzinfo=UTC)
        self._statuses: Mapping[str, str | None] = {}
        #: Pods of this cluster in the last listing, and those that were deleted since.
        self._own: frozenset[str] = frozenset()
        self._deleted: set[str] = set()

    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        found: list[Offer] = []
        for count in COUNTS:
            path = f"{GPUS}?include=AVAILABILITY&product=POD&count={count}&cloud={SECURE}"
            found += offers(count, (await self._calls.get(path, RunpodGpuTypes)).gpus, self._regions)
        return tuple(found)

    async def launch(self, request: LaunchRequest) -> Instance:
        order = order_of(request)
        hidden = tuple(request.container.secret_env.values()) if request.container is not None else ()
        try:
            made = await self._calls.act("POST", PODS, RunpodPod, order, hidden)
        except RefusedOrder as error:
            raise await self._explained(error, request.offer) from None
        except PodNotFound as error:
            what = "a template or registry credential of the Job does not exist at RunPod. Correct its annotations"
            raise Rejected(f"{str(error).rstrip('.')}: {what}.", scope=FailureScope.ORDER) from None
        except InvalidOrder as error:
            raise Rejected(str(error), scope=FailureScope.ORDER) from None
        now = self._clock()
        self._created = {key: at for key, at in self._created.items() if now < at + CAPABILITIES.settle_time}
        self._created[made.id] = now
        return instance_of(made, request.uid)

    async def _explained(self, error: RefusedOrder, offer: Offer) -> ProviderError:
        """A 400 is a rule or no stock, and has no code: the catalogue tells which."""
        try:
            path = f"{GPUS}?include=AVAILABILITY&product=POD&count={offer.gpu_count}&cloud={cloud_of(offer)}"
            listed = (await self._calls.get(path, RunpodGpuTypes)).gpus
        except ProviderError:
            listed = ()
        wanted: RunpodGpuType | None = next((each for each in listed if each.id == gpu_id(offer)), None)
        stock = None if wanted is None else in_stock(wanted, offer.region)
        fact = str(error).rstrip(".")
        if stock is False:
            return NoCapacity(f"{fact}: its catalogue has no {offer.instance_type} now.")
        if error.about_stock:
            return NoCapacity(f"{fact}: it could not place {offer.instance_type}.")
        known = "its catalogue has the GPU, so the request breaks a rule" if stock else "its catalogue does not say why"
        return Rejected(f"{fact}: {known}. Correct the pod, or exclude the GPU type.", scope=FailureScope.ORDER)

    async def instances(self) -> Found:
        return await of_one_account(self._calls.account, self._instances)

    async def _instances(self) -> Found:
        """All pods of this cluster: one answer has the whole account."""
        asked = self._clock()
        listed = (await self._calls.get(PODS, RunpodPods)).pods
        await self._doubt({each.id for each in listed})
        self._listed, self._statuses = asked, {each.id: each.status for each in listed}
        self._restarts.look(listed, asked)
        own = tuple(
            instance_of(each, owner, restarted=each.id in self._restarts)
            for each in listed
            if each.status != _TERMINATED and (owner := owner_of(each, self._cluster)) is not None
        )
        for each in own:
            self._created.pop(each.id, None)
        self._own = frozenset(each.id for each in own)
        self._deleted &= self._own
        self._idle = frozenset(each.id for each in listed if each.idle)
        return Found(instances=own)

    async def _doubt(self, listed: AbstractSet[str]) -> None:
        """Raises `Unavailable` where pods are missing that were not deleted, and one of them exists all the same: their
        Jobs would fail, and run again.
        """
        missing = self._own - listed - self._deleted
        for each in sorted(missing)[:_MOST_DOUBTED]:
            try:
                status = (await self._calls.get(f"{PODS}/{quote(each, safe='')}", RunpodPod)).status
            except PodNotFound:
                continue
            if status != _TERMINATED:
                raise Unavailable(f"RunPod's listing lacks pod {each}, which exists: it is not complete.")

    def idle_containers(self) -> Collection[str]:
        return self._idle

    async def terminate(self, instance_id: str) -> None:
        path = f"{PODS}/{quote(instance_id, safe='')}"
        self._deleted.add(instance_id)
        try:
            try:
                await self._calls.delete(path)
            except OutcomeUnknown:
                # Safe to repeat, and the bill ends by the answer: later ones would leave open when it did.
                await self._calls.delete(path)
        except PodNotFound:
            if await self._may_exist(instance_id):
                raise Unavailable(f"RunPod does not know pod {instance_id} yet. Terminating it again later.") from None
            raise InstanceGone(f"RunPod has no pod {instance_id} any more.") from None
        self._created.pop(instance_id, None)

    async def _may_exist(self, instance_id: str) -> bool:
        """Whether a pod that DELETE does not find may exist all the same: it is listed, or was created just now."""
        created = self._created.get(instance_id)
        if created is not None and self._clock() < created + CAPABILITIES.settle_time:
            return True
        return any(
            each.id == instance_id and each.status != _TERMINATED
            for each in (await self._calls.get(PODS, RunpodPods)).pods
        )

    def logs(
        self,
        instance_id: str,
        *,
        follow: bool = False,
        since: datetime | None = None,
        tail: int | None = None,
        opened: Callable[[], None] | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncIterator[LogLine]:
        following = Following(
            has_ended=lambda: self._has_ended(instance_id), is_idle=lambda: instance_id in self._idle, turn=turn
        )
        return log_lines(
            self._calls, instance_id, following=following if follow else None, since=since, tail=tail, opened=opened
        )

    async def _has_ended(self, instance_id: str) -> bool:
        """Whether the pod has ended: by a listing of the last seconds, without a request, where there was one."""
        status = self._statuses.get(instance_id) if self._clock() < self._listed + _RECENT else None
        if status is None:
            try:
                status = (await self._calls.get(f"{PODS}/{quote(instance_id, safe='')}", RunpodPod)).status
            except PodNotFound:
                return True
        return status in _ENDED

    async def registry_credentials(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for each in (await self._calls.get(REGISTRIES, RunpodRegistries)).registries:
            found.setdefault(each.name, []).append(each.id)
        return found

    async def create_registry_credential(self, name: str, username: str, password: SecretText) -> str:
        order = RunpodRegistryOrder(name=name, username=username, password=password.reveal())
        return (await self._calls.act("POST", REGISTRIES, RunpodRegistry, order, (password,))).id

    async def delete_registry_credential(self, credential_id: str) -> None:
        try:
            await self._calls.delete(f"{REGISTRIES}/{quote(credential_id, safe='')}")
        except PodNotFound:
            return

    async def check(self) -> Check:
        return await checked(self._check())

    async def _check(self) -> str:
        running = len((await self.instances()).instances)
        if self._regions:
            centers = (await self._calls.get(DATA_CENTERS, RunpodDataCenters)).data_centers
            require_regions("RunPod", self._regions, {each.id for each in centers}, "data center")
        path = f"{GPUS}?include=AVAILABILITY&product=POD&count=1&cloud={SECURE}"
        found = offers(1, (await self._calls.get(path, RunpodGpuTypes)).gpus, self._regions)
        types = {each.instance_type for each in found}
        return (
            f"RunPod accepts the API key and offers {counted(len(types), 'GPU type')}. "
            f"Containers of this cluster: {running}."
        )

    async def close(self) -> None:
        await self._calls.close()
