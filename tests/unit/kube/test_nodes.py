"""The decoder of Nodes."""

import json
from datetime import UTC, datetime

import pytest

from forebay.kube.decoders import decoder_for
from forebay.kube.nodes import NODES
from forebay.model.requirements import Taint


def read(decoder=None, **parts):
    metadata = {
        "name": "n1",
        "uid": "u",
        "resourceVersion": "3",
        "creationTimestamp": "2030-01-01T00:00:00Z",
        **parts.pop("metadata", {}),
    }
    return (decoder or decoder_for(NODES)).object(json.dumps({"metadata": metadata, **parts}).encode())


def test_a_node_with_everything():
    node = read(
        metadata={
            "labels": {"zone": "a"},
            "annotations": {"forebay.dev/x": "y", "node.alpha.kubernetes.io/ttl": "0"},
            "finalizers": ["f"],
        },
        spec={
            "providerID": "aws://i-1",
            "unschedulable": True,
            "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "2030-01-01T00:00:00Z"}],
        },
        status={
            "capacity": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4", "pods": "110"},
            "allocatable": {"cpu": "7910m", "memory": "30Gi", "nvidia.com/gpu": "4", "pods": "110"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:01:00Z"},
            ],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
        },
    )
    assert node.key == ("", "n1")
    assert node.labels == {"zone": "a"}
    assert node.annotations == {"forebay.dev/x": "y"}
    assert node.taints == (Taint("gpu", "yes", "NoSchedule"),)
    assert node.unschedulable
    assert dict(node.allocatable) == {"cpu": 7910, "memory": 30 * 2**30, "nvidia.com/gpu": 4, "pods": 110}
    assert node.capacity["cpu"] == 8000
    assert node.ready
    assert node.ready_since == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    assert node.provider_id == "aws://i-1"
    assert node.addresses == (("InternalIP", "10.0.0.7"),)
    assert node.finalizers == ("f",)


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_does_not_say_ready_is_not(status):
    node = read(
        status={"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": "2030-01-01T00:01:00Z"}]}
    )
    assert not node.ready
    assert node.ready_since is None


def test_a_node_that_has_just_been_registered_has_nothing_yet():
    node = read()
    assert not node.ready
    assert dict(node.allocatable) == {}
    assert node.provider_id is None


def test_nodes_with_equal_resources_share_one_object():
    status = {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}
    decoder = decoder_for(NODES)
    one, two = read(decoder, status=status), read(decoder, metadata={"name": "n2"}, status=status)
    assert one.capacity is two.capacity


def test_a_broken_quantity_is_an_error():
    with pytest.raises(ValueError, match="eight"):
        read(status={"capacity": {"cpu": "eight"}})


def test_a_node_with_an_unreadable_quantity_is_there_without_that_resource():
    allocatable = {"cpu": "9" * 5000, "nvidia.com/gpu": "4"}
    body = {
        "metadata": {"name": "n1", "uid": "u", "resourceVersion": "3", "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {"unschedulable": True},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    page = {"metadata": {"resourceVersion": "9"}, "items": [body]}
    _, (found,) = decoder_for(NODES).page(json.dumps(page).encode())
    assert "more than 4000 digits" in found.error
    node = found.salvaged
    assert (node.name, node.ready, node.unschedulable) == ("n1", True, True)
    assert dict(node.allocatable) == {"nvidia.com/gpu": 4}


def test_of_a_node_that_cannot_be_read_otherwise_nothing_is_salvaged():
    body = {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "3"}, "spec": {"taints": 7}}
    page = {"metadata": {"resourceVersion": "9"}, "items": [body]}
    _, (found,) = decoder_for(NODES).page(json.dumps(page).encode())
    assert found.salvaged is None
