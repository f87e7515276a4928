"""The decoders of ResourceSlices and DeviceClasses."""

import json
from datetime import UTC, datetime

from forebay.kube.decoders import decoder_for
from forebay.kube.devices import DEVICE_CLASSES, RESOURCE_SLICES
from forebay.model.devices import Device

META = {"name": "x", "uid": "u", "resourceVersion": "3", "creationTimestamp": "2030-01-01T00:00:00Z"}


def read(resource, spec):
    return decoder_for(resource).object(json.dumps({"metadata": META, "spec": spec}).encode())


def test_a_slice_with_everything():
    found = read(
        RESOURCE_SLICES,
        {
            "driver": "gpu.example.com",
            "pool": {"name": "n1", "generation": 4, "resourceSliceCount": 1},
            "nodeName": "n1",
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {
                        "type": {"string": "gpu"},
                        "index": {"int": 0},
                        "healthy": {"bool": False},
                        "other.example.com/driver": {"version": "1.2.3"},
                    },
                    "capacity": {"memory": {"value": "80Gi"}},
                },
                {"name": "gpu-1", "taints": [{"key": "broken", "effect": "NoSchedule"}]},
                {"name": "gpu-2", "taints": [{"key": "watched", "effect": "None"}]},
            ],
        },
    )
    assert (found.key, found.driver, found.pool, found.generation, found.node) == (
        ("", "x"),
        "gpu.example.com",
        "n1",
        4,
        "n1",
    )
    attributes = {
        ("gpu.example.com", "type"): "gpu",
        ("gpu.example.com", "index"): 0,
        ("gpu.example.com", "healthy"): False,
        ("other.example.com", "driver"): "1.2.3",
    }
    assert found.devices == (Device("gpu-0", attributes), Device("gpu-1", usable=False), Device("gpu-2"))


def test_a_slice_of_no_node_and_without_devices():
    found = read(RESOURCE_SLICES, {"driver": "d", "pool": {"name": "net"}, "allNodes": True})
    assert (found.node, found.devices) == (None, ())


def test_a_class_with_everything_and_one_with_nothing():
    expression = 'device.driver == "gpu.example.com"'
    found = read(
        DEVICE_CLASSES, {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": "example.com/gpu"}
    )
    assert found.created == datetime(2030, 1, 1, tzinfo=UTC)
    assert (found.selectors, found.extended_resource) == ((expression,), "example.com/gpu")
    assert read(DEVICE_CLASSES, {}).extended_resource is None
