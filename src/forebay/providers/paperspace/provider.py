"""`Provider` over Paperspace's API."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, urlencode

from forebay.api.parts import SecretKeyRef
from forebay.model.quantities import UsdPerHour
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
from forebay.providers.base import (
    BootKind,
    InstanceGone,
    LaunchRequest,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    Rejected,
    Unavailable,
)
from forebay.providers.cloud_calls import CloudCalls, CloudDialect
from forebay.providers.cloud_frame import checked, of_one_account, require_regions, stated_time
from forebay.providers.node_size import allocatable
from forebay.providers.paperspace.errors import DIALECT, NothingThere
from forebay.providers.paperspace.pages import all_pages
from forebay.providers.paperspace.price_list import AS_OF, PRICES, REGIONS, TYPES, ListedType
from forebay.providers.paperspace.scripts import StartupScripts
from forebay.providers.paperspace.wire import (
    AVAILABILITY,
    BASE,
    EVENTS,
    MACHINES,
    TEMPLATES,
    PaperspaceAvailability,
    PaperspaceEvent,
    PaperspaceMachine,
    PaperspaceMade,
    PaperspaceOrder,
    PaperspaceTemplate,
)
from forebay.providers.secrets import Secrets

NAME: Final = "paperspace"
CAPABILITIES: Final = Capabilities(
    has_leftovers=True,
    deliveries=(Delivery.NODE,),
    joins=frozenset(Join) - {Join.TALOS},
    takes_script=True,
    needs_join=True,
    needs_credentials=True,
    identity=Identity.NAME,
    # A launch needs a template and a script before its own request.
    call_timeout=timedelta(seconds=180),
    max_calls=4,
    # Not published; this is little for any API.
    rate_limits=(RateLimit(requests=120, per=timedelta(minutes=1)),),
    fast_poll=timedelta(seconds=5),
    # Every type in every region is a request of its own.
    offers_poll=timedelta(minutes=5),
)

_STARTING: Final = frozenset({"provisioning", "starting"})
_OFF: Final = frozenset({"off", "stopping"})
_FAILED: Final = frozenset({"error", "cancelled"})
_PENDING: Final = frozenset({"new", "in progress"})
#: Sizes that the API takes, in GB.
_DISKS: Final = (100, 250, 500, 1000, 2000)
_DISK_GIB: Final = 93
#: Templates for a class that names none, the first that runs on the machine type: with NVIDIA's driver, then without.
_USUAL_TEMPLATES: Final = ("ML-in-a-Box", "Ubuntu 22.04", "Ubuntu")
_MOST_AT_ONCE: Final = 8
#: Seconds after which a question about one type is asked again: there are dozens, and all must be answered.
_RETRIES: Final = (0.2, 0.5, 1.0, 2.0)


class PaperspaceProvider:
    """Rents machines of the team that the API key belongs to."""

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
        self._regions = tuple(regions)
        self._prefix = f"forebay-{hashlib.sha256(cluster.encode()).hexdigest()[:12]}-"
        #: Names of machines, by id: a script has the name of its machine.
        self._names: dict[str, str] = {}
        self._scripts = StartupScripts(
            self._calls,
            self._prefix,
            clock,
            launch_takes=CAPABILITIES.call_timeout + CAPABILITIES.settle_time,
            join_takes=CAPABILITIES.launch_deadline + CAPABILITIES.join_deadline,
        )

    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        """The types that are available now, at list prices: the API has none."""
        wanted = [region for region in REGIONS if not self._regions or region in self._regions]
        asked = [(listed, region) for listed in TYPES for region in wanted]
        turns = asyncio.Semaphore(_MOST_AT_ONCE)

        async def available(listed: ListedType, region: str) -> bool:
            for pause in _RETRIES:
                with suppress(Unavailable):
                    async with turns:
                        return await self._available(listed.name, region)
                await asyncio.sleep(pause)
            async with turns:
                return await self._available(listed.name, region)

        if not asked:
            return ()
        # A key that is refused is refused once, and not for every type.
        first = await available(*asked[0])
        others = await asyncio.gather(*(available(*each) for each in asked[1:]), return_exceptions=True)
        answers = (first, *others)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return tuple(_offer(*each) for each, answer in zip(asked, answers, strict=True) if answer)

    async def launch(self, request: LaunchRequest) -> Instance:
        script = _script(request)
        region = REGIONS.get(request.offer.region or "")
        if region is None:
            raise Rejected(f"Paperspace has no region {request.offer.region}. There are: {', '.join(REGIONS)}.")
        template = await self._template(request.image, request.offer.instance_type)
        name = f"{self._prefix}{request.uid}"
        script_id = await self._scripts.add(name, script) if script is not None else None
        order = PaperspaceOrder(
            name=name,
            machine_type=request.offer.instance_type,
            template_id=template.id,
            disk_size=next((size for size in _DISKS if size >= (template.default_size_gb or 0)), _DISKS[-1]),
            region=region,
            startup_script_id=script_id,
            # A static address stays, and is billed, after its machine is gone.
            public_ip_type="dynamic",
            start_on_create=True,
            email_password=False,
            auto_shutdown_enabled=False,
            auto_snapshot_enabled=False,
            take_initial_snapshot=False,
            restore_point_enabled=False,
        )
        try:
            made = await self._calls.act("POST", MACHINES, PaperspaceMade, order)
        except OutcomeUnknown:
            raise
        except ProviderError as error:
            if script_id is not None:
                await self._scripts.discard(script_id)
            if isinstance(error, Rejected) and not await self._still_available(request.offer):
                raise NoCapacity(f"{error} {request.offer.instance_type} is not available there now.") from None
            raise
        self._names[made.data.id] = name
        return _instance(made.data, request.uid, InstancePhase.STARTING)

    async def instances(self) -> Found:
        return await of_one_account(self._calls.account, self._instances)

    async def _instances(self) -> Found:
        machines = [
            each
            for each in await all_pages(self._calls, MACHINES, PaperspaceMachine)
            if each.name.startswith(self._prefix)
        ]
        present = [each for each in machines if not each.dt_deleted]
        instances = [await self._listed(each) for each in present]
        ends = ((each.id, stated_time(each.dt_deleted)) for each in machines)
        ended = {machine: at for machine, at in ends if at is not None}
        self._names = {each.id: each.name for each in present}
        gone = {each.name: False for each in machines if each.dt_deleted}
        left = await self._scripts.sweep(gone | {each.name: each.state not in _OFF for each in present})
        return Found(
            instances=tuple(instances), ended=ended, leftovers=tuple(f"startup script {name}" for name in left)
        )

    async def terminate(self, instance_id: str) -> None:
        """The script of the machine goes with the next listing."""
        if (name := self._names.get(instance_id)) is not None:
            self._scripts.machine_ended(name)
        try:
            await self._calls.act("DELETE", f"{MACHINES}/{quote(instance_id, safe='')}", PaperspaceMade)
        except NothingThere:
            raise InstanceGone(f"Paperspace has no machine {instance_id} any more.") from None

    async def check(self) -> Check:
        return await checked(self._check())

    async def _check(self) -> str:
        require_regions("Paperspace", self._regions, REGIONS)
        await all_pages(self._calls, MACHINES, PaperspaceMachine)
        template = await self._template(None, None)
        return (
            f"Paperspace accepts the API key; machines boot {template.name}. Its API has no prices: those of "
            f"the price list of {AS_OF} are used."
        )

    async def close(self) -> None:
        await self._calls.close()

    async def _available(self, machine_type: str, region: str) -> bool:
        query = urlencode({"machineType": machine_type, "region": REGIONS[region]}, quote_via=quote)
        try:
            return (await self._calls.get(f"{AVAILABILITY}?{query}", PaperspaceAvailability)).available
        except Rejected:
            # Not every type exists in every region.
            return False

    async def _still_available(self, offer: Offer) -> bool:
        """Whether the type is available, where that can be told: a refused launch does not say why."""
        try:
            return await self._available(offer.instance_type, offer.region or "")
        except ProviderError:
            return True

    async def _template(self, image: str | None, machine_type: str | None) -> PaperspaceTemplate:
        """The template to boot: the one that the class names by id or name, or the usual one."""
        templates = await all_pages(self._calls, TEMPLATES, PaperspaceTemplate)
        if image is not None:
            for each in templates:
                if image in {each.id, each.name}:
                    return each
            raise Rejected(f"Paperspace has no OS template {image}. Correct the image of the class.")
        usable = [each for each in templates if machine_type is None or each.runs_on(machine_type)]
        for usual in _USUAL_TEMPLATES:
            for each in usable:
                if each.name.startswith(usual) or each.operating_system_label.startswith(usual):
                    return each
        raise Rejected(f"Paperspace has no Ubuntu template for {machine_type or 'any machine type'}.")

    async def _listed(self, machine: PaperspaceMachine) -> Instance:
        uid = machine.name.removeprefix(self._prefix)
        if machine.state not in _STARTING | _OFF:
            return _instance(machine, uid, InstancePhase.RUNNING)
        # No state says that a machine could not be made; the event of its creation does.
        made = [
            each
            for each in await all_pages(self._calls, EVENTS, PaperspaceEvent, machineId=machine.id)
            if each.name == "create"
        ]
        if failed := next((each for each in made if each.state in _FAILED), None):
            return _instance(machine, uid, InstancePhase.FAILED, f"Paperspace: {failed.error or failed.state}")
        if machine.state in _STARTING or any(each.state in _PENDING for each in made):
            return _instance(machine, uid, InstancePhase.STARTING)
        return _instance(machine, uid, InstancePhase.STOPPED, f"Paperspace: {machine.state}")


def _offer(listed: ListedType, region: str) -> Offer:
    return Offer(
        provider=NAME,
        instance_type=listed.name,
        region=region,
        gpu_type=listed.gpu,
        gpu_count=listed.gpus,
        gpu_memory_gib=listed.gpu_memory_gib,
        price=UsdPerHour(listed.price),
        price_as_of=AS_OF,
        allocatable=allocatable(
            vcpus=listed.vcpus, memory_gib=listed.memory_gib, storage_gib=_DISK_GIB, gpus=listed.gpus
        ),
        labels={"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
    )


def _script(request: LaunchRequest) -> str | None:
    """The startup script. Raises `Rejected` for what Paperspace cannot run."""
    if request.boot is None:
        return None
    text = request.boot.text.reveal()
    if request.boot.kind is BootKind.TALOS:
        raise Rejected("Paperspace boots templates of its own and no Talos. Use k3sConfig, kubeadmConfig or cloudInit.")
    if not text.startswith("#!"):
        raise Rejected(
            "Paperspace runs a startup script and reads no #cloud-config. Let the template of cloudInit begin with "
            "#!/bin/sh, or use k3sConfig or kubeadmConfig."
        )
    return text


def _instance(machine: PaperspaceMachine, uid: str, phase: InstancePhase, message: str | None = None) -> Instance:
    listed = PRICES.get(machine.machine_type)
    return Instance(
        id=machine.id,
        phase=phase,
        owner=uid,
        price=UsdPerHour(listed) if listed is not None else None,
        created=stated_time(machine.dt_created),
        message=message,
    )
