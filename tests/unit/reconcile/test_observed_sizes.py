"""Rented machines are planned with what a node of their type last had for pods."""

from datetime import timedelta

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.model.quantities import Resources
from forebay.model.sources import SourceKey
from forebay.planning.candidates import CandidateContext, candidates
from forebay.reconcile.observed_sizes import observed_sizes
from tests.unit.planning.test_candidates import NOW, node_class, offer, only, pool, source

K3S = {"k3sConfig": {"serverURL": "https://10.0.0.1:6443", "tokenSecretRef": {"name": "k3s", "key": "token"}}}


def seen(name, memory, *, of="gpu", hours=1, kind="l4"):
    return msgspec.convert(
        {
            "metadata": {"name": name, "creationTimestamp": NOW - timedelta(hours=hours)},
            "spec": {
                "provider": "simulated",
                "delivers": "Node",
                "nodeClassName": of,
                "offer": {"instanceType": kind},
            },
            "status": {"state": "Ready", "allocatable": {"cpu": "7500m", "memory": memory}},
        },
        GPUInstance,
    )


def test_the_youngest_node_of_the_type_counts():
    records = [seen("old", "20Gi", hours=5), seen("new", "25Gi", hours=1), seen("other", "1Gi", kind="h100")]
    found = observed_sizes(records, [node_class(**K3S)])
    assert found[SourceKey("gpu", "simulated"), "l4"] == Resources.parse({"cpu": "7500m", "memory": "25Gi"})


def test_a_younger_node_that_has_not_reported_yet_hides_nothing():
    booting = seen("new", "25Gi", hours=0)
    booting = msgspec.structs.replace(booting, status=msgspec.structs.replace(booting.status, allocatable={}))
    fresh = msgspec.structs.replace(booting, status=None)
    for records in ([seen("old", "20Gi"), booting, fresh], [fresh, booting, seen("old", "20Gi")]):
        found = observed_sizes(records, [node_class(**K3S)])
        assert found[SourceKey("gpu", "simulated"), "l4"].amount("memory") == 20 * 2**30
    assert observed_sizes([booting, fresh], [node_class(**K3S)]) == {}


def test_classes_share_what_they_saw_only_where_their_machines_join_alike():
    classes = [node_class("gpu", **K3S), node_class("same", **K3S), node_class("own")]
    found = observed_sizes([seen("a", "25Gi"), seen("b", "9Gi", of="own")], classes)
    by_class = {key.node_class: size.amount("memory") // 2**30 for (key, _), size in found.items()}
    assert by_class == {"gpu": 25, "same": 25, "own": 9}


def test_planning_uses_the_observed_size_and_the_offered_gpus():
    sizes = {(SourceKey("gpu", "simulated"), "l4"): Resources.parse({"cpu": "7500m", "memory": "25Gi"})}
    for observed, memory in (({}, 29), (sizes, 25), ({}, 29)):
        context = CandidateContext(now=NOW, observed=observed)
        found = only(candidates(source(offer()), [pool()], [node_class()], context))
        assert found.node.allocatable.amount("memory") == memory * 2**30
        assert found.node.allocatable.amount("nvidia.com/gpu") == 1
        assert found.node.allocatable.amount("pods") == 58
