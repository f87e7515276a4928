"""`Provider` over Lambda Cloud's API."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from forebay.api.parts import SecretKeyRef
from forebay.model.sources import (
    Capabilities,
    Check,
    Delivery,
    Found,
    Identity,
    Instance,
    InstancePhase,
    Join,
    Offer,
    RateLimit,
)
from forebay.net.transport import Transport
from forebay.providers.base import BootKind, LaunchRequest, OutcomeUnknown, Rejected
from forebay.providers.cloud_calls import CloudCalls, CloudDialect
from forebay.providers.cloud_frame import checked, of_one_account, require_regions
from forebay.providers.lambdalabs.errors import DIALECT, ObjectMissing, gone
from forebay.providers.lambdalabs.offers import BILLING, hourly_price, offers
from forebay.providers.lambdalabs.ssh_key import ClusterKey
from forebay.providers.lambdalabs.wire import (
    BASE,
    INSTANCES,
    LAUNCH,
    REGIONS,
    TERMINATE,
    TYPES,
    LambdaData,
    LambdaInstance,
    LambdaLaunch,
    LambdaLaunched,
    LambdaRegion,
    LambdaStock,
    LambdaTag,
    LambdaTerminated,
    LambdaTermination,
)
from forebay.providers.secrets import Secrets

CAPABILITIES: Final = Capabilities(
    has_leftovers=True,
    deliveries=(Delivery.NODE,),
    joins=frozenset(Join) - {Join.TALOS},
    needs_join=True,
    needs_credentials=True,
    identity=Identity.TAGS,
    billing=BILLING,
    # Large machines boot slowly.
    launch_deadline=timedelta(minutes=20),
    # A launch may need three requests before its own, and all wait for their turn.
    call_timeout=timedelta(seconds=180),
    max_calls=4,
    launch_interval=timedelta(seconds=12),
    rate_limits=(RateLimit(requests=1, per=timedelta(seconds=1)),),
    fast_poll=timedelta(seconds=5),
)

#: Tags of every instance: the cluster, and the GPUInstance it was launched for.
_CLUSTER: Final = "forebay-cluster"
_UID: Final = "forebay-uid"
#: And when that was, because Lambda does not tell: a machine that is found later is billed from then on.
_LAUNCHED: Final = "forebay-launched"
_PHASES: Final = {
    "booting": InstancePhase.STARTING,
    "active": InstancePhase.RUNNING,
    "unhealthy": InstancePhase.FAILED,
    "terminating": InstancePhase.ENDING,
    "preempted": InstancePhase.STOPPED,
}
_GONE: Final = "terminated"
_HOSTNAME: Final = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
_IMAGE_ID: Final = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}")
_LONGEST_NAME: Final = 64
_LONGEST_KEY: Final = 55
_LONGEST_VALUE: Final = 128
_LARGEST_USER_DATA: Final = 1024 * 1024


class LambdaProvider:
    """Rents machines of the account that the API key belongs to."""

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
        self._clock = clock
        self._regions = frozenset(regions)
        self._key = ClusterKey(self._calls, cluster, CAPABILITIES.settle_time, clock)

    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        stock = (await self._calls.get(TYPES, LambdaData[dict[str, LambdaStock]])).data
        return offers(stock.values(), self._regions)

    async def launch(self, request: LaunchRequest) -> Instance:
        order = _order(request, self._key.name, self._clock())
        async with self._key:
            try:
                launched = await self._launch(order)
            except ObjectMissing:
                # Nothing was launched. Perhaps somebody has deleted the SSH key.
                try:
                    await self._key.restore()
                except OutcomeUnknown as error:
                    raise Rejected(str(error)) from None
                launched = await self._launch(order)
            if not launched.instance_ids:
                raise OutcomeUnknown("Lambda accepted the launch and named no instance.")
            self._key.launched(launched.instance_ids)
        return Instance(
            id=launched.instance_ids[0],
            phase=InstancePhase.STARTING,
            owner=request.uid,
            # Without the price: the answer has none, and that of the offer may be a minute old. Listings tell it.
            node_name=request.node_name,
        )

    async def _launch(self, order: LambdaLaunch) -> LambdaLaunched:
        return (await self._calls.act("POST", LAUNCH, LambdaData[LambdaLaunched], order)).data

    async def instances(self) -> Found:
        return await of_one_account(self._calls.account, self._instances)

    async def _instances(self) -> Found:
        """All instances with the cluster's tag: one answer has the whole account."""
        listed = (await self._calls.get(INSTANCES, LambdaData[tuple[LambdaInstance, ...]])).data
        own = [each for each in listed if each.tag(_CLUSTER) == self._cluster and each.status != _GONE]
        leftovers: tuple[str, ...] = ()
        self._key.listed(each.id for each in own)
        if not own and not await self._key.delete_unused():
            leftovers = (f"SSH key {self._key.name}",)
        return Found(instances=tuple(map(_instance, own)), leftovers=leftovers)

    async def terminate(self, instance_id: str) -> None:
        order = LambdaTermination(instance_ids=(instance_id,))
        try:
            await self._calls.act("POST", TERMINATE, LambdaData[LambdaTerminated], order)
        except ObjectMissing:
            raise gone(instance_id) from None

    async def check(self) -> Check:
        return await checked(self._check())

    async def _check(self) -> str:
        regions = (await self._calls.get(REGIONS, LambdaData[tuple[LambdaRegion, ...]])).data
        require_regions("Lambda", self._regions, {each.name for each in regions})
        await self._calls.get(INSTANCES, LambdaData[tuple[LambdaInstance, ...]])
        found = len(await self.offers())
        return f"Lambda accepts the API key and has {found} offers with capacity now."

    async def close(self) -> None:
        await self._calls.close()


def _order(request: LaunchRequest, ssh_key: str, now: datetime) -> LambdaLaunch:
    """Raises `Rejected` for what Lambda cannot launch."""
    boot, user_data = request.boot, None
    if boot is not None:
        if boot.kind is BootKind.TALOS:
            raise Rejected("Lambda boots images of its own and no Talos. Use k3sConfig, kubeadmConfig or cloudInit.")
        # Cloud-init runs a script that begins with #! as it reads a #cloud-config.
        user_data = boot.text.reveal()
        if len(user_data.encode()) > _LARGEST_USER_DATA:
            raise Rejected("The user data is larger than 1 MiB, which Lambda does not take. Make the template shorter.")
    if request.offer.region is None:
        raise Rejected("Lambda needs the region of a launch, and the offer names none.")
    return LambdaLaunch(
        region_name=request.offer.region,
        instance_type_name=request.offer.instance_type,
        ssh_key_names=(ssh_key,),
        name=request.name[:_LONGEST_NAME],
        hostname=request.node_name if _HOSTNAME.fullmatch(request.node_name) else None,
        image=_image(request.image),
        user_data=user_data,
        tags=_tags(
            {**request.tags, _CLUSTER: request.cluster, _UID: request.uid, _LAUNCHED: now.astimezone(UTC).isoformat()}
        ),
    )


def _image(image: str | None) -> Mapping[str, str] | None:
    """An image by its id, or the newest of a family."""
    if image is None:
        return None
    return {"id": image} if _IMAGE_ID.fullmatch(image) else {"family": image}


def _tags(tags: Mapping[str, str]) -> tuple[LambdaTag, ...]:
    """Tags with the keys that Lambda allows: lower-case letters, digits, dashes and colons, from a letter on."""
    allowed: dict[str, str] = {}
    for key, value in tags.items():
        plain = re.sub(r"[^a-z0-9:-]", "-", key.lower())
        plain = plain if re.match(r"[a-z].", plain) else f"tag-{plain}"
        allowed[plain[:_LONGEST_KEY]] = value[:_LONGEST_VALUE]
    return tuple(LambdaTag(key=key, value=value) for key, value in allowed.items())


def _instance(instance: LambdaInstance) -> Instance:
    phase = _PHASES.get(instance.status)
    return Instance(
        id=instance.id,
        # A status of a later API: it exists, and more is not known.
        phase=phase or InstancePhase.RUNNING,
        owner=instance.tag(_UID),
        price=hourly_price(instance.instance_type),
        created=_time(instance.tag(_LAUNCHED)),
        node_name=instance.hostname,
        message=None if phase in {InstancePhase.STARTING, InstancePhase.RUNNING} else f"Lambda: {instance.status}",
    )


def _time(text: str | None) -> datetime | None:
    """The time in a tag; None where somebody has changed it."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
