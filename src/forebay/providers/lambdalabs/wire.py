"""What Forebay reads and writes of Lambda Cloud's API. Fields that it does not use are left out.

    GET    /instance-types                  types with prices, and the regions that have capacity now
    GET    /regions
    GET    /instances                       all of the account; there are no pages
    POST   /instance-operations/launch      LambdaLaunch
    POST   /instance-operations/terminate   LambdaTermination
    GET    /ssh-keys
    POST   /ssh-keys                        LambdaNewKey
    DELETE /ssh-keys/{id}

A success is {"data": ...}, an error {"error": {"code", "message"}}.
"""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

import msgspec

BASE: Final = "https://cloud.lambda.ai/api/v1"
TYPES: Final = "/instance-types"
REGIONS: Final = "/regions"
INSTANCES: Final = "/instances"
LAUNCH: Final = "/instance-operations/launch"
TERMINATE: Final = "/instance-operations/terminate"
SSH_KEYS: Final = "/ssh-keys"

T = TypeVar("T")


class LambdaData(msgspec.Struct, Generic[T], frozen=True):
    data: T


class LambdaRegion(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class LambdaSpecs(msgspec.Struct, frozen=True, kw_only=True):
    vcpus: int
    memory_gib: int
    storage_gib: int
    gpus: int


class LambdaType(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: Such as `H100 (80 GB SXM5)`.
    gpu_description: str
    price_cents_per_hour: int
    specs: LambdaSpecs


class LambdaStock(msgspec.Struct, frozen=True, kw_only=True):
    instance_type: LambdaType
    regions_with_capacity_available: tuple[LambdaRegion, ...]


class LambdaTag(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    value: str


class LambdaInstance(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    #: booting, active, unhealthy, terminated, terminating or preempted; text, because a later API may add some.
    status: str
    instance_type: LambdaType
    hostname: str | None = None
    tags: tuple[LambdaTag, ...] = ()

    def tag(self, key: str) -> str | None:
        return next((each.value for each in self.tags if each.key == key), None)


class LambdaLaunched(msgspec.Struct, frozen=True, kw_only=True):
    instance_ids: tuple[str, ...]


class LambdaTerminated(msgspec.Struct, frozen=True, kw_only=True):
    terminated_instances: tuple[LambdaInstance, ...]


class LambdaLaunch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One launch. Holds secrets."""

    region_name: str
    instance_type_name: str
    ssh_key_names: tuple[str, ...]
    name: str
    tags: tuple[LambdaTag, ...]
    hostname: str | None = None
    #: {"id": ...} or {"family": ...}.
    image: Mapping[str, str] | None = None
    user_data: str | None = None

    def __repr__(self) -> str:
        return f"LambdaLaunch({self.instance_type_name} for {self.name})"


class LambdaTermination(msgspec.Struct, frozen=True, kw_only=True):
    instance_ids: tuple[str, ...]


class LambdaKey(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    public_key: str = ""


class LambdaNewKey(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    public_key: str


class LambdaError(msgspec.Struct, frozen=True, kw_only=True):
    code: str = ""
    message: str = ""


class LambdaErrors(msgspec.Struct, frozen=True, kw_only=True):
    error: LambdaError = LambdaError()
