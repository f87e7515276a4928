"""`forebay offers --from`: the table of prices, cheapest GPU first, with filters."""

import gzip
import json

import pytest
import structlog

from forebay.cli import main
from tests.needs import PRICES

TABLE = """\
provider,instance_type,gpu_name,gpu_count,gpu_mem_gib,vcpus,memory_gib,price_ondemand_usd_h,price_spot_usd_h,region,zone,flag
aws,p4d.24xlarge,A100-SXM4-40GB,8,40,96,1152,21.96,6.6,us-east-1,use1-az1,
aws,g6f.xlarge,L4,0.125,2.79,4,16,0.2,,us-east-1,use1-az2,
gcp,a2-ultragpu-1g,NVIDIA A100 80GB,1,80,12,170,5.07,,europe-west4,europe-west4-a,
lambda,gpu_1x_h100,H100 PCIe,1,80,26,200,2.49,2.49,us-west-3,,spot_eq_ondemand
azure,cpu-only,,0,,4,16,0.1,,us-east,,
nebius,three,L4,3,24,4,16,1,,eu-north1,,
"""


@pytest.fixture(autouse=True)
def _own_logging():
    yield
    structlog.reset_defaults()


@pytest.fixture
def offers(tmp_path, capsys):
    """`offers(*options)`: exit code and what was printed."""
    (tmp_path / "prices.csv").write_text(TABLE)

    def run(*options, table=None):
        code = main(["offers", "--from", str(table or tmp_path / "prices.csv"), *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def found(offers):
    """The types that pass, in their order; spot ones with a star."""

    def run(*options, **where):
        code, printed, complaints = offers("-o", "json", *options, **where)
        assert complaints == ""
        document = json.loads(printed)
        assert code == (0 if document["offers"] else 1)
        return [each["instance_type"] + "*" * each["spot"] for each in document["offers"]]

    return run


def test_the_cheapest_gpu_comes_first(offers):
    code, printed, complaints = offers()

    assert (code, complaints) == (0, "")
    assert printed.splitlines() == [
        "GPU/H     ALL/H    GPUS            VRAM   CAPACITY    WHERE            PROVIDER   TYPE",
        "$0.3333   $1.00    3 x L4          24G    on-demand   eu-north1        nebius     three",
        "$0.825    $6.60    8 x A100-40GB   40G    spot        use1-az1         aws        p4d.24xlarge",
        "$1.60     $0.20    0.125 x L4      2G     on-demand   use1-az2         aws        g6f.xlarge",
        "$2.49     $2.49    1 x H100        80G    on-demand   us-west-3        lambda     gpu_1x_h100",
        "$2.745    $21.96   8 x A100-40GB   40G    on-demand   use1-az1         aws        p4d.24xlarge",
        "$5.07     $5.07    1 x A100-80GB   80G    on-demand   europe-west4-a   gcp        a2-ultragpu-1g",
        "-         $0.10    0               -      on-demand   us-east          azure      cpu-only",
    ]


@pytest.mark.parametrize(
    ("options", "types"),
    [
        (["--gpu", "h100"], ["gpu_1x_h100"]),
        (["--gpu", "nvidia-l4", "--gpu", "H100-80GB-HBM3"], ["three", "g6f.xlarge", "gpu_1x_h100"]),
        (["--gpu", "A100"], ["p4d.24xlarge*", "p4d.24xlarge", "a2-ultragpu-1g"]),
        (["--gpu", "A100-80G-PCIe"], ["a2-ultragpu-1g"]),
        (["--gpu", "B200"], []),
        (["--min-vram", "80"], ["gpu_1x_h100", "a2-ultragpu-1g"]),
        (["--min-vram", "24.5", "--max-price", "6.6"], ["p4d.24xlarge*", "gpu_1x_h100", "a2-ultragpu-1g"]),
        (["--region", "us-east-1"], ["p4d.24xlarge*", "g6f.xlarge", "p4d.24xlarge"]),
        (["--region", "EUROPE-west4-?", "--region", "us-w*"], ["gpu_1x_h100", "a2-ultragpu-1g"]),
        (["--spot"], ["p4d.24xlarge*"]),
        (["--no-spot", "--limit", "2"], ["three", "g6f.xlarge"]),
    ],
)
def test_filters(found, options, types):
    assert found(*options) == types


def test_json_has_exact_money(offers):
    _, printed, _ = offers("-o", "json", "--limit", "1")

    assert json.loads(printed)["offers"] == [
        {
            "provider": "nebius",
            "instance_type": "three",
            "region": "eu-north1",
            "zone": None,
            "spot": False,
            "capacity": "on-demand",
            "gpu_type": "L4",
            "gpu_count": 3.0,
            "gpu_memory_gib": 24,
            "price": "1",
            "price_per_gpu": "0.333333333333333333333333",
            "stock": None,
            "machine": None,
            "as_of": None,
        }
    ]


def test_a_table_may_be_gzipped_under_any_name(found, tmp_path):
    (tmp_path / "prices").write_bytes(gzip.compress(TABLE.encode()))

    assert found("--spot", table=tmp_path / "prices") == ["p4d.24xlarge*"]


def test_no_match_is_not_an_error(offers):
    assert offers("--max-price", "0.01") == (1, "No offers: none of 7 passes the filters.\n", "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--gpu", "H1000"], '--gpu: "H1000" is not a known GPU model: did you mean H100'),
        (["--gpu", "abacus"], '--gpu: "abacus" is not a known GPU model'),
        (["--min-vram", "lots"], '--min-vram: "lots" is not a number of at least 0'),
        (["--min-vram", "nan"], '--min-vram: "nan" is not a number of at least 0'),
        (["--min-vram", "-1"], '--min-vram: "-1" is not a number of at least 0'),
        (["--max-price", "-1"], "--max-price: -1 is negative: give a price of at least 0"),
        (["--max-price", "NaN"], '--max-price: "NaN" is not a price in dollars'),
        (["--limit", "0"], '--limit: "0" is not a whole number of at least 1'),
        (["--limit", "-3"], '--limit: "-3" is not a whole number of at least 1'),
    ],
)
def test_invalid_filters(offers, options, expected):
    code, printed, complaints = offers(*options)

    assert (code, printed) == (2, "")
    assert complaints.startswith(f"forebay: {expected}")
    assert len(complaints.splitlines()) == 1


def test_a_missing_table(offers):
    assert offers(table="gone.csv") == (2, "", "forebay: gone.csv cannot be read: No such file or directory\n")


@pytest.mark.prices
def test_a_real_table(offers):
    _, printed, _ = offers(
        "-o", "json", "--gpu", "H100", "--no-spot", "--region", "us-east-1", table=PRICES / "gpu_offers.csv.gz"
    )

    rows = json.loads(printed)["offers"]
    assert {(each["provider"], each["gpu_type"]) for each in rows} >= {("aws", "H100")}
    assert rows == sorted(rows, key=lambda each: float(each["price_per_gpu"]))
    assert {each["instance_type"] for each in rows} >= {"p5.48xlarge"}
