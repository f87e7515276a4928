from datetime import timedelta

import pytest

from forebay.api.machines import Machine
from forebay.api.parts import TaintEffect
from forebay.api.parts import TaintEntry as ApiTaint
from forebay.model.label_syntax import label_value, value_problem
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint
from forebay.model.sources import AMPLE
from forebay.providers.webhook.offers import as_offer


def machine(**more):
    return Machine(
        name="gpu-1", gpu_count=4, scale_up_endpoint="http://p/on", scale_down_endpoint="http://p/off", **more
    )


def test_resources_that_are_not_stated_are_ample():
    offer = as_offer(machine())
    assert (offer.instance_type, offer.node_name, offer.stock) == ("gpu-1", "gpu-1", 1)
    assert offer.price == UsdPerHour(0)
    assert offer.allocatable == Resources(
        {"cpu": AMPLE, "memory": AMPLE, "ephemeral-storage": AMPLE, "pods": AMPLE, "nvidia.com/gpu": 4}
    )
    assert offer.labels["kubernetes.io/hostname"] == "gpu-1"
    assert offer.boot_deadline == timedelta(minutes=15)


def test_stated_resources_labels_and_taints_are_offered():
    stated = machine(
        cpu="30",
        memory="240Gi",
        gpu_type="RTX 4090",
        gpu_resource_name="amd.com/gpu",
        labels={"example.com/rack": "r7", "kubernetes.io/arch": "arm64"},
        taints=(ApiTaint(key="dedicated", effect=TaintEffect.NO_SCHEDULE),),
        hourly_price="0.80",
        boot_timeout="20m",
    )
    offer = as_offer(stated)
    assert offer.allocatable.amount("cpu") == 30_000
    assert offer.allocatable.amount("memory") == 240 * 2**30
    assert offer.allocatable.gpus() == offer.allocatable.gpus(["amd.com/gpu"])
    assert offer.labels["forebay.dev/gpu-type"] == "RTX-4090"
    assert offer.labels["example.com/rack"] == "r7"
    assert offer.labels["kubernetes.io/arch"] == "arm64"
    assert offer.taints == (Taint("dedicated", "", "NoSchedule"),)
    assert offer.price == UsdPerHour("0.80")
    assert offer.boot_deadline == timedelta(minutes=20)


def test_a_boot_timeout_of_0_means_the_default():
    assert as_offer(machine(boot_timeout="0")).boot_deadline == timedelta(minutes=15)


@pytest.mark.parametrize("text", ["RTX 4090", "-A100-", "NVIDIA H100 80GB HBM3 (SXM)", "x" * 200, "é", "."])
def test_any_gpu_type_becomes_a_valid_label(text):
    assert value_problem(label_value(text)) is None


@pytest.mark.parametrize(("gpu_type", "memory"), [("RTX 4090", 24), ("A100", None), ("Homemade", None), (None, None)])
def test_gpu_memory_is_known_where_the_type_names_one_model(gpu_type, memory):
    assert as_offer(machine(gpu_type=gpu_type)).gpu_memory_gib == memory
