"""How often spot machines are reclaimed, by records of how many could be had."""

import gzip
import json

import pytest

from forebay.simulate.reclaim_history import ReclaimError, reclaim_rate
from tests.needs import PRICES


def record(gpu, *available, gap=600):
    return json.dumps({"gpu": gpu, "gap_seconds": gap, "rle_available": available})


def test_machines_that_go_are_counted_against_the_hours_that_they_could_be_had():
    # An hour with one, none for a while, an hour with four of which three go, and half an hour with the last.
    found = reclaim_rate([record("V100", [1, 6], [0, 9], [4, 6], [1, 3])])

    assert found.reclaims == 4
    assert found.machine_hours == 5.5
    assert found.hourly == pytest.approx(4 / 5.5)


def test_records_of_the_model_go_before_those_of_others():
    lines = [record("V100", [1, 6], [0, 6]), "", record("K80", [1, 60], [0, 1])]

    assert reclaim_rate(lines, {"K80"}).hourly == pytest.approx(0.1)
    assert reclaim_rate(lines, {"H100"}) == reclaim_rate(lines)


@pytest.mark.parametrize("lines", [["nonsense"], ['{"gpu": "V100"}'], [record("V100", [0, 9])], []])
def test_what_has_no_machine_is_refused(lines):
    with pytest.raises(ReclaimError):
        reclaim_rate(lines)


@pytest.mark.prices
def test_the_published_records_have_as_many_reclaims_as_they_say():
    with gzip.open(PRICES / "aws_gpu_spot_availability_preemption.jsonl.gz", "rt") as file:
        lines = [line for line in file if json.loads(line)["max_nodes"] == 1]

    assert reclaim_rate(lines).reclaims == sum(json.loads(line)["drops"] for line in lines)
