"""Decoder of Nodes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Raw

from forebay.kube.decoders import ObjectDecoder
from forebay.kube.interning import Interned, interned_strings
from forebay.kube.pods import ANNOTATION_PREFIXES
from forebay.kube.resources import Resource
from forebay.model.nodes import Node
from forebay.model.quantities import InvalidQuantity, Quantity, Resources
from forebay.model.requirements import Taint

_ABSENT: Final = Raw()


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str
    uid: str
    resource_version: str
    creation_timestamp: datetime
    namespace: str = ""
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class _Taint(msgspec.Struct, gc=False):
    key: str
    value: str = ""
    effect: str = ""


class _Spec(msgspec.Struct, gc=False):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: tuple[_Taint, ...] | None = None
    unschedulable: bool = False


class _Condition(msgspec.Struct, gc=False, rename="camel"):
    type: str
    status: str
    last_transition_time: datetime | None = None


class _Address(msgspec.Struct, gc=False):
    type: str
    address: str


class _Status(msgspec.Struct, gc=False):
    capacity: Raw = _ABSENT
    allocatable: Raw = _ABSENT
    conditions: list[_Condition] | None = None
    addresses: list[_Address] | None = None


class _NodeOnWire(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_wire = msgspec.json.Decoder(_NodeOnWire)
_quantities = msgspec.json.Decoder(dict[str, str | int] | None)


class NodeDecoder(ObjectDecoder[_NodeOnWire, Node]):
    """Decodes nodes. Resource lists and strings that many nodes share are one object for all of them."""

    def __init__(self) -> None:
        super().__init__(_NodeOnWire, self.build, salvage=self._salvaged)
        self._strings = interned_strings(65_536)
        self._resources: Interned[bytes, Resources] = Interned(_make_resources, 16_384)

    def build(self, wire: _NodeOnWire) -> Node:
        """Raises `ValueError` for a node that does not decode."""
        meta, spec, status = wire.metadata, wire.spec, wire.status
        strings = self._strings
        ready = next((condition for condition in status.conditions or () if condition.type == "Ready"), None)
        return Node(
            name=strings[meta.name],
            uid=meta.uid,
            resource_version=int(meta.resource_version),
            created=meta.creation_timestamp,
            labels=self._interned(meta.labels or {}),
            annotations={
                key: value for key, value in (meta.annotations or {}).items() if key.startswith(ANNOTATION_PREFIXES)
            },
            taints=tuple(
                Taint(strings[item.key], strings[item.value], strings[item.effect]) for item in spec.taints or ()
            ),
            unschedulable=spec.unschedulable,
            capacity=self._resources[bytes(status.capacity)],
            allocatable=self._resources[bytes(status.allocatable)],
            ready=ready is not None and ready.status == "True",
            ready_since=ready.last_transition_time if ready is not None and ready.status == "True" else None,
            unready_since=ready.last_transition_time if ready is not None and ready.status != "True" else None,
            deleted=meta.deletion_timestamp,
            provider_id=spec.provider_id or None,
            addresses=tuple((strings[item.type], item.address) for item in status.addresses or ()),
            finalizers=meta.finalizers or (),
        )

    def _salvaged(self, body: dict[str, Any]) -> Node | None:
        """The node without quantities that cannot be read: its machine is there, but takes no pods by them."""
        status = dict(body.get("status") or {})
        for name in ("capacity", "allocatable"):
            written = status.get(name) or {}
            status[name] = {each: quantity for each, quantity in written.items() if _is_readable(quantity)}
        try:
            return self.build(_wire.decode(msgspec.json.encode({**body, "status": status})))
        except ValueError:
            return None

    def _interned(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        strings = self._strings
        return {strings[key]: strings[value] for key, value in labels.items()}


def _make_resources(text: bytes) -> Resources:
    return Resources.parse((_quantities.decode(text) if text else None) or {})


def _is_readable(quantity: Any) -> bool:
    try:
        Quantity.parse(quantity)
    except (InvalidQuantity, TypeError):
        return False
    return True


NODES: Final = Resource(
    group="",
    version="v1",
    plural="nodes",
    kind="Node",
    namespaced=False,
    type=Node,
    make_decoder=NodeDecoder,
)
