"""RunPod's REST API v2: paths and bodies, as far as Forebay uses them."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, TypeVar

import msgspec

BASE: Final = "https://api.runpod.io"
PODS: Final = "/v2/pods"
GPUS: Final = "/v2/catalog/gpus"
DATA_CENTERS: Final = "/v2/catalog/datacenters"
REGISTRIES: Final = "/v2/registries"

_T = TypeVar("_T")

SECURE: Final = "SECURE"
COMMUNITY: Final = "COMMUNITY"
#: Stock level of what cannot be had now.
NONE: Final = "NONE"


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class RunpodGpu(_Wire, frozen=True, kw_only=True):
    id: str
    count: int = msgspec.field(default=1)


class RunpodOrder(_Wire, frozen=True, kw_only=True):
    """Body of a creation. What it does not name, RunPod chooses."""

    name: str
    image: str
    gpu: RunpodGpu
    cloud: str
    env: Mapping[str, str]
    args: str | None = None
    data_center_ids: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    disk: int | None = None
    registry: str | None = None
    template_id: str | None = None
    #: Whether the account's SSH keys are put into the container, for images that serve SSH.
    start_ssh: bool = False


#: A hundred years.
_MOST_SECONDS: Final = 3_155_760_000


class RunpodGpuUse(_Wire, frozen=True, kw_only=True):
    #: Percent.
    util: int | float | None = None


class RunpodRuntime(_Wire, frozen=True, kw_only=True):
    gpus: tuple[RunpodGpuUse, ...] | None = None


class RunpodUptime(_Wire, frozen=True, kw_only=True):
    #: Seconds since the container started.
    uptime: Annotated[int, msgspec.Meta(gt=0, le=_MOST_SECONDS)]


class RunpodPod(_Wire, frozen=True, kw_only=True):
    """A pod of the account, perhaps somebody else's: only its id must be readable, so that no pod hides all others."""

    id: str
    name: str | None = None
    status: str | None = None
    env: object = None
    cost: object = None
    created_at: object = None
    #: A `RunpodRuntime`, as a rule; None while it does not run.
    runtime: object = None

    @property
    def variables(self) -> Mapping[str, str]:
        """Its environment; empty where that cannot be read."""
        return _read(self.env, dict[str, str]) or {}

    @property
    def hourly_cost(self) -> Decimal | None:
        """US dollars an hour; 0 while it is not billed by the hour, None where that cannot be read."""
        cost = _read(self.cost, Decimal)
        return cost if cost is not None and cost.is_finite() and cost >= 0 else None

    @property
    def created(self) -> datetime | None:
        return _time(self.created_at)

    @property
    def uptime(self) -> int | None:
        """Seconds for which its container has run, where that can be read."""
        found = _read(self.runtime, RunpodUptime)
        return None if found is None else found.uptime

    @property
    def idle(self) -> bool:
        """Whether its GPUs do nothing, as far as that can be read."""
        runtime = _read(self.runtime, RunpodRuntime)
        gpus = (runtime.gpus if runtime is not None else None) or ()
        return bool(gpus) and all(each.util == 0 for each in gpus)


def _read(value: object, kind: type[_T]) -> _T | None:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, ValueError, OverflowError):
        return None


def _time(value: object) -> datetime | None:
    """A moment; None where that cannot be read, or of which no time zone is known."""
    found = _read(value, datetime)
    return found if found is not None and found.tzinfo is not None else None


class RunpodPods(_Wire, frozen=True, kw_only=True):
    pods: tuple[RunpodPod, ...]


class RunpodPrice(_Wire, frozen=True, kw_only=True):
    """US dollars an hour for a single GPU."""

    secure: Decimal
    community: Decimal


class RunpodMaxCount(_Wire, frozen=True, kw_only=True):
    secure: int
    community: int


class RunpodPlace(_Wire, frozen=True, kw_only=True):
    """A data center, with its stock of one GPU type."""

    id: str
    availability: str = NONE


class RunpodGpuType(_Wire, frozen=True, kw_only=True):
    id: str
    name: str
    manufacturer: str
    #: GB of memory.
    memory: int
    secure: bool
    community: bool = False
    price: RunpodPrice
    max_count: RunpodMaxCount
    #: None where the catalogue does not tell.
    availability: str | None = None
    data_centers: tuple[RunpodPlace, ...] = ()


class RunpodGpuTypes(msgspec.Struct, frozen=True, kw_only=True):
    """The catalogue. A GPU type that cannot be read hides none of the others."""

    listed: tuple[object, ...] = msgspec.field(name="gpus")

    @property
    def gpus(self) -> tuple[RunpodGpuType, ...]:
        found = (_read(each, RunpodGpuType) for each in self.listed)
        return tuple(each for each in found if each is not None)


class RunpodDataCenter(_Wire, frozen=True, kw_only=True):
    id: str


class RunpodDataCenters(msgspec.Struct, frozen=True, kw_only=True):
    data_centers: tuple[RunpodDataCenter, ...] = msgspec.field(name="dataCenters")


class RunpodRegistry(_Wire, frozen=True, kw_only=True):
    id: str
    name: str


class RunpodRegistries(_Wire, frozen=True, kw_only=True):
    registries: tuple[RunpodRegistry, ...]


class RunpodRegistryOrder(_Wire, frozen=True, kw_only=True):
    name: str
    username: str
    password: str


class RunpodLogEvent(_Wire, frozen=True, kw_only=True):
    line: str
    ts: object = None

    @property
    def at(self) -> datetime | None:
        """When it was written, where that can be read."""
        return _time(self.ts)


class RunpodProblem(_Wire, frozen=True, kw_only=True):
    """Body of an error."""

    title: str = ""
    detail: str = ""
    errors: tuple[str, ...] = ()
