"""The law of input for where capacity comes from: no class or NodeProvisioner that a real API server admits breaks a
tick, with the offers and groups that it asks for and a pod that waits for them.
"""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.parts import NodeClassRef
from forebay.kube.decoders import UndecodableObject, decoder_for
from forebay.kube.own_kinds import GPU_NODE_CLASSES, NODE_PROVISIONERS
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Check, Delivery, Found, ListedGroup, Listing, Offer, Source, SourceKey
from forebay.reconcile.group_growth import provisioner_source
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import tick
from tests.cluster.test_admitted import DOLLARS, KEYS, QUANTITIES, SELECTORS, SPANS, TEXTS, admitted, paged
from tests.unit.demand.builders import NOW, pod

OWN = "forebay-system"
A100 = Offer(
    provider="simulated",
    instance_type="a100",
    gpu_count=8,
    gpu_type="A100",
    price=UsdPerHour("2"),
    region="us",
    allocatable=Resources({"cpu": 64_000, "memory": 2**38, "nvidia.com/gpu": 8, "pods": 110}),
)
LARGE = st.sampled_from([1, 2**31 - 1, 2**63 - 1])
NAMES = st.sampled_from(["simulated", "webhook", "none-such"])


def some(always, **fields):
    """Objects with these fields and one or two more: with all of them, the server refuses nearly every one."""
    chosen = st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({**always, **{name: fields[name] for name in names}}))


TAINTS = st.fixed_dictionaries(
    {"key": KEYS, "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])}, optional={"value": TEXTS}
)
MACHINES = some(
    {
        "name": st.sampled_from(["rack-1", "a.b", "x" * 253]),
        "gpuCount": st.integers(1, 2**31 - 1),
        "scaleUpEndpoint": st.just("https://on.example"),
        "scaleDownEndpoint": st.just("https://off.example"),
    },
    cpu=QUANTITIES,
    memory=QUANTITIES,
    hourlyPrice=DOLLARS,
    timeout=SPANS,
    bootTimeout=SPANS,
    gpuResourceName=st.sampled_from(["nvidia.com/gpu", "cpu", "x"]),
    labels=st.dictionaries(KEYS, TEXTS, max_size=2),
    taints=st.lists(TAINTS, max_size=2),
)
ENTRIES = some(
    {"name": NAMES},
    priority=st.integers(0, 1001),
    enabled=st.booleans(),
    regions=st.lists(TEXTS, max_size=2),
    machines=st.lists(MACHINES, max_size=2),
)
LIMITS = some({}, maxNodes=LARGE, maxHourlyCost=DOLLARS, resources=st.dictionaries(KEYS, QUANTITIES, max_size=2))
REQUIREMENTS = some(
    {},
    gpuTypes=st.lists(TEXTS | st.just("A100"), max_size=2),
    regions=st.lists(TEXTS | st.just("us"), max_size=2),
    spotAllowed=st.booleans(),
    minVCPU=LARGE,
    minMemoryGiB=LARGE,
    minGPUMemoryGiB=LARGE,
)
CLASSES = some(
    {
        "providers": st.lists(ENTRIES, min_size=1, max_size=2, unique_by=lambda each: each["name"]),
        "allowedNamespaces": SELECTORS,
    },
    limits=LIMITS,
    instanceRequirements=REQUIREMENTS,
    allowedPodNamespaces=SELECTORS,
    tags=st.dictionaries(TEXTS, TEXTS, max_size=2),
)


def without_nulls(value):
    """As a client sends it: what is not set is left out."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def stored(rig, resource, spec):
    """The object as an informer would hold it; None where the server refuses it."""
    body = {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": resource.kind,
        "metadata": {"name": "odd"},
        "spec": without_nulls(spec),
    }
    found = admitted(rig, f"/apis/{resource.group}/{resource.version}/{resource.plural}", body)
    event(f"admitted: {found is not None}")
    if found is None:
        return None
    read = paged(decoder_for(resource), found)
    assert not isinstance(read, UndecodableObject), read.error
    return read


def source(key, **fields):
    return Source(key=key, capabilities=Capabilities(deliveries=(Delivery.NODE,)), offers=(A100,), **fields)


def broken(**fields):
    """Objects that a tick cannot handle where a pod has waited for a GPU for a while."""
    return tick(Snapshot(now=NOW, pending=(pod("waits"),), namespaces={OWN: {}, "default": {}}, **fields)).errors


@pytest.mark.law
@given(CLASSES)
def test_no_class_that_is_admitted_breaks_a_tick(own_rig, spec):
    node_class = stored(own_rig, GPU_NODE_CLASSES, spec)
    if node_class is None:
        return
    pools = tuple(
        GPUNodePool(
            metadata=ObjectMeta(name="pool", namespace=namespace, uid=f"uid-{namespace}", resource_version="1"),
            spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="odd")),
        )
        for namespace in (OWN, "default")
    )
    keys = [SourceKey("odd", each.name) for each in node_class.spec.providers]
    sources = {key: source(key, check=Check(ok=True, sentence="It answers.")) for key in keys}
    assert broken(classes=(node_class,), pools=pools, sources=sources) == {}
    assert broken(classes=(node_class,), pools=pools) == {}, "before its providers were asked"


PROVISIONERS = some(
    {"provider": st.fixed_dictionaries({"name": NAMES}, optional={"instanceType": TEXTS | st.just("a100")})},
    existingInstanceGroupNames=st.lists(TEXTS | st.just("group"), min_size=1, max_size=2),
    nodeClassRef=st.just({"name": "cloud"}),
    labels=st.dictionaries(KEYS, TEXTS, max_size=2),
    taints=st.lists(TAINTS, max_size=2),
    minGPUUtilizationPercent=st.integers(0, 101),
    maxGPUUtilizationPercent=st.integers(0, 101),
    minUnutilizedGPUNodes=st.sampled_from([0, 1, 3]),
    scaleDownDelay=SPANS,
    maxNodes=LARGE,
    defragment=st.booleans(),
)
CLOUD = {"providers": [{"name": "simulated"}], "allowedNamespaces": {}}


@pytest.mark.law
@given(PROVISIONERS)
def test_no_node_provisioner_that_is_admitted_breaks_a_tick(own_rig, spec):
    spec = {"minUnutilizedGPUNodes": 1, "existingInstanceGroupNames": ["group"], **spec}
    if "nodeClassRef" in spec:
        del spec["existingInstanceGroupNames"]
    provisioner = stored(own_rig, NODE_PROVISIONERS, spec)
    if provisioner is None:
        return
    cloud = stored(own_rig, GPU_NODE_CLASSES, CLOUD)
    cloud = replace(cloud, metadata=replace(cloud.metadata, name="cloud"))
    groups = tuple(
        ListedGroup(name=name, target=0, offer=A100) for name in provisioner.spec.existing_instance_group_names
    )
    listing = Listing(asked=NOW, found=Found(instances=(), groups=groups))
    key = provisioner_source(provisioner)
    assert broken(provisioners=(provisioner,), classes=(cloud,), sources={key: source(key, listing=listing)}) == {}
    assert broken(provisioners=(provisioner,)) == {}, "before its provider was asked"
