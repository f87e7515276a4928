"""`Provider` over Crusoe's API: one virtual machine a launch, found again by its name.

A machine is created by an operation, which may fail minutes after its request was accepted. There are no idempotent
requests: a launch looks for its own name before it asks for a machine.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from forebay.api.parts import SecretKeyRef
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import (
    Billing,
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
from forebay.net.json_body import decode_body
from forebay.net.transport import Request, Transport
from forebay.providers.base import (
    BadCredentials,
    InstanceGone,
    LaunchRequest,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    RateLimited,
    Rejected,
    Unavailable,
)
from forebay.providers.cloud_calls import CloudCalls, CloudDialect, CloudRefusal
from forebay.providers.cloud_frame import all_items, checked
from forebay.providers.crusoe.account import CrusoeAccount, nobodys_public_key, read_account
from forebay.providers.crusoe.deletions import Deletions, operation_path
from forebay.providers.crusoe.order import name_prefix, order, owner_of, vm_name
from forebay.providers.crusoe.prices import AS_OF, PER_GPU
from forebay.providers.crusoe.signing import UnusableKey, signed_headers
from forebay.providers.crusoe.wire import (
    Accepted,
    Capacities,
    CrusoeError,
    StoredDisk,
    StoredDisks,
    Vm,
    VmOperation,
    VmPage,
    VmType,
    VmTypes,
)
from forebay.providers.node_size import allocatable
from forebay.providers.secrets import Secrets, SecretsUnavailable, UnusableSecret

NAME: Final = "crusoe"
PUBLIC_API: Final = "https://api.cloud.crusoe.ai/v1"
CALL_SECONDS: Final = 10.0
#: Seconds that the creation of a machine is waited for, and between two looks at it.
_CREATION_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 2.0
_PAGE: Final = 100
_NOT_FOUND: Final = 404
#: Paths of one machine, operation or disk. Of others Crusoe knows nothing at all where it finds nothing there.
_OF_ONE: Final = re.compile(r"/(instances|operations|disks)/[^/?]+$")
#: Ids of disks whose machine is gone.
_DISK: Final = "disk:"
#: A disk without a machine is a leftover at this age: before, its machine may be about to appear.
_DISK_SETTLES: Final = timedelta(minutes=10)
#: How the disk is attached that a machine was created with.
_BOOT_DISK: Final = "os"

CAPABILITIES: Final = Capabilities(
    deliveries=(Delivery.NODE,),
    joins=frozenset(Join) - {Join.TALOS},
    needs_join=True,
    needs_credentials=True,
    takes_script=True,
    identity=Identity.NAME,
    billing=Billing(minimum=timedelta(minutes=1), increment=timedelta(minutes=1)),
    call_timeout=timedelta(seconds=_CREATION_SECONDS + 5 * CALL_SECONDS),
    # Crusoe publishes no limit; more than this is nowhere needed.
    rate_limits=(RateLimit(requests=300, per=timedelta(minutes=1)),),
    fast_poll=timedelta(seconds=5),
)

_PHASES: Final = {
    "RUNNING": InstancePhase.RUNNING,
    "STOPPING": InstancePhase.STOPPED,
    "STOPPED": InstancePhase.STOPPED,
    "SHUTOFF": InstancePhase.STOPPED,
    "DELETING": InstancePhase.ENDING,
    "FAILED": InstancePhase.FAILED,
    "ERROR": InstancePhase.FAILED,
}
_GONE: Final = "DELETED"


class CrusoeProvider:
    """Rents virtual machines of one project."""

    def __init__(  # noqa: PLR0917 (its dependencies)
        self,
        base: str,
        cluster: str,
        transport: Transport,
        secrets: Secrets,
        key: SecretKeyRef | None,
        clock: Callable[[], datetime],
        regions: Sequence[str] = (),
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        dialect = CloudDialect(
            label="Crusoe",
            read_error=_read_error,
            meaning=_meaning,
            authorize=lambda text, request: _authorized(text, request, clock()),
            timeout=call_seconds,
        )
        self._calls = CloudCalls(dialect, base, transport, secrets, key, clock)
        self._cluster = cluster
        self._clock = clock
        self._secrets = secrets
        self._key = key
        self._regions = frozenset(regions)
        #: Boot disks of machines that are being terminated: they must go with them.
        self._disks_of: dict[str, frozenset[str]] = {}
        self._deletions = Deletions(self._calls, clock)
        #: By product name: what a machine costs, also one that is not offered at the moment.
        self._prices: dict[str, UsdPerHour] = {}

    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def offers(self) -> Sequence[Offer]:
        by_name = await self._types(await self._account())
        capacities = await self._calls.get("/capacities", Capacities)
        found = {
            (each.type, each.location): _offer(by_name[each.type], each.location, each.quantity)
            for each in capacities.items
            if each.type in by_name and each.quantity > 0
        }
        return tuple(each for each in found.values() if not self._regions or self._regions & {each.region, each.zone})

    async def _types(self, account: CrusoeAccount) -> Mapping[str, VmType]:
        """Machines with GPUs of a known price, by product name."""
        types = await self._calls.get(f"/projects/{account.project_id}/compute/vms/types", VmTypes)
        found = {each.product_name: each for each in types.items if each.num_gpu > 0 and each.gpu_type in PER_GPU}
        self._prices |= {name: _price(each) for name, each in found.items()}
        return found

    async def launch(self, request: LaunchRequest) -> Instance:
        account = await self._account()
        body = order(request, account.ssh_public_key or nobodys_public_key())
        before = await self._calls.get(self._listing(account, names=vm_name(request)), VmPage)
        for vm in before.items:
            if vm.name == vm_name(request) and _state(vm) != _GONE:
                return self._instance(vm)
        path = f"/projects/{account.project_id}/compute/vms/instances"
        accepted = await self._calls.act("POST", path, Accepted, body)
        return await self._created(account, accepted.operation, request)

    async def instances(self) -> Found:
        """Every machine whose name is of this cluster, and every disk of one that is gone."""
        account = await self._account()
        vms = await self._vms(account)
        if vms and not self._prices:
            await self._types(account)
        # After the machines: of one that is deleted meanwhile, itself or its disk is seen, never neither.
        disks = await self._calls.get(f"/projects/{account.project_id}/storage/disks", StoredDisks)
        found = {vm.id: self._instance(vm) for vm in vms}
        present = frozenset(found)
        for disk in disks.items:
            left = self._leftover(disk)
            if left is not None:
                found.setdefault(left.id, left)
        ended = await self._deletions.ends(account, present, found.keys() - present)
        return Found(instances=tuple(found.values()), ended=ended, account=account.project_id)

    async def terminate(self, instance_id: str) -> None:
        account = await self._account()
        if instance_id.startswith(_DISK):
            await self._delete_disk(account, instance_id.removeprefix(_DISK))
            return
        listed = await self._calls.get(self._listing(account, ids=instance_id), VmPage)
        vm = next((each for each in listed.items if each.id == instance_id and _state(each) != _GONE), None)
        if vm is None:
            await self._delete_disks_of(account, instance_id)
            return
        if not vm.name.startswith(name_prefix(self._cluster)):
            raise InstanceGone(f"{instance_id} is no machine of this cluster.")
        # Not those that were attached later, such as the volumes of pods: they have data, and outlive the machine.
        self._disks_of[vm.id] = frozenset(disk.id for disk in vm.disks if disk.attachment_type == _BOOT_DISK)
        if _PHASES.get(_state(vm)) is not InstancePhase.ENDING:
            path = f"/projects/{account.project_id}/compute/vms/instances/{quote(vm.id, safe='')}"
            accepted = await self._calls.act("DELETE", path, Accepted)
            self._deletions.requested(vm.id, accepted.operation)

    async def check(self) -> Check:
        return await checked(self._check())

    async def _check(self) -> str:
        await self.instances()
        offers = await self.offers()
        if self._regions and not offers:
            locations = sorted({each.location for each in (await self._calls.get("/capacities", Capacities)).items})
            if not self._regions & {name for each in locations for name in (each, _region(each))}:
                wrong = " or ".join(sorted(self._regions))
                raise Rejected(
                    f"Crusoe lists no machine in {wrong}. Correct regions of the provider; there are: "
                    f"{', '.join(locations)}."
                )
        return (
            f"Crusoe accepts the key and has {len(offers)} offers. Its API has no prices: Forebay uses list "
            f"prices of {AS_OF}."
        )

    async def close(self) -> None:
        await self._calls.close()

    async def _account(self) -> CrusoeAccount:
        if self._key is None:
            raise BadCredentials("Crusoe needs an account file: set credentialsRef to the Secret and the key with it.")
        try:
            text = (await self._secrets.value(self._key)).decode()
            account = read_account(text.strip())
        except UnusableSecret as error:
            raise BadCredentials(f"The account file of Crusoe cannot be read: {error}.") from None
        except SecretsUnavailable as error:
            raise Unavailable(f"The account file of Crusoe cannot be read: {error}.") from None
        except UnicodeDecodeError:
            raise BadCredentials(f"Key {self._key.key} of {self._secrets.describe(self._key)} is not text.") from None
        except BadCredentials:
            # Read again the next time: perhaps somebody corrects it.
            self._secrets.invalidate(self._key)
            raise
        self._secrets.redactor.register(account.secret_key)
        return account

    def _listing(self, account: CrusoeAccount, **query: str) -> str:
        return f"/projects/{account.project_id}/compute/vms/instances?{urlencode({'limit': str(_PAGE), **query})}"

    async def _vms(self, account: CrusoeAccount) -> list[Vm]:
        async def page(begin: str | None) -> tuple[list[Vm], str | None]:
            query = {} if begin is None else {"next_token": begin}
            found = await self._calls.get(self._listing(account, **query), VmPage)
            return list(found.items), found.next_page_token or None

        listed = await all_items("Crusoe's listing", page)
        return [vm for vm in listed if vm.name.startswith(name_prefix(self._cluster)) and _state(vm) != _GONE]

    async def _created(self, account: CrusoeAccount, operation: VmOperation, request: LaunchRequest) -> Instance:
        """The machine, once its operation has succeeded, or exists although the operation goes on."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _CREATION_SECONDS
        vm_id = operation.vm_id
        path = operation_path(account, operation.operation_id)
        while operation.state == "IN_PROGRESS" and loop.time() < until:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                operation = await self._calls.get(path, VmOperation)
            except (Unavailable, RateLimited):
                continue
            except ProviderError as error:
                raise OutcomeUnknown(f"The launch was accepted, but its operation cannot be seen: {error}") from None
            vm_id = operation.vm_id or vm_id
        if operation.state == "FAILED":
            raise _failed(*operation.failure, self._secrets.redactor.text)
        if not vm_id or operation.state != "SUCCEEDED":
            raise OutcomeUnknown(f"The launch was accepted and not done within {_CREATION_SECONDS:.0f} s.")
        return Instance(id=vm_id, phase=InstancePhase.STARTING, owner=request.uid, node_name=request.node_name or None)

    def _instance(self, vm: Vm) -> Instance:
        return Instance(
            id=vm.id,
            phase=_PHASES.get(_state(vm), InstancePhase.STARTING),
            owner=owner_of(vm.name, self._cluster),
            price=self._prices.get(vm.type),
            created=vm.created,
        )

    def _leftover(self, disk: StoredDisk) -> Instance | None:
        """A disk whose machine is gone, as an instance that is to be terminated: it is billed."""
        if disk.attached_to:
            return None
        machine = next((vm_id for vm_id, ids in self._disks_of.items() if disk.id in ids), None)
        if machine is None and not (disk.name.startswith(name_prefix(self._cluster)) and self._has_settled(disk)):
            return None
        return Instance(
            id=machine or f"{_DISK}{disk.id}",
            phase=InstancePhase.ENDING,
            created=disk.created,
            message=f"The machine is gone, and its disk {disk.name} is left.",
        )

    def _has_settled(self, disk: StoredDisk) -> bool:
        return disk.created is None or self._clock() - disk.created >= _DISK_SETTLES

    async def _delete_disks_of(self, account: CrusoeAccount, vm_id: str) -> None:
        """Deletes what is left of the machine's disks. Raises `InstanceGone` where nothing is."""
        disks = await self._calls.get(f"/projects/{account.project_id}/storage/disks", StoredDisks)
        left = {disk.id for disk in disks.items if not disk.attached_to} & self._disks_of.get(vm_id, frozenset())
        if not left:
            self._disks_of.pop(vm_id, None)
            raise InstanceGone(f"Crusoe has no machine {vm_id} any more.")
        for disk_id in sorted(left):
            await self._delete_disk(account, disk_id)

    async def _delete_disk(self, account: CrusoeAccount, disk_id: str) -> None:
        await self._calls.act(
            "DELETE", f"/projects/{account.project_id}/storage/disks/{quote(disk_id, safe='')}", Accepted
        )


def _price(kind: VmType) -> UsdPerHour:
    return PER_GPU[kind.gpu_type].price * kind.num_gpu


def _offer(kind: VmType, location: str, quantity: int) -> Offer:
    priced = PER_GPU[kind.gpu_type]
    return Offer(
        provider=NAME,
        instance_type=kind.product_name,
        region=_region(location),
        zone=location,
        gpu_type=priced.model,
        gpu_count=kind.num_gpu,
        gpu_resource=priced.resource,
        gpu_memory_gib=priced.memory_gib,
        price=_price(kind),
        stock=quantity,
        allocatable=allocatable(
            vcpus=kind.cpu_cores, memory_gib=kind.memory_gb, gpus=kind.num_gpu, gpu_resource=priced.resource
        ),
        labels={"kubernetes.io/arch": "amd64"},
        billing=CAPABILITIES.billing,
    )


def _region(location: str) -> str:
    """`us-east1` of `us-east1-a`."""
    return location.rpartition("-")[0] or location


def _state(vm: Vm) -> str:
    return vm.state.removeprefix("STATE_")


def _authorized(text: str, request: Request, now: datetime) -> Mapping[str, str]:
    account = read_account(text)
    try:
        return signed_headers(account.access_key_id, account.secret_key, request.method, request.url, now)
    except UnusableKey as error:
        raise BadCredentials(f"The key of Crusoe cannot be used: {error}. Correct it.") from None


def _read_error(body: bytes) -> tuple[str, str]:
    try:
        error = decode_body(body, CrusoeError)
    except msgspec.DecodeError:
        return "", ""
    return error.code, error.message


def _meaning(refusal: CloudRefusal) -> ProviderError | None:
    if refusal.status == _NOT_FOUND and _OF_ONE.search(refusal.path):
        return InstanceGone(f"{refusal.fact}: there is nothing of that id any more.")
    if refusal.status == _NOT_FOUND:
        return Rejected(f"{refusal.fact}. Correct endpoint of the provider, or project_id in its account file.")
    if refusal.acts and refusal.status < 500:  # noqa: PLR2004 (HTTP's own numbers)
        return _refused(f"{refusal.code} {refusal.message}", refusal.fact)
    return None


def _failed(code: str, message: str, redacted: Callable[[str], str]) -> ProviderError:
    said = redacted(message or code)[:200].rstrip(".")
    fact = f'The launch failed at Crusoe ("{said}")' if said else "The launch failed at Crusoe"
    return _refused(f"{code} {message}", fact) or Rejected(f"{fact}. Correct what the class asks for.")


def _refused(text: str, fact: str) -> ProviderError | None:
    text = text.lower()
    if "out_of_stock" in text or "out of stock" in text:
        return NoCapacity(f"{fact}: the location has no such machine left.")
    if "quota" in text:
        return QuotaReached(f"{fact}: the project may not have more. Raise its quota.")
    return None
