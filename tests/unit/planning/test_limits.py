import msgspec
import pytest

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.instance_order import OfferRecord
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Delivery
from forebay.planning.limits import beyond_limits, caps, hourly_price
from forebay.planning.plan import PoolKey
from tests.unit.planning.worlds import GPU


def pool(name="pool", **spec):
    fields = {"metadata": {"name": name, "namespace": "team"}, "spec": {"nodeClassRef": {"name": "gpu"}, **spec}}
    return msgspec.convert(fields, GPUNodePool)


def record(name, pool="pool", state="Ready", *, price="2", billed=None, gpus=1, born=None):
    spec = {
        "provider": "simulated",
        "delivers": "Node",
        "poolRef": {"namespace": "team", "name": pool},
        "nodeClassName": "gpu",
        "hourlyPrice": price,
        "node": {"name": name, "allocatable": {GPU: gpus}},
    }
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": born and f"2026-01-01T00:{born:02}:00Z"}
    fields = {"metadata": metadata, "spec": spec, "status": {"state": state, "hourlyPrice": billed}}
    return msgspec.convert(fields, GPUInstance)


def test_a_cap_is_the_limit_less_what_runs_and_is_launching():
    limits = {"maxNodes": 3, "maxHourlyCost": "5", "resources": {GPU: 2}}
    class_spec = {"providers": [{"name": "simulated"}], "limits": {"maxNodes": 4}}
    node_class = msgspec.convert({"metadata": {"name": "gpu"}, "spec": class_spec}, GPUNodeClass)
    records = [record("a"), record("b", state="Launching"), record("c", state="Gone"), record("d", pool="other")]

    found = caps([pool(limits=limits), pool("other")], [node_class], records)

    assert [(cap.name, cap.nodes, cap.hourly_cost, cap.resources) for cap in found] == [
        ("limits.maxNodes of GPUNodePool team/pool", 1, None, None),
        ("limits.maxHourlyCost of GPUNodePool team/pool", None, UsdPerHour(1), None),
        ("limits.resources.nvidia.com/gpu of GPUNodePool team/pool", None, None, Resources({GPU: -1})),
        ("limits.maxNodes of GPUNodeClass gpu", 1, None, None),
    ]
    assert found[-1].pools == {PoolKey("team", "pool"), PoolKey("team", "other")}


@pytest.mark.parametrize(("offer", "left"), [({"gpuResource": GPU, "gpuCount": 2}, 3), (None, 5)])
def test_a_container_counts_by_the_gpus_of_its_offer(offer, left):
    given = record("job")
    spec = msgspec.structs.replace(
        given.spec,
        delivers=Delivery.CONTAINER,
        node=None,
        offer=None if offer is None else msgspec.convert({"instanceType": "A40", **offer}, type=OfferRecord),
    )

    (found,) = caps([pool(limits={"resources": {GPU: 5}})], [], [msgspec.structs.replace(given, spec=spec)])

    assert found.resources == Resources({GPU: left})


@pytest.mark.parametrize(
    ("price", "billed", "expected"), [("2", None, "2"), ("2", "1.5", "1.5"), (None, "3", "3"), (None, None, "0")]
)
def test_a_machine_costs_what_is_billed_else_what_was_offered(price, billed, expected):
    made = record("a", price=price, billed=billed)

    assert hourly_price(made).exact() == expected
    unbilled = msgspec.structs.replace(made, status=None)
    assert hourly_price(unbilled).exact() == (price or "0")


#: A machine that stays, and four that wait for their launch, the oldest first.
STAYS = record("stays", born=50, price="4", gpus=4)
WAITING = [
    record(name, state="Requested", born=number, price=price, gpus=gpus)
    for number, (name, price, gpus) in enumerate([("first", "1", 1), ("large", "3", 3), ("small", "1", 1)], 1)
]


@pytest.mark.parametrize(
    ("limits", "gone"),
    [
        ({"maxNodes": 4}, {}),
        ({"maxNodes": 3}, {"small": "maxNodes"}),
        ({"maxNodes": 2}, {"large": "maxNodes", "small": "maxNodes"}),
        ({"maxNodes": 1}, {"first": "maxNodes", "large": "maxNodes", "small": "maxNodes"}),
        ({"maxHourlyCost": "9"}, {}),
        ({"maxHourlyCost": "8"}, {"small": "maxHourlyCost"}),
        # What is too much is left out, and what comes after it may fit.
        ({"maxHourlyCost": "6"}, {"large": "maxHourlyCost"}),
        ({"resources": {GPU: 9}}, {}),
        ({"resources": {GPU: 6}}, {"large": f"resources.{GPU}"}),
        ({"resources": {GPU: 5, "cpu": "1"}}, {"large": f"resources.{GPU}", "small": f"resources.{GPU}"}),
        ({"maxNodes": 3, "resources": {GPU: 6}}, {"large": f"resources.{GPU}"}),
        ({}, {}),
    ],
)
def test_of_what_waits_the_newest_goes_that_lowered_limits_leave_no_room_for(limits, gone):
    names = {each.uid for each in WAITING}
    others = [record("gone", state="Gone"), record("elsewhere", pool="other")]

    def found(pools, classes):
        made = beyond_limits(pools, classes, [*reversed(WAITING), *others, STAYS], names)
        return {each.metadata.name: why for each, why in made}

    of_pool = found([pool(limits=limits), pool("other")], [])
    assert of_pool == {name: f"limits.{limit} of GPUNodePool team/pool" for name, limit in gone.items()}
    spec = {"providers": [{"name": "simulated"}], "limits": limits}
    others = others[:1]
    of_class = found([pool()], [msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, GPUNodeClass)])
    assert of_class == {name: f"limits.{limit} of GPUNodeClass gpu" for name, limit in gone.items()}


def test_what_exceeds_the_limits_of_its_pool_takes_no_room_under_those_of_its_class():
    spec = {"providers": [{"name": "simulated"}], "limits": {"maxNodes": 2}}
    node_class = msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, GPUNodeClass)
    some = [record("a", state="Requested", born=1), record("b", state="Requested", born=2)]
    some.append(record("c", pool="other", state="Requested", born=3))

    made = beyond_limits([pool(limits={"maxNodes": 1}), pool("other")], [node_class], some, {each.uid for each in some})

    assert [each.metadata.name for each, _ in made] == ["b"]


def test_machines_that_are_needed_are_never_beyond_a_limit():
    tight = pool(limits={"maxHourlyCost": "3", "resources": {GPU: 1}})
    assert list(beyond_limits([tight], [], [STAYS], set())) == []
    assert list(beyond_limits([tight], [], [], {"uid-stays"})) == []
    assert len(list(beyond_limits([tight], [], [STAYS], {"uid-stays"}))) == 1
