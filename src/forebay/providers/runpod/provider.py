"""`Provider` over RunPod's REST API v2."""

import math
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeVar
from urllib.parse import quote

from forebay.api.parts import SecretKeyRef
from forebay.model.containers import ContainerPort, ContainerSpec
from forebay.model.quantities import UsdPerHour
from forebay.model.secret_text import SecretText
from forebay.model.sources import (
    Capabilities,
    Check,
    Delivery,
    FailureScope,
    Found,
    Identity,
    Instance,
    InstancePhase,
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
from forebay.providers.cloud_frame import checked, require_regions
from forebay.providers.runpod.errors import DIALECT, InvalidOrder, PodNotFound, RefusedOrder
from forebay.providers.runpod.log_stream import Following, log_lines
from forebay.providers.runpod.offers import COUNTS, NAME, gpu_id, in_stock, offers
from forebay.providers.runpod.wire import (
    BASE,
    DATA_CENTERS,
    GPUS,
    PODS,
    REGISTRIES,
    SECURE,
    RunpodDataCenters,
    RunpodGpu,
    RunpodGpuType,
    RunpodGpuTypes,
    RunpodOrder,
    RunpodPod,
    RunpodPods,
    RunpodRegistries,
    RunpodRegistry,
    RunpodRegistryOrder,
)
from forebay.providers.secrets import Secrets

T = TypeVar("T")

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

#: Variables that every container has: the cluster, and the GPUInstance it was launched for. The name has both too.
_CLUSTER: Final = "FOREBAY_CLUSTER"
_INSTANCE: Final = "FOREBAY_INSTANCE"
_PHASES: Final = {
    "PROVISIONING": InstancePhase.STARTING,
    "STARTING": InstancePhase.STARTING,
    "RUNNING": InstancePhase.RUNNING,
    "EXITED": InstancePhase.FINISHED,
    "ERROR": InstancePhase.FAILED,
}
_TERMINATED: Final = "TERMINATED"
_ENDED: Final = frozenset({"EXITED", "ERROR", _TERMINATED})
#: A listing that was asked for since then tells whether a log has ended: log streams pause for at least so long.
_RECENT: Final = timedelta(seconds=5)
#: Ports that RunPod's proxy serves by HTTP where a pod does not say; as its users know it.
_HTTP_PORTS: Final = frozenset({80, 443, 3000, 5000, 8000, 8080, 8888, 9000})
#: A GiB is so many GB.
_GB_PER_GIB: Final = 2**30 / 10**9


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
        #: When pods were last asked for, and the status of each by the answer.
        self._listed = datetime.min.replace(tzinfo=UTC)
        self._statuses: Mapping[str, str | None] = {}

    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        found: list[Offer] = []
        for count in COUNTS:
            path = f"{GPUS}?include=AVAILABILITY&product=POD&count={count}&cloud={SECURE}"
            found += offers(count, (await self._read(path, RunpodGpuTypes)).gpus, self._regions)
        return tuple(found)

    async def launch(self, request: LaunchRequest) -> Instance:
        order = _order(request)
        try:
            made = await self._calls.act("POST", PODS, RunpodPod, order)
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
        return _instance(made, request.uid)

    async def _explained(self, error: RefusedOrder, offer: Offer) -> ProviderError:
        """A 400 is a rule or no stock, and has no code: the catalogue tells which."""
        try:
            path = f"{GPUS}?include=AVAILABILITY&product=POD&count={offer.gpu_count}&cloud={SECURE}"
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
        """All pods of this cluster: one answer has the whole account."""
        asked = self._clock()
        listed = (await self._read(PODS, RunpodPods)).pods
        self._listed, self._statuses = asked, {each.id: each.status for each in listed}
        own = tuple(
            _instance(each, owner)
            for each in listed
            if each.status != _TERMINATED and (owner := self._owner(each)) is not None
        )
        for each in own:
            self._created.pop(each.id, None)
        self._idle = frozenset(each.id for each in listed if each.idle)
        return Found(instances=own)

    def idle_containers(self) -> Collection[str]:
        return self._idle

    async def _read(self, path: str, answer: type[T]) -> T:
        """What others wait for is asked a second time where RunPod fails, and not only at the next poll."""
        try:
            return await self._calls.get(path, answer)
        except Unavailable:
            return await self._calls.get(path, answer)

    def _owner(self, pod: RunpodPod) -> str | None:
        """UID of the GPUInstance; None: the pod is not of this cluster."""
        variables = pod.variables
        if variables.get(_CLUSTER) == self._cluster and _INSTANCE in variables:
            return variables[_INSTANCE]
        _, separator, uid = (pod.name or "").partition(_mark(self._cluster))
        return uid if separator and uid else None

    async def terminate(self, instance_id: str) -> None:
        path = f"{PODS}/{quote(instance_id, safe='')}"
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
        for each in (await self._read(REGISTRIES, RunpodRegistries)).registries:
            found.setdefault(each.name, []).append(each.id)
        return found

    async def create_registry_credential(self, name: str, username: str, password: SecretText) -> str:
        order = RunpodRegistryOrder(name=name, username=username, password=password.reveal())
        return (await self._calls.act("POST", REGISTRIES, RunpodRegistry, order)).id

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
        found = list(offers(1, (await self._calls.get(path, RunpodGpuTypes)).gpus, self._regions))
        return (
            f"RunPod accepts the API key and has {len(found)} GPU types in stock. "
            f"Containers of this cluster: {running}."
        )

    async def close(self) -> None:
        await self._calls.close()


def _mark(cluster: str) -> str:
    """Part of the name of every container, before the UID of its GPUInstance."""
    return f".{NAME}.forebay.{cluster}."


def _order(request: LaunchRequest) -> RunpodOrder:
    """Raises `Rejected` for what RunPod cannot run."""
    container = request.container
    if container is None:
        raise Rejected("RunPod runs containers only, and none is given. Use another provider for nodes.")
    secret = {name: value.reveal() for name, value in container.secret_env.items()}
    words = (*container.command, *container.args)
    return RunpodOrder(
        name=f"{request.name}{_mark(request.cluster)}{request.uid}",
        image=container.image,
        gpu=RunpodGpu(id=gpu_id(request.offer), count=request.offer.gpu_count),
        cloud=SECURE,
        env={**container.env, **secret, _CLUSTER: request.cluster, _INSTANCE: request.uid},
        args=shlex.join(words) if words else None,
        data_center_ids=(request.offer.region,) if request.offer.region is not None else (),
        ports=tuple(map(_port, container.ports)),
        disk=_disk(container),
        registry=container.registry_auth,
        template_id=container.template,
    )


def _port(port: ContainerPort) -> str:
    protocol = port.protocol.upper()
    if protocol not in {"TCP", "HTTP"}:
        raise Rejected(f"Port {port.port} is {port.protocol}, and RunPod serves HTTP and TCP only. Remove the port.")
    return f"{port.port}/{'http' if protocol == 'HTTP' or port.port in _HTTP_PORTS else 'tcp'}"


def _disk(container: ContainerSpec) -> int | None:
    return None if container.disk_gib is None else math.ceil(container.disk_gib * _GB_PER_GIB)


def _price(cost: Decimal) -> UsdPerHour | None:
    try:
        return UsdPerHour(cost)
    except ValueError:
        return None


def _instance(pod: RunpodPod, owner: str) -> Instance:
    phase, cost = _PHASES.get(pod.status or ""), pod.hourly_cost
    return Instance(
        id=pod.id,
        # A status of a later API: it exists, and more is not known.
        phase=phase or InstancePhase.RUNNING,
        owner=owner,
        price=_price(cost) if cost else None,
        created=pod.created,
        billed=phase is not InstancePhase.FINISHED or cost is None or cost > 0,
        message="RunPod: ERROR" if phase is InstancePhase.FAILED else None,
        delivers=Delivery.CONTAINER,
    )
