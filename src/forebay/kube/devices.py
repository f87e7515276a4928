"""Decoders of ResourceSlices, DeviceClasses and ResourceClaims (dynamic resource allocation)."""

from typing import Final

import msgspec

from forebay.kube.decoders import ObjectDecoder
from forebay.kube.resources import Resource
from forebay.kube.wire_metadata import WireMetadata
from forebay.model.devices import AttributeValue, Device, DeviceClass, ResourceClaim, ResourceSlice
from forebay.model.requirements import Effect

#: On claims that the scheduler makes for pods that request an extended resource: their requests say it already.
_EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
_REPELLING: Final = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)


class _Attribute(msgspec.Struct):
    string: str | None = None
    version: str | None = None
    integer: int | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")


class _DeviceTaint(msgspec.Struct):
    effect: str = ""


class _Device(msgspec.Struct):
    name: str
    attributes: dict[str, _Attribute] | None = None
    taints: tuple[_DeviceTaint, ...] | None = None


class _Pool(msgspec.Struct):
    name: str
    generation: int = 0


class _SliceSpec(msgspec.Struct, rename="camel"):
    driver: str
    pool: _Pool
    node_name: str | None = None
    devices: tuple[_Device, ...] | None = None


class _SliceOnWire(msgspec.Struct):
    metadata: WireMetadata
    spec: _SliceSpec


class _Cel(msgspec.Struct):
    expression: str = ""


class _Selector(msgspec.Struct):
    cel: _Cel | None = None


class _ClassSpec(msgspec.Struct, rename="camel"):
    selectors: tuple[_Selector, ...] | None = None
    extended_resource_name: str | None = None


class _ClassOnWire(msgspec.Struct):
    metadata: WireMetadata
    spec: _ClassSpec = msgspec.field(default_factory=_ClassSpec)


def _slice(wire: _SliceOnWire) -> ResourceSlice:
    meta, spec = wire.metadata, wire.spec
    return ResourceSlice(
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        node=spec.node_name or None,
        devices=tuple(_device(each, spec.driver) for each in spec.devices or ()),
    )


def _device(wire: _Device, driver: str) -> Device:
    attributes: dict[tuple[str, str], AttributeValue] = {}
    for key, value in (wire.attributes or {}).items():
        domain, _, name = key.rpartition("/")
        stated = (value.string, value.version, value.boolean, value.integer)
        attributes[domain or driver, name] = next((each for each in stated if each is not None), "")
    usable = not any(taint.effect in _REPELLING for taint in wire.taints or ())
    return Device(wire.name, attributes, usable)


def _class(wire: _ClassOnWire) -> DeviceClass:
    meta, spec = wire.metadata, wire.spec
    return DeviceClass(
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        created=meta.creation_timestamp,
        selectors=tuple(each.cel.expression for each in spec.selectors or () if each.cel is not None),
        extended_resource=spec.extended_resource_name,
    )


class _ClaimMeta(WireMetadata):
    annotations: dict[str, str] | None = None


class _Request(msgspec.Struct, rename="camel"):
    name: str = ""
    device_class_name: str = ""


class _ClaimRequest(msgspec.Struct, rename="camel"):
    name: str
    exactly: _Request | None = None
    first_available: tuple[_Request, ...] | None = None


class _ClaimDevices(msgspec.Struct):
    requests: tuple[_ClaimRequest, ...] | None = None


class _ClaimSpec(msgspec.Struct):
    devices: _ClaimDevices = msgspec.field(default_factory=_ClaimDevices)


class _Result(msgspec.Struct, rename="camel"):
    #: `NAME`, or `NAME/ALTERNATIVE` where the request has several.
    request: str
    admin_access: bool | None = None


class _Results(msgspec.Struct):
    results: tuple[_Result, ...] | None = None


class _Allocation(msgspec.Struct):
    devices: _Results = msgspec.field(default_factory=_Results)


class _Consumer(msgspec.Struct):
    resource: str = ""
    name: str = ""
    uid: str = ""


class _ClaimStatus(msgspec.Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] | None = None


class _ClaimOnWire(msgspec.Struct):
    metadata: _ClaimMeta
    spec: _ClaimSpec = msgspec.field(default_factory=_ClaimSpec)
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


def _claim(wire: _ClaimOnWire) -> ResourceClaim:
    meta, status = wire.metadata, wire.status
    classes: dict[str, str] = {}
    for request in wire.spec.devices.requests or ():
        if request.exactly is not None:
            classes[request.name] = request.exactly.device_class_name
        for alternative in request.first_available or ():
            classes[f"{request.name}/{alternative.name}"] = alternative.device_class_name
    results = (status.allocation.devices.results or ()) if status.allocation is not None else ()
    if _EXTENDED_RESOURCE_CLAIM in (meta.annotations or ()):
        results = ()
    return ResourceClaim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        # Administrative access takes no device away from anybody.
        allocated=tuple(classes.get(each.request, "") for each in results if not each.admin_access),
        reserved_for=tuple((each.name, each.uid) for each in status.reserved_for or () if each.resource == "pods"),
    )


class SliceDecoder(ObjectDecoder[_SliceOnWire, ResourceSlice]):
    def __init__(self) -> None:
        super().__init__(_SliceOnWire, _slice)


class ClassDecoder(ObjectDecoder[_ClassOnWire, DeviceClass]):
    def __init__(self) -> None:
        super().__init__(_ClassOnWire, _class)


class ClaimDecoder(ObjectDecoder[_ClaimOnWire, ResourceClaim]):
    def __init__(self) -> None:
        super().__init__(_ClaimOnWire, _claim)


RESOURCE_SLICES: Final = Resource(
    group="resource.k8s.io",
    version="v1",
    plural="resourceslices",
    kind="ResourceSlice",
    namespaced=False,
    type=ResourceSlice,
    make_decoder=SliceDecoder,
)
DEVICE_CLASSES: Final = Resource(
    group="resource.k8s.io",
    version="v1",
    plural="deviceclasses",
    kind="DeviceClass",
    namespaced=False,
    type=DeviceClass,
    make_decoder=ClassDecoder,
)
RESOURCE_CLAIMS: Final = Resource(
    group="resource.k8s.io",
    version="v1",
    plural="resourceclaims",
    kind="ResourceClaim",
    namespaced=True,
    type=ResourceClaim,
    make_decoder=ClaimDecoder,
)
