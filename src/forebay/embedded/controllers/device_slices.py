"""Devices of ResourceSlices, which the scheduler counts as extended resources (kube-scheduler's DRAExtendedResource).

Allocation is not simulated: no ResourceClaim is written, and any device is as good as another.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from forebay.demand.devices import DevicesByNode, devices_by_node, with_devices
from forebay.embedded.api.kinds import DEVICE_CLASS_KIND, RESOURCE_SLICE_KIND, ApiKind
from forebay.embedded.api.store import Store
from forebay.kube.decoders import decoder_for
from forebay.kube.devices import DEVICE_CLASSES, RESOURCE_SLICES
from forebay.kube.resources import Resource, T
from forebay.model.nodes import Node

_NONE: DevicesByNode = {}


class DeviceSlices:
    """The devices on each node. Calls `changed` with the names of the nodes whose devices have changed."""

    def __init__(self, store: Store, changed: Callable[[Iterable[str]], None]) -> None:
        self._store = store
        self._changed = changed
        self._by_node = _NONE
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        kinds = (RESOURCE_SLICE_KIND, DEVICE_CLASS_KIND)
        self._unsubscribe = [self._store.subscribe(kind, lambda _: self._count()) for kind in kinds]
        self._count()

    def stop(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []

    def on(self, node: Node) -> Node:
        """The node with its devices as allocatable."""
        devices = self._by_node.get(node.name)
        return node if devices is None else with_devices(node, devices)

    def _count(self) -> None:
        slices = self._decoded(RESOURCE_SLICE_KIND, RESOURCE_SLICES)
        before, after = self._by_node, devices_by_node(slices, self._decoded(DEVICE_CLASS_KIND, DEVICE_CLASSES))
        self._by_node = after
        self._changed([name for name in {*before, *after} if before.get(name) != after.get(name)])

    def _decoded(self, kind: ApiKind, resource: Resource[T]) -> list[T]:
        decoder: Any = decoder_for(resource)
        return [decoder.object(msgspec.json.encode(each)) for each in self._store.list(kind)]
