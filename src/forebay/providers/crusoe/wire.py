"""What Crusoe's API answers, as far as Forebay reads it. Unknown fields are ignored."""

from datetime import datetime
from typing import Any

import msgspec

from forebay.providers.cloud_frame import stated_time


class _Wire(msgspec.Struct, frozen=True, kw_only=True):
    """Field names are the API's own."""


class VmType(_Wire, frozen=True, kw_only=True):
    product_name: str
    cpu_cores: int
    memory_gb: int
    disk_gb: int = 0
    num_gpu: int = 0
    gpu_type: str = ""


class VmTypes(_Wire, frozen=True, kw_only=True):
    items: tuple[VmType, ...]


class Capacity(_Wire, frozen=True, kw_only=True):
    location: str
    quantity: int
    type: str = ""


class Capacities(_Wire, frozen=True, kw_only=True):
    items: tuple[Capacity, ...]


class AttachedDisk(_Wire, frozen=True, kw_only=True):
    id: str
    attachment_type: str = ""


class Vm(_Wire, frozen=True, kw_only=True):
    id: str
    name: str
    state: str
    type: str = ""
    created_at: str | None = None
    disks: tuple[AttachedDisk, ...] = ()

    @property
    def created(self) -> datetime | None:
        return stated_time(self.created_at)


class VmPage(_Wire, frozen=True, kw_only=True):
    items: tuple[Vm, ...]
    next_page_token: str = ""


class VmAttachment(_Wire, frozen=True, kw_only=True):
    vm_id: str


class StoredDisk(_Wire, frozen=True, kw_only=True):
    id: str
    name: str
    attached_to: tuple[VmAttachment, ...] = ()
    created_at: str | None = None

    @property
    def created(self) -> datetime | None:
        return stated_time(self.created_at)


class StoredDisks(_Wire, frozen=True, kw_only=True):
    items: tuple[StoredDisk, ...]


class VmOperation(_Wire, frozen=True, kw_only=True):
    operation_id: str
    #: IN_PROGRESS, SUCCEEDED or FAILED.
    state: str
    #: Objects whose fields depend on the operation.
    metadata: Any = None
    result: Any = None
    #: Empty until it is done.
    completed_at: str = ""

    @property
    def completed(self) -> datetime | None:
        """When it was done; None where Crusoe does not say, or not in a form that can be read."""
        return stated_time(self.completed_at)

    @property
    def vm_id(self) -> str:
        found = self.metadata.get("id") if isinstance(self.metadata, dict) else None
        return found if isinstance(found, str) else ""

    @property
    def failure(self) -> tuple[str, str]:
        """Code and message of a failed operation."""
        result = self.result if isinstance(self.result, dict) else {}
        return str(result.get("code", "")), str(result.get("message", ""))


class Accepted(_Wire, frozen=True, kw_only=True):
    """The answer to a call that acts."""

    operation: VmOperation


class CrusoeError(_Wire, frozen=True, kw_only=True):
    code: str = ""
    message: str = ""
