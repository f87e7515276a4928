"""Offers from a table: what each row becomes, and what is left of a machine for pods."""

import csv
import gzip
from fractions import Fraction
from pathlib import Path

import pytest

from forebay.model.quantities import Resources, UsdPerHour
from forebay.planning.offer_table import COLUMNS, left_for_pods, read_table
from tests.needs import PRICES

HEADER = "provider,instance_type,gpu_name,gpu_model,gpu_count,gpu_mem_gib,vcpus,memory_gib,price_ondemand_usd_h"


def offers(row, more=""):
    return [each.offer for each in read_table([f"{HEADER}{more}\n", row])]


def test_a_row_is_an_offer_on_demand_and_one_on_spot():
    row = "aws,g6.xlarge,L4,,1,24,4,16,0.8048,0.30,use1,use1-az1,7"

    demand, spot = offers(row, ",price_spot_usd_h,region,zone,stock")

    assert (demand.spot, demand.price, spot.spot, spot.price) == (False, UsdPerHour("0.8048"), True, UsdPerHour("0.3"))
    assert demand.key == ("aws", "g6.xlarge", "use1", "use1-az1", False)
    assert (demand.gpu_type, demand.gpu_count, demand.gpu_memory_gib, demand.stock) == ("L4", 1, 24, 7)
    assert demand.allocatable.amount("nvidia.com/gpu") == 1


def test_a_spot_price_that_is_none_is_not_offered():
    row = "aws,g6.xlarge,L4,,1,24,4,16,0.8,0.8,spot_eq_ondemand;other"

    assert [each.spot for each in offers(row, ",price_spot_usd_h,flag")] == [False]


def test_what_is_only_offered_as_spot_is_read():
    row = "aws,g6.xlarge,L4,,1,24,4,16,,0.3,"

    assert [(each.spot, each.price) for each in offers(row, ",price_spot_usd_h,flag")] == [(True, UsdPerHour("0.3"))]


def test_what_has_no_price_is_not_offered():
    assert offers("aws,g6.xlarge,L4,,1,24,4,16,") == []


def test_the_vendor_decides_by_what_pods_ask_for_it_and_the_memory_which_model_it_is():
    (amd,) = offers("azure,nd,AMD Instinct MI300X,,8,192,96,1850,20")
    (large,) = offers("aws,p4de,A100,,8,80,96,1152,20")
    (arm,) = offers("aws,g5g.xlarge,T4g,,1,16,4,8,0.42")
    (new,) = offers("acme,x,,Z9000,1,512,4,8,9")

    assert (amd.gpu_resource, amd.gpu_type, amd.allocatable.amount("amd.com/gpu")) == ("amd.com/gpu", "MI300X", 8)
    assert large.gpu_type == "A100-80GB"
    assert arm.labels == {"kubernetes.io/arch": "arm64"}
    assert (new.gpu_type, new.gpu_resource) == ("Z9000", "nvidia.com/gpu")


def test_a_slice_of_a_gpu_is_no_gpu_to_a_pod():
    (row,) = read_table([f"{HEADER}\n", "aws,g6f.xlarge,L4,,0.125,2.79,4,16,0.2"])

    assert row.gpus == Fraction(1, 8)
    assert row.offer.gpu_count == 0
    assert "nvidia.com/gpu" not in row.offer.allocatable


def test_every_machine_keeps_something_for_itself():
    assert left_for_pods(Fraction(4), Fraction(16)) == Resources(
        {"cpu": 3920, "memory": int(Fraction(16 * 2**30 * 885, 1000)) - 355 * 2**20, "pods": 110}
    )
    assert left_for_pods(Fraction(1, 2), Fraction(1, 4)) == Resources({"cpu": 470, "pods": 110})


def test_the_docs_name_every_column():
    page = (Path(__file__).parents[3] / "docs/plan.md").read_text()

    assert [name for name in COLUMNS if f"`{name}`" not in page] == []


@pytest.mark.prices
def test_a_real_table_is_read_whole():
    with gzip.open(PRICES / "gpu_offers.csv.gz", "rt") as lines:
        rows = read_table(lines)

    assert len(rows) > 11_000
    assert min(each.offer.price for each in rows) > UsdPerHour(0)
    assert {each.offer.gpu_resource for each in rows} == {"nvidia.com/gpu", "amd.com/gpu"}


@pytest.mark.prices
def test_what_is_left_for_pods_is_near_what_a_cloud_says():
    with gzip.open(PRICES / "karpenter_aws_gpu_instance_types.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            left = left_for_pods(Fraction(row["vcpu"]), Fraction(row["memory_mib"]) / 1024)
            assert left["cpu"] == Fraction(row["alloc_cpu"]) * 1000
            assert left["memory"] / 2**20 == pytest.approx(float(row["alloc_memory_mib"]), rel=0.06)


def test_a_listing_of_a_marketplace_is_one_machine():
    header = "provider,instance_type,gpu_name,gpu_count,vcpus,memory_gib,price_ondemand_usd_h,stock\n"
    rows = read_table([header, "vast,a,L4,1,4,16,0.5,\n", "aws,b,L4,1,4,16,0.8,\n", "vast,c,L4,1,4,16,0.5,3\n"])

    assert [row.offer.stock for row in rows] == [1, None, 3]
