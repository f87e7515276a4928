"""GPUs that nodes offer through dynamic resource allocation (DRA), instead of a device plugin."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

AttributeValue = str | int | bool


class Device(msgspec.Struct, frozen=True, gc=False):
    """One device of a ResourceSlice."""

    name: str
    #: By (domain, name): ("gpu.example.com", "type").
    attributes: Mapping[tuple[str, str], AttributeValue] = {}
    #: False for a device with a taint that keeps pods off it.
    usable: bool = True


class ResourceSlice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Devices that one driver offers on one node."""

    name: str
    uid: str
    resource_version: int
    driver: str
    #: All slices of a pool with the highest generation count; older ones are being replaced.
    pool: str
    generation: int = 0
    #: None: devices that are not on a certain node.
    node: str | None = None
    devices: tuple[Device, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return ("", self.name)


class DeviceClass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A kind of device, by CEL expressions that all have to hold for the device."""

    name: str
    uid: str
    resource_version: int
    created: datetime
    selectors: tuple[str, ...] = ()
    #: Resource by which containers may request its devices, such as `nvidia.com/gpu`.
    extended_resource: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return ("", self.name)


class ResourceClaim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Devices for pods that name the claim; allocated when the scheduler places the first of these pods."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    #: Name of the DeviceClass of each allocated device.
    allocated: tuple[str, ...] = ()
    #: Name and UID of the pods that may use the devices now, the first one first.
    reserved_for: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)
