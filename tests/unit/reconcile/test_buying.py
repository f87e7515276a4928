"""From what is left over to records: one for each purchase, and none is forgotten that still stands for something."""

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


def recorded(request, state, **metadata):
    return GPUInstance(
        metadata=ObjectMeta(name=request.name, uid="uid-earlier", creation_timestamp=NOW, **metadata),
        spec=request.spec,
        status=GPUInstanceStatus(state=state),
    )


def requested(snapshot=EMPTY):
    return buy(snapshot, [TRAIN]).decisions


@pytest.mark.parametrize("state", sorted(set(InstanceState) - {InstanceState.GONE}))
def test_a_record_that_is_not_gone_is_never_forgotten_for_another_of_the_same_pods(state):
    (first,) = requested()
    # As after `kubectl delete gi`, or where a provider does not end what has failed for longer than it is left alone.
    going = recorded(first, state, deletion_timestamp=NOW)

    (again,) = requested(replace(EMPTY, records=(going,)))

    assert isinstance(again, CreateInstance)
    assert again.name != first.name
    assert again.spec.node.name == again.name
    assert requested(replace(EMPTY, records=(going,))) == (again,), "whoever plans the same"


def test_the_record_of_an_earlier_time_makes_room():
    (first,) = requested()
    forget, again = requested(replace(EMPTY, records=(recorded(first, InstanceState.GONE),)))

    assert isinstance(forget, DeleteRecord)
    assert again.name == first.name
