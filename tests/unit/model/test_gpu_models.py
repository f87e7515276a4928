import csv
import gzip

import pytest

from forebay.model.gpu_models import MODELS, Vendor, canonical, gpu_model, matching_models, unknown_models
from tests.needs import PRICES


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("rtx-4090", "RTX4090"),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla T4", "T4"),
        ("RTX A6000", "A6000"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000-Ada"),
        ("Quantum 3", "Quantum 3"),
    ],
)
def test_a_model_has_one_name_here_whatever_a_cloud_calls_it(name, model):
    assert canonical(name) == model


def test_where_a_name_means_two_models_the_memory_decides():
    assert canonical("A100") == "A100-40GB"
    assert canonical("A100", 80) == "A100-80GB"
    assert canonical("RTX6000", 96.0) == "RTXPRO6000"
    assert matching_models("A100") == {"A100-40GB", "A100-80GB"}
    assert matching_models("l4") == {"L4"}


def test_no_name_means_two_models_by_accident():
    from forebay.model.gpu_models import _AMBIGUOUS, _plain

    plain = [_plain(name) for model in MODELS for name in {_plain(n): n for n in (model.name, *model.aliases)}.values()]
    assert len(plain) == len(set(plain))
    assert all(gpu_model(name) is not None for names in _AMBIGUOUS.values() for name in names)
    assert Vendor.AMD.resource == "amd.com/gpu"


#: GiB of a GPU as its maker or, for slices and export models, clouds state it; several where it is sold so.
MEMORY = """
    A10=24 A100-40GB=40 A100-80GB=80 A10G=24 A16=16 A30=24 A40=48 A4000=16 A4500=20 A5000=24 A6000=48 B200=180 B300=270
    GB200=192 GH200=96 H100=80 H100-NVL=94 H200=141 K80=12 L4=24 L40=48 L40S=48 M4000=8 M60=8 P100=16 P4=8 P4000=8
    P5000=16 P6000=24 RTX2000-Ada=16 RTX3060=12,8 RTX3070=8 RTX3080=10,12 RTX3080Ti=12 RTX3090=24 RTX3090Ti=24
    RTX4000-Ada=20 RTX4060=8,16 RTX4060Ti=8,16 RTX4070=12,16 RTX4070Ti=12,16 RTX4080=16 RTX4090=24 RTX4090D=24
    RTX5000-Ada=32 RTX5060=8 RTX5060Ti=16,8 RTX5070=12 RTX5070Ti=16 RTX5080=16 RTX5090=32 RTX5880-Ada=48 RTX6000=24
    RTX6000-Ada=48 RTXPRO4000=24 RTXPRO4500=32 RTXPRO5000=48 RTXPRO6000=96 RTXPRO6000-MIG-24GB=24
    RTXPRO6000-MIG-48GB=48 T4=16 T4g=16 V100=16 V100-32GB=32 MI25=16 MI250=128 MI250X=128 MI300X=192 MI325X=256
    MI355X=288 V520=8
"""


def test_every_model_has_the_memory_that_it_is_sold_with():
    known = {model.name: ",".join(map(str, model.memory_gib)) for model in MODELS}

    assert known == dict(each.split("=") for each in MEMORY.split())


@pytest.mark.prices
def test_every_name_of_the_real_price_table_is_known_and_means_what_the_table_says():
    with gzip.open(PRICES / "gpu_offers.csv.gz", "rt") as lines:
        rows = list(csv.DictReader(lines))

    wrong = set()
    for row in rows:
        for name in (row["gpu_name"], row["gpu_model"]):
            model = gpu_model(name, float(row["gpu_mem_gib"]))
            if model is None or model.name != gpu_model(row["gpu_model"], float(row["gpu_mem_gib"])).name:
                wrong.add((name, row["gpu_model"], row["gpu_mem_gib"]))
    assert not wrong
    sizes = {
        (row["gpu_model"], row["gpu_mem_gib"])
        for row in rows
        if row["gpu_model"] != "L4"
        and min(
            abs(float(row["gpu_mem_gib"]) / size - 1)
            for size in gpu_model(row["gpu_model"], float(row["gpu_mem_gib"])).memory_gib
        )
        > 0.2
    }
    assert not sizes


def test_names_that_are_no_model_are_named_with_the_nearest_that_are():
    assert unknown_models(["H100", "rtx 4090"]) == ""
    told = unknown_models(["H100", "H1000"])
    assert told.startswith('; "H1000" is not a known GPU model: did you mean H100')
    assert unknown_models(["qqqqqqqqqqqq"]) == '; "qqqqqqqqqqqq" is not a known GPU model'
