"""GPUs of nodes by dynamic resource allocation: devices of ResourceSlices, counted as the resource that pods request.

A DeviceClass may name an extended resource. A pod that requests this resource is then served from slices, and the Node
object shows none of it. Everything else in Forebay sees such a node as if a device plugin had registered its GPUs.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from forebay.model.devices import AttributeValue, Device, DeviceClass, ResourceSlice
from forebay.model.nodes import Node
from forebay.model.quantities import Resources

_TEXT: Final = r"""(?:"(?P<double>[^"\\]*)"|'(?P<single>[^'\\]*)')"""
_DRIVER: Final = re.compile(rf"device\.driver\s*==\s*{_TEXT}")
_ATTRIBUTE: Final = re.compile(
    r"""device\.attributes\[["'](?P<domain>[^"'\\]+)["']\]\.(?P<name>\w+)\s*==\s*"""
    rf"""(?:{_TEXT}|(?P<bare>true|false|-?\d+))"""
)

#: Devices of each extended resource, by node.
DevicesByNode = Mapping[str, Mapping[str, int]]


def devices_by_node(slices: Iterable[ResourceSlice], classes: Iterable[DeviceClass]) -> DevicesByNode:
    """Usable devices on each node, by the extended resource whose class selects them."""
    named = _by_resource(classes)
    slices = tuple(each for each in slices if each.node is not None) if named else ()
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        pool = (each.driver, each.pool)
        newest[pool] = max(each.generation, newest.get(pool, each.generation))
    found: dict[str, Counter[str]] = {}
    for each in slices:
        if each.generation < newest[each.driver, each.pool] or each.node is None:
            continue
        for resource, device_class in named.items():
            matching = sum(device.usable and selects(device_class, each.driver, device) for device in each.devices)
            if matching:
                found.setdefault(each.node, Counter())[resource] += matching
    return found


def with_devices(node: Node, devices: Mapping[str, int]) -> Node:
    """The node with its devices as allocatable, where no device plugin has registered such: it is one or the other."""
    lacking = {name: count for name, count in devices.items() if not node.allocatable.amount(name)}
    if not lacking:
        return node
    return replace(
        node,
        allocatable=Resources({**node.allocatable, **lacking}),
        capacity=Resources({**node.capacity, **lacking}),
    )


def selects(device_class: DeviceClass, driver: str, device: Device) -> bool:
    """Whether the class selects the device, as far as its expressions are comparisons joined by `&&`.

    Any other part counts as true: a device too many costs a second look by the scheduler, one too few a machine.
    """
    return all(
        _holds(part.strip().strip("()"), driver, device)
        for expression in device_class.selectors
        for part in ([expression] if "||" in expression else expression.split("&&"))
    )


def _holds(comparison: str, driver: str, device: Device) -> bool:
    if found := _DRIVER.fullmatch(comparison):
        return driver == (found["double"] or found["single"] or "")
    if found := _ATTRIBUTE.fullmatch(comparison):
        wanted = found["double"] if found["double"] is not None else found["single"]
        value: AttributeValue = wanted if wanted is not None else _bare(found["bare"])
        actual = device.attributes.get((found["domain"], found["name"]))
        return actual == value and type(actual) is type(value)
    return True


def _bare(text: str) -> AttributeValue:
    return text == "true" if text in ("true", "false") else int(text)


def _by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """The class of each extended resource. Where several name the same one, the newest counts, as in Kubernetes."""
    found: dict[str, DeviceClass] = {}
    for each in sorted(classes, key=lambda each: each.name, reverse=True):
        resource = each.extended_resource
        if resource is not None and (resource not in found or each.created >= found[resource].created):
            found[resource] = each
    return found
