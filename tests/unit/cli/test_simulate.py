"""`forebay simulate`, as users call it."""

import gzip
import json

import pytest
from PIL import Image

from forebay.cli.simulate.plot import _marks
from tests.unit.cli.test_commands import forebay

OFFERS = """provider,instance_type,gpu_model,gpu_count,vcpus,memory_gib,price_ondemand_usd_h,price_spot_usd_h,region
cloud,one,A100,1,16,64,1.00,0.40,eu
cloud,four,A100,4,64,256,3.00,1.20,eu
other,one,L4,1,16,64,0.50,,us
"""
PODS = "submitted,duration,gpus\n" + "".join(f"{second},3600,1\n" for second in (0, 0, 0, 0, 9000))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "offers.csv").write_text(OFFERS)
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    return ("simulate", "--trace", str(tmp_path / "pods.csv.gz"), "--offers", str(tmp_path / "offers.csv"))


def policies(done):
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return report, {each["policy"]: each for each in report["policies"]}


def test_the_table_compares_policies_and_ends_with_the_bound(files):
    done = forebay(*files)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("5 pods, 5 GPU-hours")
    assert [line.split("  ")[0] for line in lines[3:7]] == ["forebay", "first fit", "always on", "hindsight bound"]


def test_scripts_get_the_same_as_json_with_the_cost_to_the_cent(files):
    report, found = policies(forebay(*files, "--provider", "cloud", "--boot", "0s", "--idle", "0s", "--output", "json"))
    assert report["hindsight_bound"] == "3.75"
    # Four pods share the machine of four GPUs; the fifth gets one of its own.
    assert found["forebay"]["cost"] == "4"
    assert found["first fit"]["cost"] == "5"
    # Four GPUs from the first second to 12,600.
    assert found["always on"]["cost"] == "10.5"
    assert (found["always on"]["interruptions"], found["always on"]["gpu_hours_lost"]) == (0, 0)


def test_offers_are_chosen_by_model_and_spot_only_where_told(files):
    report, _ = policies(forebay(*files, "--gpu", "L4", "--output", "json"))
    assert report["offers"] == 1
    report, _ = policies(forebay(*files, "--spot", "--output", "json"))
    assert report["offers"] == 5


def test_reclaims_of_spot_machines_are_measured_by_records_of_availability(files, tmp_path):
    records = tmp_path / "records.jsonl"
    # A machine could be had for an hour at a time, and was gone again.
    records.write_text(json.dumps({"gpu": "A100", "gap_seconds": 600, "rle_available": [[1, 6], [0, 6]] * 8}))
    report, found = policies(forebay(*files, "--spot", "--reclaims", str(records), "--output", "json"))
    (note,) = report["notes"]
    assert note.startswith("Spot machines are reclaimed 1.000 times an hour on average, as measured: 8 times in 8 ")
    assert found["forebay"]["interruptions"] > 0


def test_a_table_that_a_spreadsheet_has_saved_is_read(files, tmp_path):
    (tmp_path / "saved.csv").write_text("\ufeff" + PODS)
    assert forebay(*files, "--trace", str(tmp_path / "saved.csv")).stdout == forebay(*files).stdout


def test_a_part_of_a_trace_is_replayed_from_its_own_first_second(files):
    report, _ = policies(forebay(*files, "--after", "100", "--output", "json"))
    assert (report["pods"], report["days"]) == (1, round(3600 / 86_400, 2))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--budget", "500"), "--budget is GPU_HOURS/WINDOW"),
        (("--budget", "0/24h"), "more than 0"),
        (("--max-hourly-cost", "much"), "--max-hourly-cost"),
        (("--provider", "nobody"), "has no offer of a machine"),
        (("--after", "999999"), "no pod that requests a GPU in that time"),
        (("--reclaims", "-1"), "--reclaims"),
        (("--reclaims", "often"), "often cannot be read"),
        (("--reclaims", "0.5"), "no other is ever reclaimed: add --spot"),
        (("--trace", "missing.csv"), "missing.csv cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(files, arguments, sentence):
    done = forebay(*files, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_history_of_prices_and_plots_of_the_run(files, tmp_path):
    columns = "snapshot_unix_utc,instance_type,region,price_ondemand_usd_h,price_spot_usd_h"
    rows = ["1000,one,eu,1.00,0.10", "1000,four,eu,3.00,0.40", "2800,one,eu,1.00,", "2800,four,eu,3.00,"]
    (tmp_path / "history.csv").write_text("\n".join([columns, *rows, "90000,four,eu,3.00,"]) + "\n")
    told = ("--prices", str(tmp_path / "history.csv"), "--prices-from", "1970-01-01T00:16:40Z", "--spot")
    for name in ("run.svg", "run.html"):
        done = forebay(*files, *told, "--provider", "cloud", "--plot", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        drawn = (tmp_path / name).read_text()
        assert drawn.count("<polyline") == 10
        assert "always on" in drawn
        assert "hindsight bound" in drawn
        assert "http" not in drawn.replace('xmlns="http://www.w3.org/2000/svg"', "")
    row = next(line for line in done.stdout.splitlines() if line.startswith("forebay "))
    # The spot machine was reclaimed after half an hour, when spot could not be had any more.
    assert row.split()[-2] == "1"
    assert "follow their history from 1970-01-01 00:16 UTC" in done.stdout


def test_a_plot_as_an_image_for_those_who_can_show_nothing_else(files, tmp_path):
    done = forebay(*files, "--plot", str(tmp_path / "run.png"))
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "run.png") as image:
        assert (image.format, image.size) == ("PNG", (2100, 1520))
        colours = {colour for _, colour in image.getcolors(1 << 20)}
    # A line of each policy, and the background.
    assert {(31, 111, 235), (210, 153, 34), (255, 255, 255)} <= colours


def test_without_pillow_the_command_says_so_before_it_simulates(files, tmp_path):
    (tmp_path / "PIL.py").write_text("raise ImportError")
    done = forebay(*files, "--plot", "run.png", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "PNG needs Pillow, which the extra plots brings (pip install 'forebay[plots]'); or give" in done.stderr


@pytest.mark.parametrize(
    ("most", "marks"),
    [(76, [0, 50, 100]), (15_878, [0, 10_000, 20_000]), (1, [0, 0.5, 1]), (0.06, [0, 0.05, 0.1]), (5, [0, 2.5, 5])],
)
def test_axes_have_round_numbers(most, marks):
    assert _marks(most) == pytest.approx(marks)


def test_a_plot_has_a_form_that_is_known(files):
    done = forebay(*files, "--plot", "run.bmp")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ends in .svg, .png or .html" in done.stderr
