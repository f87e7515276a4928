"""Listed pods of RunPod: what is only a hint never hides one."""

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

from forebay.providers.runpod.wire import RunpodPods


@pytest.mark.parametrize(
    ("runtime", "idle"),
    [
        (None, False),
        ({"gpus": None}, False),
        ({"gpus": []}, False),
        ({"gpus": [{"util": 0}, {"util": 0.0}]}, True),
        ({"gpus": [{"util": 0}, {"util": 3.5}]}, False),
        ({"gpus": [{"util": None}]}, False),
        ({"gpus": [{"util": "none"}]}, False),
        ("starting", False),
    ],
)
def test_a_pod_is_listed_whatever_is_told_of_the_use_of_its_gpus(runtime, idle):
    text = msgspec.json.encode({"pods": [{"id": "p-1", "name": "a", "status": "RUNNING", "runtime": runtime}]})

    (pod,) = msgspec.json.decode(text, type=RunpodPods).pods

    assert pod.id == "p-1"
    assert pod.idle is idle


@pytest.mark.parametrize(
    ("cost", "read"),
    [
        (0.39, Decimal("0.39")),
        (1, Decimal(1)),
        ("0.39", Decimal("0.39")),
        (0, Decimal(0)),
        (-0.5, None),
        ("NaN", None),
        ("free", None),
        (None, None),
        (True, None),
        ([], None),
    ],
)
def test_a_cost_that_cannot_be_read_is_not_known(cost, read):
    assert listed(cost=cost).hourly_cost == read
    assert listed().hourly_cost is None


@pytest.mark.parametrize("env", [None, [], "A=1", {"A": 1}])
def test_an_environment_that_cannot_be_read_has_no_marks_of_ours(env):
    assert listed(env=env).variables == {}
    assert listed(env={"A": "1"}).variables == {"A": "1"}


@pytest.mark.parametrize("created", [None, "", "yesterday", 7, "2026-01-01T00:00:00"])
def test_a_time_of_creation_that_cannot_be_read_is_not_known(created):
    assert listed(createdAt=created).created is None
    assert listed(createdAt="2026-01-01T00:00:00Z").created == datetime(2026, 1, 1, tzinfo=UTC)


def listed(**fields):
    text = msgspec.json.encode({"pods": [{"id": "p-1", **fields}]})
    (pod,) = msgspec.json.decode(text, type=RunpodPods).pods
    return pod
