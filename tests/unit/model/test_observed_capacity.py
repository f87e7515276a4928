"""An owned machine keeps its Node while it is off: what the node once reported makes the fit exact."""

from datetime import UTC, datetime

from msgspec.structs import replace

from forebay.api.names import GPU_TYPE_LABEL
from forebay.model.nodes import Node
from forebay.model.observed_capacity import GPU_TYPE_LABELS, with_observed_capacity, with_observed_size
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint
from forebay.model.sources import AMPLE, Offer

OFFER = Offer(
    provider="webhook",
    instance_type="gpu-1",
    node_name="gpu-1",
    gpu_count=8,
    price=UsdPerHour(0),
    allocatable=Resources({"cpu": AMPLE, "memory": AMPLE, "pods": AMPLE, "nvidia.com/gpu": 8}),
    labels={"kubernetes.io/hostname": "gpu-1", "kubernetes.io/arch": "amd64", "forebay.dev/provider": "webhook"},
)


def node(**more):
    amounts = Resources({"cpu": 31_500, "memory": 120 * 2**30, "pods": 110, "nvidia.com/gpu": 8, "rdma/hca": 2})
    fields = {"name": "gpu-1", "labels": {}, "capacity": amounts, "allocatable": amounts, **more}
    return Node(uid="u", resource_version=1, created=datetime(2030, 1, 1, tzinfo=UTC), ready=False, **fields)


def test_a_machine_never_seen_is_as_configured():
    assert with_observed_capacity(OFFER, None) is OFFER
    assert with_observed_capacity(OFFER, node(name="another")) is OFFER


def test_amounts_that_nobody_configured_come_from_the_node():
    assert with_observed_capacity(OFFER, node()).allocatable == node().allocatable


def test_configured_amounts_are_cut_to_what_the_node_has():
    stated = replace(OFFER, allocatable=Resources({"cpu": 16_000, "memory": 500 * 2**30, "nvidia.com/gpu": 8}))
    learned = with_observed_capacity(stated, node()).allocatable
    assert learned.amount("cpu") == 16_000
    assert learned.amount("memory") == 120 * 2**30


def test_a_machine_that_is_off_or_whose_driver_starts_still_has_its_gpus():
    """Its node lists none as allocatable at such times."""
    off = node(allocatable=Resources({"cpu": 31_500}), capacity=Resources({"nvidia.com/gpu": 8}))
    assert with_observed_capacity(OFFER, off).allocatable.amount("nvidia.com/gpu") == 8
    unseen = node(allocatable=Resources({"cpu": 31_500}), capacity=Resources())
    assert with_observed_capacity(OFFER, unseen).gpu_count == 8


def test_a_machine_with_fewer_gpus_than_stated_is_not_powered_on_for_pods_that_need_more():
    fewer = node(capacity=Resources({"nvidia.com/gpu": 6}))
    learned = with_observed_capacity(OFFER, fewer)
    assert (learned.gpu_count, learned.allocatable.amount("nvidia.com/gpu")) == (6, 6)


def test_a_node_that_never_reported_changes_nothing():
    silent = node(allocatable=Resources(), capacity=Resources())
    assert with_observed_capacity(OFFER, silent).allocatable == OFFER.allocatable


def test_labels_come_from_the_node_except_those_forebay_sets():
    labels = {"kubernetes.io/arch": "arm64", "nvidia.com/gpu.product": "GH200", "forebay.dev/provider": "stale"}
    learned = with_observed_capacity(OFFER, node(labels=labels))
    assert learned.labels["kubernetes.io/arch"] == "arm64"
    assert learned.labels["nvidia.com/gpu.product"] == "GH200"
    assert learned.labels["forebay.dev/provider"] == "webhook"
    assert learned.gpu_type == "GH200"
    assert with_observed_capacity(replace(OFFER, gpu_type="H200"), node(labels=labels)).gpu_type == "H200"


def test_lasting_taints_count_and_temporary_ones_do_not():
    lasting = Taint("dedicated", "ml", "NoSchedule")
    passing = (Taint("node.kubernetes.io/unreachable", "", "NoExecute"), Taint("forebay.dev/startup"))
    stated = replace(OFFER, taints=(Taint("nvidia.com/gpu"),))
    assert with_observed_capacity(stated, node(taints=(*passing, lasting))).taints == (Taint("nvidia.com/gpu"), lasting)
    assert with_observed_capacity(stated, node(taints=stated.taints)).taints == stated.taints


def test_the_label_of_the_gpu_model_is_the_apis():
    assert GPU_TYPE_LABELS[0] == GPU_TYPE_LABEL


def test_a_gpu_that_failed_is_not_promised_again_though_the_node_still_lists_it():
    """Of 8 GPUs 7 were usable when the node was last Ready; now the machine is off and lists none, or all."""
    last = node(allocatable=Resources({"nvidia.com/gpu": 7}))
    off = node(allocatable=Resources({"cpu": 31_500}))
    assert with_observed_capacity(OFFER, off, last).gpu_count == 7
    assert with_observed_capacity(OFFER, node(), last).gpu_count == 7
    assert with_observed_capacity(OFFER, node(), node(allocatable=Resources())).gpu_count == 8


def test_a_node_without_a_capacity_has_what_pods_can_use():
    found = node(capacity=Resources(), allocatable=Resources({"nvidia.com/gpu": 5}))
    assert with_observed_capacity(OFFER, found).gpu_count == 5


def test_more_gpus_than_stated_are_not_promised():
    more = Resources({"nvidia.com/gpu": 16})
    assert with_observed_capacity(OFFER, node(capacity=more, allocatable=more)).gpu_count == 8


def test_the_most_trusted_label_names_the_model_and_an_empty_one_does_not():
    labels = {"nvidia.com/gpu.product": "H100", "amd.com/gpu.product-name": "MI300X", "forebay.dev/gpu-type": ""}
    assert with_observed_capacity(OFFER, node(labels=labels)).gpu_type == "H100"
    assert with_observed_capacity(OFFER, node(labels={})).gpu_type is None


def test_a_label_of_forebay_that_was_not_configured_comes_from_the_node():
    learned = with_observed_capacity(OFFER, node(labels={"forebay.dev/rack": "4"}))
    assert learned.labels["forebay.dev/rack"] == "4"


def test_a_rented_machine_has_the_sizes_of_its_type_and_the_gpus_of_its_offer():
    size = Resources({"cpu": 7000, "memory": 2**34, "nvidia.com/gpu": 1, "rdma/hca": 2})
    learned = with_observed_size(OFFER, size).allocatable
    assert (learned.amount("cpu"), learned.amount("memory")) == (7000, 2**34)
    assert learned.amount("nvidia.com/gpu") == 8
    assert "rdma/hca" not in learned
