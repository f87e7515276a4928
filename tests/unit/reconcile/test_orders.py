"""A GPUInstance holds the whole order: the launch and the bill need nothing else."""

import re
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import (
    GPUInstance,
    GPUInstanceSpec,
    GPUInstanceStatus,
    InstanceState,
    Purpose,
    ResourceLifetime,
    SecondaryResource,
    Transition,
)
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.instance_order import ContainerRecord
from forebay.api.meta import ObjectMeta
from forebay.engine.apply.container_specs import container_spec
from forebay.engine.apply.launch_requests import launch_request
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint
from forebay.model.secret_text import SecretText
from forebay.model.sources import Billing, Capabilities, Delivery, Offer, Source, SourceKey
from forebay.providers.base import BootKind, BootPayload
from forebay.reconcile.buying import buy
from forebay.reconcile.orders import ContainerOffer, OrderTerms, create_container, template_hash
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, node, pod

BILLED = Billing(minimum=timedelta(minutes=10), increment=timedelta(milliseconds=1500))
OFFER = Offer(
    provider="simulated",
    instance_type="mi300x8",
    region="eu",
    gpu_count=1,
    gpu_resource="amd.com/gpu",
    price=UsdPerHour("1.29"),
    allocatable=Resources({"cpu": 8000, "memory": 2**36, "amd.com/gpu": 1, "nvidia.com/gpu": 1, "pods": 110}),
    billing=BILLED,
)
CAPABLE = Capabilities(deliveries=(Delivery.NODE,), dead_man_switch=True)
SOURCE = Source(key=SourceKey("cheap", "simulated"), capabilities=CAPABLE, offers=(OFFER,))


def node_class(**spec):
    fields = {"providers": [{"name": "simulated"}], "cloudInit": {"template": "#cloud-config {{.NodeName}}"}, **spec}
    meta = {"name": "cheap", "finalizers": ["forebay.dev/nodeclass"]}
    return msgspec.convert({"metadata": meta, "spec": fields}, GPUNodeClass)


def pool(**spec):
    fields = {"nodeClassRef": {"name": "cheap"}, **spec}
    return msgspec.convert({"metadata": {"namespace": "forebay-system", "name": "pool"}, "spec": fields}, GPUNodePool)


def ordered(of=None, by=None, source=SOURCE):
    snapshot = Snapshot(
        now=NOW, classes=(of or node_class(),), pools=(by or pool(),), sources={source.key: source}, pending=(pod(),)
    )
    (create,) = buy(snapshot, snapshot.pending).decisions
    return create.spec


def record(spec):
    return GPUInstance(metadata=ObjectMeta(name="pool-1", uid="uid-1"), spec=spec)


def gone(create, *resources):
    """The GPUInstance of an order whose machine has ended, beside which these are left."""
    status = GPUInstanceStatus(
        state=InstanceState.GONE,
        secondary_resources=resources,
        transitions=(Transition(state=InstanceState.GONE, at=NOW, reason="Terminated", message="It is gone."),),
    )
    return GPUInstance(metadata=ObjectMeta(name=create.name, uid="before"), spec=create.spec, status=status)


def test_a_gpuinstance_is_replaced_by_one_of_its_name_only_when_nothing_of_it_is_left():
    start = Snapshot(now=NOW, classes=(node_class(),), pools=(pool(),), sources={SOURCE.key: SOURCE}, pending=(pod(),))
    (first,) = buy(start, start.pending).decisions

    def again(record, **fields):
        return [*buy(msgspec.structs.replace(start, records=(record,), **fields), start.pending).decisions]

    deleted, create = again(gone(first))
    assert (deleted.record.uid, create.name) == ("before", first.name)
    (create,) = again(gone(first), nodes={first.name: node(first.name)})
    assert create.name != first.name, "a machine that registers under it would be taken for another one"
    device = SecondaryResource(kind="TailscaleDevice", name=first.name, until=ResourceLifetime.GONE)
    (create,) = again(gone(first, device))
    assert create.name != first.name, "only the GPUInstance tells that there is a device to delete"


def test_the_order_says_why_it_exists_and_how_it_is_billed():
    spec = ordered()

    assert spec.purpose is Purpose.PODS
    assert record(spec).billing == BILLED
    assert launch_request(record(spec), "cluster").offer == replace(
        OFFER, allocatable=Resources.parse(spec.node.allocatable), delivers=Delivery.NODE
    )


def test_tags_image_and_startup_taints_reach_the_provider():
    talos = {"secretsRef": {"name": "s", "key": "k"}, "image": "our-talos"}
    cilium = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    spec = ordered(
        node_class(tags={"team": "ml"}, cloudInit=None, talosConfig=talos),
        pool(template={"spec": {"startupTaints": [cilium]}}),
    )
    request = launch_request(record(spec), "cluster")

    assert request.tags == {"team": "ml"}
    assert request.image == "our-talos"
    ours = Taint("forebay.dev/startup", request.uid)
    assert request.startup_taints == (ours, Taint("node.cilium.io/agent-not-ready", "", "NoExecute"))


def test_a_provider_with_a_dead_man_switch_ends_a_machine_long_after_forebay_would_have():
    spec = ordered(by=pool(disruption={"expireAfter": "12h"}))

    assert launch_request(record(spec), "cluster").max_run_time == timedelta(hours=36)
    assert ordered().max_run_time is None, "this pool's machines never expire"
    without = replace(SOURCE, capabilities=replace(CAPABLE, dead_man_switch=False))
    assert ordered(by=pool(disruption={"expireAfter": "12h"}), source=without).max_run_time is None


@pytest.mark.parametrize(
    ("of", "by", "same"),
    [
        (node_class(), pool(template={"metadata": {}}), True),
        (node_class(limits={"maxNodes": 3}), pool(weight=3, maxHourlyPrice=5), True),
        (node_class(tags={"team": "ml"}), pool(), False),
        (node_class(cloudInit={"template": "#cloud-config {{.NodeName}} v2"}), pool(), False),
        (node_class(), pool(template={"metadata": {"labels": {"a": "b"}}}), False),
        (node_class(), pool(template={"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}), False),
        (node_class(), pool(template={"spec": {"requirements": [{"key": "a", "operator": "Exists"}]}}), True),
    ],
    ids=["empty metadata", "what chooses", "tags", "user data", "labels", "taints", "requirements"],
)
def test_the_template_hash_changes_with_what_a_machine_is_made_of(of, by, same):
    assert (template_hash(of, by) == ordered().template_hash) is same


def test_what_is_secret_in_a_launch_request_is_never_shown_or_stored():
    boot = BootPayload(kind=BootKind.CLOUD_INIT, text=SecretText("token: hunter2hunter2"))
    container = msgspec.convert({"image": "busybox", "env": {"A": "1"}, "ports": [{"port": 80}]}, dict)
    spec = msgspec.convert(
        {**msgspec.to_builtins(ordered()), "delivers": "Container", "container": container}, GPUInstanceSpec
    )
    resolved = container_spec(record(spec), {"KEY": SecretText("hunter2hunter2")})
    request = launch_request(record(spec), "c", boot=boot, container=resolved)

    assert request.boot.text.reveal() == "token: hunter2hunter2"
    assert request.container.secret_env["KEY"].reveal() == "hunter2hunter2"
    assert "hunter2" not in f"{request} {request!r} {boot} {boot.text}"
    for encode in (msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins):
        with pytest.raises(TypeError):
            encode(request)


@pytest.mark.parametrize("name", ["p", "a.b.c", f"{'x' * 51}.y", "x" * 253, f"{'a' * 51}-{'b' * 60}"])
def test_the_name_of_a_rented_machine_is_a_dns_label_and_always_the_same(name):
    by = msgspec.convert(
        {"metadata": {"namespace": "forebay-system", "name": name}, "spec": {"nodeClassRef": {"name": "cheap"}}},
        GPUNodePool,
    )
    named = ordered(by=by).node.name

    assert re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", named)
    assert named == ordered(by=by).node.name


@pytest.mark.parametrize(
    ("fields", "purpose"),
    [
        ({"pods": [{"namespace": "a", "name": "b", "uid": "c"}]}, Purpose.PODS),
        ({"provisionerRef": {"name": "p"}}, Purpose.GROUP),
        ({}, Purpose.ADOPTED),
        ({"purpose": "Static"}, Purpose.STATIC),
    ],
)
def test_a_record_of_an_earlier_release_has_a_purpose_too(fields, purpose):
    spec = msgspec.convert({"provider": "simulated", "delivers": "Node", **fields}, GPUInstanceSpec)
    assert record(spec).purpose is purpose


def test_the_order_of_a_container_holds_its_one_pod_and_all_that_the_launch_and_the_bill_need():
    remote = replace(OFFER, delivers=Delivery.CONTAINER)
    chosen = ContainerOffer(source=SOURCE.key, offer=remote, delivers=Delivery.CONTAINER, sentence="The cheapest.")
    terms = OrderTerms(pool=pool(), node_class=node_class(tags={"team": "a"}), capabilities=CAPABLE)
    runs = ContainerRecord(image="busybox", env={"A": "1"}, node_name="far")
    first = create_container(pod(), chosen, runs, terms, ())

    assert [each.uid for each in first.spec.pods] == [pod().uid]
    assert (first.spec.purpose, first.spec.node, first.spec.container) == (Purpose.PODS, None, runs)
    assert (first.spec.tags, first.spec.pool_ref.name, first.spec.node_class_name) == ({"team": "a"}, "pool", "cheap")
    assert record(first.spec).billing == BILLED
    request = launch_request(record(first.spec), "c", container=container_spec(record(first.spec)))
    assert (request.node_name, request.container.image, request.offer.price) == ("", "busybox", OFFER.price)

    dearer = replace(chosen, offer=replace(remote, instance_type="other"))
    assert create_container(pod(), dearer, runs, terms, ()).name == first.name, "whatever was chosen, one per pod"
    assert create_container(pod(), chosen, runs, terms, (record(first.spec),)).name != first.name
