from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.model.nodes import Node
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.model.sources import AMPLE, Capabilities, Delivery, Offer, Source, SourceKey
from forebay.model.workloads import PodShape
from forebay.planning.candidates import CandidateContext, CoolingDown, candidates
from forebay.planning.limits import caps
from forebay.planning.plan import PoolKey
from forebay.planning.planner import plan
from forebay.planning.pool_policies import NO_POOL
from tests.unit.planning.worlds import GPU, bought, pods, shape

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONTEXT = CandidateContext(now=NOW)


def of(kind, **fields):
    return msgspec.convert(fields, kind)


def node_class(name="gpu", **spec):
    providers = spec.pop("providers", [{"name": "simulated"}])
    everybody = {"allowedNamespaces": {}, "allowedPodNamespaces": {}}
    return of(GPUNodeClass, metadata={"name": name}, spec={"providers": providers, **everybody, **spec})


def pool(name="pool", node_class="gpu", **spec):
    meta = {"name": name, "namespace": "team"}
    return of(GPUNodePool, metadata=meta, spec={"nodeClassRef": {"name": node_class}, **spec})


def offer(name="l4", price="1", gpus=1, **fields):
    amounts = {"cpu": "7910m", "memory": "29Gi", "pods": 58, GPU: gpus}
    return Offer(
        provider=fields.pop("provider", "simulated"),
        instance_type=name,
        gpu_count=gpus,
        price=UsdPerHour(price),
        allocatable=Resources.parse(amounts),
        **fields,
    )


def source(*offers, node_class="gpu", provider="simulated", delivers=Delivery.NODE, **fields):
    key = SourceKey(node_class, provider)
    return {key: Source(key=key, capabilities=Capabilities(deliveries=(delivers,)), offers=offers, **fields)}


def only(offering):
    (found,) = offering.candidates
    return found


def refusal(offering):
    assert not offering.candidates
    (found,) = offering.excluded
    return found.reason, found.sentence


@pytest.mark.parametrize("going", ["class", "pool"])
def test_a_class_or_pool_that_is_being_deleted_launches_nothing(going):
    def deleted(found, yes):
        if not yes:
            return found
        metadata = msgspec.structs.replace(found.metadata, deletion_timestamp=NOW)
        return msgspec.structs.replace(found, metadata=metadata)

    found = candidates(
        source(offer()), [deleted(pool(), going == "pool")], [deleted(node_class(), going == "class")], CONTEXT
    )
    assert not found.candidates


def test_an_offer_becomes_the_node_it_would_be_in_the_pool():
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "driver", "effect": "NoSchedule"}],
        },
    }
    offered = offer(
        "g6.2xlarge", "0.98", gpu_type="NVIDIA L4", gpu_memory_gib=24, region="us-east-1", zone="us-east-1a", stock=3
    )

    found = only(candidates(source(offered, priority=5), [pool(template=template, weight=70)], [node_class()], CONTEXT))

    assert found.pool == PoolKey("team", "pool")
    assert found.source == SourceKey("gpu", "simulated")
    assert (found.weight, found.available, found.namespaces) == (70, 3, None)
    assert found.effective_price == UsdPerHour("1.47")
    assert found.node.taints == (Taint("gpu", "", "NoSchedule"),)
    assert found.node.labels == {
        "team": "a",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "g6.2xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1a",
        **{
            prefix + key: value
            for prefix in ("forebay.dev/", "tgp.io/")
            for key, value in {
                "provider": "simulated",
                "spot": "false",
                "provisioned": "true",
                "gpu-type": "L4",
                "region": "us-east-1",
                "nodepool": "pool",
                "nodeclass": "gpu",
            }.items()
        },
    }
    assert found.node.allocatable.amount("cpu") == 7910
    assert found.node.allocatable.amount("ephemeral-storage") == AMPLE


@pytest.mark.parametrize(
    ("offered", "spec", "reason", "sentence"),
    [
        (offer(spot=True), {}, Reason.NOT_ALLOWED, "does not allow spot: set instanceRequirements.spotAllowed"),
        (offer(region="eu"), {"regions": ["us"]}, Reason.NOT_ALLOWED, "allows simulated only in us"),
        (offer(gpu_type="T4"), {"gpuTypes": ["L4", "A100"]}, Reason.NOT_ALLOWED, "allows only the GPU types L4, A100"),
        (offer(), {"minVCPU": 9}, Reason.NOT_ALLOWED, "requires at least 9 vCPUs"),
        (offer(), {"minMemoryGiB": 64}, Reason.NOT_ALLOWED, "requires at least 64 GiB of memory"),
        (offer(gpu_memory_gib=16), {"minGPUMemoryGiB": 24}, Reason.NOT_ALLOWED, "requires GPUs of at least 24 GiB"),
        (offer(price="10.5"), {}, Reason.PRICE_TOO_HIGH, "more than $10.00/h, the maxHourlyPrice"),
        (offer(stock=0), {}, Reason.OUT_OF_STOCK, "its provider has none in stock"),
    ],
)
def test_offers_that_class_or_pool_do_not_allow_are_excluded_with_a_reason(offered, spec, reason, sentence):
    found = refusal(candidates(source(offered), [pool()], [node_class(instanceRequirements=spec)], CONTEXT))

    assert found[0] is reason
    assert sentence in found[1]


def test_an_offer_at_exactly_the_highest_price_is_allowed():
    assert only(candidates(source(offer(price="10")), [pool()], [node_class()], CONTEXT))


@pytest.mark.parametrize(
    "spec",
    [
        {"spotAllowed": True, "gpuTypes": ["A100"]},
        {"spotAllowed": True, "gpuTypes": ["nvidia-a100-sxm4-80gb"], "regions": ["us"]},
        {"spotAllowed": True, "minVCPU": 8, "minMemoryGiB": 32, "minGPUMemoryGiB": 80},
    ],
)
def test_allowed_gpu_types_may_be_called_by_any_name(spec):
    offered = offer(spot=True, region="us", gpu_type="A100-80GB", gpu_memory_gib=80)

    assert only(candidates(source(offered), [pool()], [node_class(instanceRequirements=spec)], CONTEXT))


def test_requirements_of_a_pool_select_by_the_labels_of_the_node():
    def asking(key, *values):
        requirement = {"key": key, "operator": "In", "values": list(values)}
        return pool(template={"spec": {"requirements": [requirement]}})

    offered = source(offer(gpu_type="NVIDIA GeForce RTX 4090", region="us"))

    for good in (asking("tgp.io/gpu-type", "rtx-4090"), asking("forebay.dev/region", "us", "eu")):
        assert only(candidates(offered, [good], [node_class()], CONTEXT))
    reason, sentence = refusal(candidates(offered, [asking("forebay.dev/region", "eu")], [node_class()], CONTEXT))
    assert reason is Reason.NOT_ALLOWED
    assert sentence == "GPUNodePool team/pool requires forebay.dev/region=eu"
    models = asking("forebay.dev/gpu-type", "T4", "H200", "A10", "L40S", "H100", "A30")
    _, sentence = refusal(candidates(offered, [models], [node_class()], CONTEXT))
    assert "(A10,A30,H100,H200,L40S,T4)" in sentence


def test_a_provider_may_be_limited_to_regions_or_disabled():
    in_us = node_class(providers=[{"name": "simulated", "regions": ["us"]}])

    assert refusal(candidates(source(offer(region="eu")), [pool()], [in_us], CONTEXT))[0] is Reason.NOT_ALLOWED
    off = source(offer(), enabled=False)
    assert refusal(candidates(off, [pool()], [node_class()], CONTEXT))[0] is Reason.PROVIDER_DISABLED


def test_a_pool_serves_the_namespaces_that_its_selector_picks():
    context = CandidateContext(now=NOW, namespaces={"a": {"team": "x"}, "b": {}})
    by_label = pool(namespaceSelector={"matchLabels": {"team": "x"}})
    by_name = pool(
        namespaceSelector={
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["b"]}]
        }
    )

    assert only(candidates(source(offer()), [by_label], [node_class()], context)).namespaces == {"a"}
    assert only(candidates(source(offer()), [by_name], [node_class()], context)).namespaces == {"b"}


def test_an_offer_whose_launch_failed_is_excluded_until_its_cooldown_ends():
    offered = offer()
    until = NOW + timedelta(minutes=5)
    cooling_down = CandidateContext(now=NOW, cooldowns={offered.key: CoolingDown(until, "the launch was refused")})

    reason, sentence = refusal(candidates(source(offered), [pool()], [node_class()], cooling_down))

    assert reason is Reason.COOLING_DOWN
    # With the date: the condition of a pod that quotes it is written anew once that has passed.
    assert sentence == f"is cooling down until {until:%Y-%m-%d} 12:05:00 UTC: the launch was refused"
    later = msgspec.structs.replace(cooling_down, now=until)
    assert only(candidates(source(offered), [pool()], [node_class()], later))


def node(name, **fields):
    amounts = Resources.parse({"cpu": 16, "memory": "60Gi", "pods": 110, GPU: 4})
    return Node(
        name=name,
        uid=name,
        resource_version=1,
        created=NOW,
        capacity=amounts,
        allocatable=amounts,
        **{"labels": {}, "ready": False, **fields},
    )


def machines(*offers):
    return source(*offers, node_class="", provider="webhook", delivers=Delivery.POWER)


def owned(name="own", gpus=4):
    amounts = Resources({"cpu": AMPLE, "memory": AMPLE, "pods": AMPLE, GPU: gpus})
    return msgspec.structs.replace(offer(name, "0", gpus, provider="webhook", node_name=name), allocatable=amounts)


def test_machines_from_environment_variables_need_no_pool():
    found = only(candidates(machines(owned()), [], [], CONTEXT))

    assert (found.pool, found.node.name, found.available) == (NO_POOL, "own", 1)
    assert "forebay.dev/nodepool" not in found.node.labels


def test_a_machine_of_ones_own_that_its_class_or_pool_does_not_allow_is_not_powered_on():
    key = SourceKey("rack", "webhook")
    capabilities = Capabilities(deliveries=(Delivery.POWER,))
    rack = node_class("rack", providers=[{"name": "webhook"}])

    def found(*pools, classes=(rack,), enabled=True):
        offered = {key: Source(key=key, capabilities=capabilities, offers=(owned(),), enabled=enabled)}
        return candidates(offered, pools, classes, CONTEXT)

    assert only(found(pool(node_class="rack"))).node.name == "own"
    assert refusal(found(pool(node_class="rack"), enabled=False))[0] is Reason.PROVIDER_DISABLED
    fast = {"key": "disk", "operator": "In", "values": ["ssd"]}
    picky = pool(node_class="rack", template={"spec": {"requirements": [fast]}})
    assert refusal(found(picky))[0] is Reason.NOT_ALLOWED
    h100 = node_class("rack", providers=[{"name": "webhook"}], instanceRequirements={"gpuTypes": ["H100"]})
    assert refusal(found(pool(node_class="rack"), classes=(h100,)))[0] is Reason.NOT_ALLOWED


def test_a_machine_is_one_machine_whatever_stock_its_source_tells():
    listed = msgspec.structs.replace(owned(), stock=5)

    assert only(candidates(machines(listed), [], [], CONTEXT)).available == 1


def test_a_machine_has_the_capacity_its_node_last_reported():
    seen = CandidateContext(now=NOW, remembered={"own": node("own", labels={"disk": "ssd"})})

    found = only(candidates(machines(owned()), [], [], seen))

    assert found.node.allocatable.amount("cpu") == 16_000
    assert found.node.labels["disk"] == "ssd"


@pytest.mark.parametrize(
    ("there", "reason"),
    [(node("own", ready=True), Reason.OUT_OF_STOCK), (node("own", unschedulable=True), Reason.NOT_ALLOWED)],
    ids=["powered on", "cordoned by its owner"],
)
def test_a_machine_that_is_on_or_cordoned_is_excluded(there, reason):
    context = CandidateContext(now=NOW, nodes={"own": there})

    assert refusal(candidates(machines(owned()), [], [], context))[0] is reason


def record(name, state="Ready", **spec):
    meta = {"name": name, "uid": f"uid-{name}"}
    spec = {"provider": "webhook", "delivers": "Power", "node": {"name": name}, **spec}
    return of(GPUInstance, metadata=meta, spec=spec, status={"state": state})


@pytest.mark.parametrize(("state", "free"), [("Requested", False), ("Terminating", False), ("Gone", True)])
def test_a_machine_with_a_record_is_in_use_until_the_record_is_gone(state, free):
    context = CandidateContext(now=NOW, records=[record("own", state)])

    assert bool(candidates(machines(owned()), [], [], context).candidates) is free


def test_daemonsets_take_their_share_of_a_new_node():
    agent = PodShape(requests=Resources.parse({"cpu": "500m", "memory": "1Gi", "pods": 1}))

    found = only(candidates(source(offer()), [pool()], [node_class()], CandidateContext(now=NOW, daemons=[agent])))

    assert found.node.allocatable.amount("cpu") == 7410
    assert found.node.capacity.amount("cpu") == 7910


def test_a_source_without_offers_is_unknown_and_containers_are_not_nodes():
    key = SourceKey("gpu", "aws")
    silent = {key: Source(key=key, capabilities=Capabilities(deliveries=(Delivery.NODE,)), error="it does not answer")}

    assert candidates(silent, [pool()], [node_class()], CONTEXT).unknown == (
        "aws of GPUNodeClass gpu: it does not answer",
    )
    disabled = {key: msgspec.structs.replace(silent[key], enabled=False)}
    assert candidates(disabled, [pool()], [node_class()], CONTEXT).unknown == (), "nothing would be bought of it"
    boxes = source(offer(), delivers=Delivery.CONTAINER)
    assert not candidates(boxes, [pool()], [node_class()], CONTEXT).candidates
    unasked = {key: Source(key=key, capabilities=Capabilities(deliveries=(Delivery.CONTAINER,)))}
    assert candidates(unasked, [pool()], [node_class()], CONTEXT).unknown == ()


def test_pools_without_a_class_or_being_deleted_have_no_candidates():
    going = pool()
    going.metadata.deletion_timestamp = NOW

    assert not candidates(source(offer()), [going], [node_class()], CONTEXT).candidates
    assert not candidates(source(offer()), [pool(node_class="other")], [node_class()], CONTEXT).candidates


def test_from_pools_and_sources_to_a_plan():
    limits = {"maxNodes": 2}
    pools, classes = [pool(limits=limits)], [node_class()]
    offering = candidates(source(offer("one", "1"), offer("four", "3", 4)), pools, classes, CONTEXT)

    made = plan(pods(6, shape()), offering.candidates, caps(pools, classes, ()), excluded=offering.excluded)

    assert bought(made) == ["four", "four"]


ZONE, ARCH = "topology.kubernetes.io/zone", "kubernetes.io/arch"


def test_a_region_that_its_provider_does_not_divide_is_one_zone():
    undivided = candidates(source(offer(region="eu-1")), [pool()], [node_class()], CONTEXT)
    divided = candidates(
        source(offer(region="eu-1"), offer(region="eu-1", zone="eu-1a")), [pool()], [node_class()], CONTEXT
    )
    nowhere = candidates(source(offer()), [pool()], [node_class()], CONTEXT)

    assert only(undivided).node.labels[ZONE] == "eu-1"
    assert [each.node.labels.get(ZONE) for each in divided.candidates] == [None, "eu-1a"]
    assert only(nowhere).node.labels[ZONE] == "simulated"


def test_pods_that_name_no_architecture_get_amd64():
    offers = source(offer("arm", "1", labels={ARCH: "arm64"}), offer("x86", "2"))
    asks = {"template": {"spec": {"requirements": [{"key": ARCH, "operator": "In", "values": ["arm64"]}]}}}

    def buys(demand, of_pool):
        return bought(plan(demand, candidates(offers, [of_pool], [node_class()], CONTEXT).candidates))

    for count in (1, 2):
        assert buys(pods(count), pool()) == ["x86"] * count
        assert buys(pods(count, shape(node_selector={ARCH: "arm64"})), pool()) == ["arm"] * count
        assert buys(pods(count), pool(**asks)) == ["arm"] * count


def test_the_class_of_offers_may_change_its_name():
    # The offers of all classes together stay the same, so that nothing else says that those of `b` are others now.
    kept = {name: source(offer(name)) for name in ("x", "y")}
    offers = {name: next(iter(of.values())).offers for name, of in kept.items()}

    def of_classes(**classes):
        sources = {}
        for name, what in classes.items():
            (key,) = source(node_class=name)
            sources[key] = Source(key=key, capabilities=Capabilities(deliveries=(Delivery.NODE,)), offers=offers[what])
        made = candidates(
            sources, [pool(name, node_class=name) for name in classes], [node_class(name) for name in classes], CONTEXT
        )
        return {each.source.node_class: each.offer.instance_type for each in made.candidates}

    assert of_classes(a="x", b="y") == {"a": "x", "b": "y"}
    assert of_classes(b="x", c="y") == {"b": "x", "c": "y"}


def test_candidates_are_made_again_only_for_other_offers():
    offers, pools, classes = source(offer("one"), offer("two")), [pool()], [node_class()]
    first = candidates(offers, pools, classes, CONTEXT)

    again = candidates(offers, [pool()], [node_class()], CONTEXT)
    cheaper = candidates(source(offer("one", "0.5"), offer("two")), pools, classes, CONTEXT)

    assert again.candidates is first.candidates
    assert [each.offer.price for each in cheaper.candidates] == [UsdPerHour("0.5"), UsdPerHour("1")]


def test_a_provider_that_is_disabled_or_gets_another_priority_counts_so_at_once():
    offers, pools, classes = source(offer("one"), offer("two")), [pool()], [node_class()]
    assert len(candidates(offers, pools, classes, CONTEXT).candidates) == 2

    def changed(**fields):
        same = {key: msgspec.structs.replace(each, **fields) for key, each in offers.items()}
        return candidates(same, pools, classes, CONTEXT)

    assert {each.reason for each in changed(enabled=False).excluded} == {Reason.PROVIDER_DISABLED}
    assert changed(enabled=False).candidates == ()
    assert {each.reason for each in changed(problem="The template is wrong.").excluded} == {Reason.PROVIDER_NOT_SERVED}
    assert changed(problem="The template is wrong.").candidates == ()
    assert {each.effective_price for each in changed(priority=7).candidates} == {UsdPerHour("1.7")}


def test_a_machine_whose_node_is_only_not_ready_can_be_powered_on():
    off = CandidateContext(now=NOW, nodes={"own": node("own", ready=False)})

    assert only(candidates(machines(owned()), [], [], off)).offer.node_name == "own"


def test_what_is_learned_of_a_type_holds_from_the_next_plan_on():
    offers, pools, classes = source(offer("l4")), [pool()], [node_class()]
    learned = {(SourceKey("gpu", "simulated"), "l4"): Resources.parse({"cpu": "4", "memory": "9Gi", GPU: 1})}

    def cpu(context):
        return only(candidates(offers, pools, classes, context)).node.allocatable.amount("cpu")

    as_listed = cpu(CONTEXT)
    assert cpu(CandidateContext(now=NOW, observed=learned)) < as_listed
    assert cpu(CONTEXT) == as_listed
