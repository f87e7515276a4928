"""A GPUNodeClass is kept for as long as it has machines: it says how they are terminated."""

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER
from forebay.reconcile.class_finalizers import class_finalizers, may_buy
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, record


def node_class(name="cloud", *, held=True, deleting=False, endpoints="Class"):
    finalizers = [CLASS_FINALIZER, "example.com/other"] if held else []
    deleted = NOW if deleting else None
    return GPUNodeClass(
        metadata=ObjectMeta(name=name, finalizers=finalizers, deletion_timestamp=deleted),
        spec=msgspec.convert({"providers": [{"name": "simulated", "endpointsFrom": endpoints}]}, GPUNodeClassSpec),
    )


def machine(state, name="cloud"):
    made = record(state=state)
    return replace(made, spec=replace(made.spec, node_class_name=name))


def decided(*classes, records=()):
    found = class_finalizers(Snapshot(now=NOW, classes=classes, records=tuple(records)))
    return [(each.node_class.metadata.name, each.present) for each in found]


def test_every_class_gets_the_finalizer_once():
    assert decided(node_class("a", held=False), node_class("b"), node_class("c", held=False)) == [
        ("a", True),
        ("c", True),
    ]


def test_a_class_that_is_being_deleted_gets_none():
    assert decided(node_class(held=False, deleting=True)) == []


@pytest.mark.parametrize("state", [None, InstanceState.READY, InstanceState.TERMINATING])
def test_a_deleted_class_stays_while_one_of_its_machines_may_exist(state):
    assert decided(node_class(deleting=True), records=[machine(state)]) == []


def test_a_deleted_class_goes_when_its_last_machine_is_gone():
    others = [machine(InstanceState.GONE), machine(InstanceState.READY, "other")]
    assert decided(node_class(deleting=True), records=others) == [("cloud", False)]


def test_nothing_is_launched_from_a_class_that_could_go_before_its_machines():
    assert may_buy(node_class())
    assert not may_buy(node_class(held=False))
    shown = node_class(held=False, endpoints="Environment")
    assert may_buy(shown), "the operator's variables say how its machines are powered off"
    assert decided(shown) == []
