import csv
import gzip

import pytest

from forebay.model.gpu_models import MODELS, Vendor, canonical, gpu_model, matching_models
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
