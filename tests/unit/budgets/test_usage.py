"""From when to when a pod used how much, by what its status and the clocks say."""

from datetime import UTC, datetime

import pytest

from forebay.budgets.usage import Run, described, from_microseconds, microseconds, run_of, seconds
from forebay.model.quantities import GpuHours
from forebay.model.workloads import Phase
from tests.unit.budgets.factories import START, at, pod

T0 = int(START.timestamp())


def ran(*, started, finished=None, created=-100, known=None, seen=1000, **fields):
    """Start and end of the run in seconds after START."""
    found = run_of(
        pod(started=started, finished=finished, created=at(created), **fields),
        None if known is None else T0 + known,
        T0 + seen,
    )
    return None if found is None else (found.start - T0, None if found.end is None else found.end - T0)


def test_times_are_counted_from_1970_as_in_kubernetes():
    assert seconds(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert seconds(datetime(1970, 1, 2, 0, 0, 1, 999_999, tzinfo=UTC)) == 86_401
    assert from_microseconds(microseconds(at(3.25))) == at(3.25)


def test_the_earliest_start_that_was_ever_seen_holds():
    assert ran(started=50) == (50, None)
    assert ran(started=50, known=20) == (20, None)
    assert ran(started=50, known=80) == (50, None)


def test_a_start_before_the_creation_is_moved_by_the_error_of_the_clock():
    assert ran(started=40, created=50) == (50, None)
    assert ran(started=40, created=50, known=50) == (50, None)
    assert ran(started=40, finished=140, created=50) == (50, 150)
    assert ran(started=40, finished=140, created=50, seen=145) == (50, 145), "not later than it was seen"
    assert ran(started=40, finished=140, created=50, seen=120) == (50, 140), "the clock was corrected meanwhile"


def test_a_finish_before_the_start_is_no_time():
    assert ran(started=50, finished=20) == (50, 50)


@pytest.mark.parametrize(("deleted", "end"), [(None, 300), (200, 200), (400, 300)])
def test_an_end_that_nobody_reports_is_when_the_pod_was_deleted_or_first_seen_ended(deleted, end):
    lost = pod(started=50, finished=60, created=at(0), deleted=None if deleted is None else at(deleted))
    lost = type(lost)(**{name: getattr(lost, name) for name in lost.__struct_fields__} | {"finished": None})
    assert run_of(lost, None, T0 + 300) == Run(T0 + 50, T0 + end, end_reported=False)


def test_amounts_are_described_in_their_unit():
    hours = GpuHours.parse("1500m")
    assert [described(hours, name) for name in ("nvidia.com/gpu", "cpu", "example.com/tpu")] == [
        "1.5 GPU-h",
        "1.5 core-h",
        "1.5 example.com/tpu-h",
    ]


def test_an_end_is_reported_where_the_status_says_when():
    assert run_of(pod(started=0, finished=5), None, T0 + 9) == Run(T0, T0 + 5, end_reported=True)
    assert run_of(pod(started=0, phase=Phase.FAILED), None, T0 + 9) == Run(T0, T0 + 9, end_reported=False)
