"""GPUs that a node offers by ResourceSlices count as those of a device plugin do."""

import pytest
from msgspec.structs import replace

from forebay.demand.devices import devices_by_node, selects, with_devices
from forebay.demand.initialization import is_initialized
from forebay.model.devices import Device, DeviceClass, ResourceSlice
from tests.unit.demand.builders import GPU, NOW, ago, node, record

DRIVER = "gpu.nvidia.com"


def device(name="gpu-0", kind="gpu", **fields):
    return Device(name, {(DRIVER, "type"): kind, (DRIVER, "index"): 3, (DRIVER, "healthy"): True}, **fields)


def slices_of(*devices, name="s", node="n1", driver=DRIVER, pool="n1", generation=1):
    return ResourceSlice(
        name=name,
        uid=f"uid-{name}",
        resource_version=1,
        driver=driver,
        pool=pool,
        generation=generation,
        node=node,
        devices=devices,
    )


def device_class(name="gpu.nvidia.com", *selectors, resource=GPU, created=NOW):
    return DeviceClass(
        name=name,
        uid=f"uid-{name}",
        resource_version=1,
        created=created,
        selectors=selectors or (f'device.driver == "{DRIVER}"',),
        extended_resource=resource,
    )


def test_devices_of_the_class_that_names_the_resource_are_counted_on_their_node():
    slices = [
        slices_of(device("a"), device("b")),
        slices_of(device("c"), name="t", node="n2", pool="n2"),
        slices_of(device("d"), name="u", node=None, pool="network"),
    ]
    assert devices_by_node(slices, [device_class()]) == {"n1": {GPU: 2}, "n2": {GPU: 1}}
    assert devices_by_node(slices, [device_class(resource=None)]) == {}
    assert devices_by_node(slices, []) == {}


def test_of_two_classes_that_name_the_resource_the_newest_counts():
    old = device_class("old", 'device.driver == "other"', created=ago(days=1))
    assert devices_by_node([slices_of(device())], [device_class(), old]) == {"n1": {GPU: 1}}
    newer = replace(old, created=NOW.replace(year=2027))
    assert devices_by_node([slices_of(device())], [device_class(), newer]) == {}


def test_slices_of_an_older_generation_are_being_replaced_and_do_not_count():
    slices = [slices_of(device("a")), slices_of(device("a"), device("b"), name="t", generation=2)]
    assert devices_by_node(slices, [device_class()]) == {"n1": {GPU: 2}}


def test_a_tainted_device_does_not_count():
    assert devices_by_node([slices_of(device("a"), device("b", usable=False))], [device_class()]) == {"n1": {GPU: 1}}


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        ("device.driver == 'other.example.com'", False),
        (f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'", True),
        (f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'", False),
        (f'(device.attributes["{DRIVER}"].index == 3)', True),
        (f'device.attributes["{DRIVER}"].index == 4', False),
        (f'device.attributes["{DRIVER}"].healthy == false', False),
        (f'device.attributes["{DRIVER}"].missing == "x"', False),
        # What cannot be read counts as true.
        (f"device.driver == '{DRIVER}' && device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('10Gi'))", True),
        (f"device.driver == 'other' || device.driver == '{DRIVER}'", True),
        ("!(", True),
    ],
)
def test_expressions_of_a_class(expression, selected):
    assert selects(device_class("c", expression), DRIVER, device()) is selected


def test_a_node_with_its_gpus_in_a_slice_is_initialized():
    bare = node(gpus=0)
    assert not is_initialized(record(gpus=8), bare)
    served = with_devices(bare, {GPU: 8})
    assert is_initialized(record(gpus=8), served)
    assert (served.allocatable.amount(GPU), served.capacity.amount(GPU)) == (8, 8)


def test_what_a_device_plugin_has_registered_is_not_counted_twice():
    assert with_devices(node(gpus=4), {GPU: 8}).allocatable.amount(GPU) == 4
