"""When the controller of a Job ends it, by what the Job says."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from forebay.kube.jobs import Job

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def job(seconds=60, began="2026-03-01T12:00:00Z", **condition):
    return msgspec.convert(
        {
            "metadata": {"name": "train", "namespace": "default", "uid": "u"},
            "spec": {"activeDeadlineSeconds": seconds},
            "status": {"startTime": began, "conditions": [condition] if condition else []},
        },
        Job,
    )


def test_a_deadline_counts_from_the_start():
    assert job().deadline == BEGAN + timedelta(seconds=60)
    assert job(type="Suspended", status="False").deadline is not None


@pytest.mark.parametrize(
    "without",
    [
        job(seconds=None),
        job(began=None),
        job(seconds=2**62),
        job(type="Failed", status="True"),
        job(type="Complete", status="True"),
    ],
)
def test_who_has_ended_or_not_begun_has_none(without):
    assert without.deadline is None
