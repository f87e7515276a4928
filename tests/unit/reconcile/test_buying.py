"""Purchases become GPUInstances, and no GPUInstance is deleted that is still needed."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.api.meta import ObjectMeta
from forebay.lifecycle.steps import DeleteRecord
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.reconcile.buying import buy
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, pod

RENTED = Source(
    key=SourceKey("", "simulated"),
    capabilities=Capabilities(delivers=Delivery.NODE),
    offers=(
        Offer(
            provider="simulated",
            instance_type="a100",
            gpu_count=1,
            price=UsdPerHour(1),
            allocatable=Resources({"cpu": 8000, "memory": 2**36, "nvidia.com/gpu": 1, "pods": 110}),
        ),
    ),
)
TRAIN = pod()
EMPTY = Snapshot(now=NOW, pending=(TRAIN,), sources={RENTED.key: RENTED})


def recorded(create, state, **metadata):
    return GPUInstance(
        metadata=ObjectMeta(name=create.name, uid="uid-earlier", creation_timestamp=NOW, **metadata),
        spec=create.spec,
        status=GPUInstanceStatus(state=state),
    )


def bought(snapshot=EMPTY):
    return buy(snapshot, [TRAIN]).decisions


@pytest.mark.parametrize("state", sorted(set(InstanceState) - {InstanceState.GONE}))
def test_a_gpuinstance_that_is_not_gone_is_never_deleted_for_another_one_for_the_same_pods(state):
    (first,) = bought()
    # As after `kubectl delete gi`, or where a failed instance takes longer to terminate than its cooldown lasts.
    leaving = recorded(first, state, deletion_timestamp=NOW)

    (again,) = bought(replace(EMPTY, records=(leaving,)))

    assert isinstance(again, CreateInstance)
    assert again.name != first.name
    assert again.spec.node.name == again.name
    assert bought(replace(EMPTY, records=(leaving,))) == (again,), "the same plan gives the same name"


def test_the_gpuinstance_of_the_previous_run_is_deleted_first():
    (first,) = bought()
    delete, again = bought(replace(EMPTY, records=(recorded(first, InstanceState.GONE),)))

    assert isinstance(delete, DeleteRecord)
    assert again.name == first.name
