import msgspec
import pytest

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.instance_order import OfferRecord
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Delivery
from forebay.planning.limits import caps
from forebay.planning.plan import PoolKey
from tests.unit.planning.worlds import GPU


def pool(name="pool", **spec):
    fields = {"metadata": {"name": name, "namespace": "team"}, "spec": {"nodeClassRef": {"name": "gpu"}, **spec}}
    return msgspec.convert(fields, GPUNodePool)


def record(name, pool="pool", state="Ready"):
    spec = {
        "provider": "simulated",
        "delivers": "Node",
        "poolRef": {"namespace": "team", "name": pool},
        "nodeClassName": "gpu",
        "hourlyPrice": "2",
        "node": {"name": name, "allocatable": {GPU: 1}},
    }
    fields = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec, "status": {"state": state}}
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
