"""What Compute Engine and Cloud Billing answer, as far as Forebay reads it. Unknown fields are ignored."""

from collections.abc import Mapping
from datetime import datetime

import msgspec


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Google omits fields that are empty."""


class ErrorItem(_Wire, frozen=True, kw_only=True):
    #: Of an HTTP response.
    reason: str = ""
    #: Of an operation.
    code: str = ""
    message: str = ""


class ErrorDetail(_Wire, frozen=True, kw_only=True):
    #: Of an ErrorInfo, such as SERVICE_DISABLED; details of other kinds have none.
    reason: str = ""


class ErrorBody(_Wire, frozen=True, kw_only=True):
    code: int | str = 0
    message: str = ""
    #: Such as RESOURCE_EXHAUSTED, in responses of Cloud Billing.
    status: str = ""
    errors: tuple[ErrorItem, ...] = ()
    details: tuple[ErrorDetail, ...] = ()


class ErrorAnswer(_Wire, frozen=True, kw_only=True):
    """The body of a response with an error status."""

    error: ErrorBody = ErrorBody()


class OperationErrors(_Wire, frozen=True, kw_only=True):
    errors: tuple[ErrorItem, ...] = ()


class Operation(_Wire, frozen=True, kw_only=True):
    name: str
    #: PENDING, RUNNING or DONE.
    status: str
    error: OperationErrors | None = None
    http_error_status_code: int | None = None
    http_error_message: str = ""


class Warned(_Wire, frozen=True, kw_only=True):
    """Why a list may be incomplete."""

    code: str = ""
    message: str = ""


class AttachedAccelerator(_Wire, frozen=True, kw_only=True):
    accelerator_type: str = ""
    accelerator_count: int = 0


class InstanceScheduling(_Wire, frozen=True, kw_only=True):
    #: STANDARD or SPOT.
    provisioning_model: str = ""


class ActualScheduling(_Wire, frozen=True, kw_only=True):
    #: When Google ends the instance, by its maxRunDuration.
    termination_timestamp: datetime | None = None


class ActualStatus(_Wire, frozen=True, kw_only=True):
    """What is so of an instance, beside what was asked for."""

    scheduling: ActualScheduling = ActualScheduling()


class ComputeInstance(_Wire, frozen=True, kw_only=True):
    name: str
    zone: str
    status: str
    status_message: str = ""
    labels: Mapping[str, str] = {}
    creation_timestamp: datetime | None = None
    machine_type: str = ""
    #: GPUs that are not part of the machine type; listings may also repeat those that are.
    guest_accelerators: tuple[AttachedAccelerator, ...] = ()
    scheduling: InstanceScheduling = InstanceScheduling()
    resource_status: ActualStatus = ActualStatus()


class ComputeDisk(_Wire, frozen=True, kw_only=True):
    name: str
    zone: str
    labels: Mapping[str, str] = {}
    #: URLs of the instances that it is attached to.
    users: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    last_detach_timestamp: datetime | None = None


class TypeAccelerator(_Wire, frozen=True, kw_only=True):
    guest_accelerator_type: str = ""
    guest_accelerator_count: int = 0


class ComputeMachineType(_Wire, frozen=True, kw_only=True):
    name: str
    zone: str
    guest_cpus: int
    memory_mb: int
    architecture: str = "X86_64"
    accelerators: tuple[TypeAccelerator, ...] = ()
    deprecated: Mapping[str, str] | None = None


class ComputeAcceleratorType(_Wire, frozen=True, kw_only=True):
    name: str
    zone: str
    deprecated: Mapping[str, str] | None = None


class ScopedList(_Wire, frozen=True, kw_only=True):
    """What one zone or region has; each list fills one of the fields."""

    instances: tuple[ComputeInstance, ...] = ()
    disks: tuple[ComputeDisk, ...] = ()
    machine_types: tuple[ComputeMachineType, ...] = ()
    accelerator_types: tuple[ComputeAcceleratorType, ...] = ()
    warning: Warned | None = None


class AggregatedPage(_Wire, frozen=True, kw_only=True):
    """A page of an aggregatedList: by scope, such as `zones/us-central1-a`."""

    items: Mapping[str, ScopedList] = {}
    next_page_token: str = ""
    unreachables: tuple[str, ...] = ()
    warning: Warned | None = None


class UnitPrice(_Wire, frozen=True, kw_only=True):
    currency_code: str = "USD"
    units: str = "0"
    nanos: int = 0


class TierRate(_Wire, frozen=True, kw_only=True):
    unit_price: UnitPrice = UnitPrice()


class PricingExpression(_Wire, frozen=True, kw_only=True):
    #: `h` for cores and GPUs, `GiBy.h` for memory.
    usage_unit: str = ""
    tiered_rates: tuple[TierRate, ...] = ()


class PricingInfo(_Wire, frozen=True, kw_only=True):
    pricing_expression: PricingExpression = PricingExpression()


class SkuCategory(_Wire, frozen=True, kw_only=True):
    resource_family: str = ""
    resource_group: str = ""
    usage_type: str = ""


class BilledSku(_Wire, frozen=True, kw_only=True):
    """One price of the catalog: a core, a GiB of memory or a GPU, in some regions, for an hour."""

    description: str = ""
    category: SkuCategory = SkuCategory()
    service_regions: tuple[str, ...] = ()
    pricing_info: tuple[PricingInfo, ...] = ()


class SkuPage(_Wire, frozen=True, kw_only=True):
    skus: tuple[BilledSku, ...] = ()
    next_page_token: str = ""


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A token of the metadata server."""

    access_token: str
    expires_in: int

    def __repr__(self) -> str:
        return "TokenAnswer(***)"


def last_part(url: str) -> str:
    """The name at the end of a resource's URL."""
    return url.rpartition("/")[2]
