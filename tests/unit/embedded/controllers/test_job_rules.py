"""Rules of the Job controller: indexes, backoff, unsupported fields."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.embedded.controllers.cluster_state import pod_view
from forebay.embedded.controllers.job_rules import JobBackoff, indexes, indexes_text, job_spec

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def ended(phase, at):
    moment = (NOW + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ")
    state = {"terminated": {"exitCode": int(phase == "Failed"), "finishedAt": moment}}
    return pod_view(
        {
            "metadata": {"namespace": "d", "name": f"p{at}", "uid": f"u{at}", "creationTimestamp": moment},
            "spec": {"containers": []},
            "status": {"phase": phase, "containerStatuses": [{"name": "c", "state": state}]},
        }
    )


@pytest.mark.law
@given(st.sets(st.integers(0, 60)))
def test_indexes_are_read_back_from_their_text(found):
    assert indexes(indexes_text(found)) == found


@pytest.mark.parametrize(
    ("found", "text"), [(set(), ""), ({4}, "4"), ({0, 1}, "0,1"), ({0, 1, 2}, "0-2"), ({0, 2, 3, 4, 9}, "0,2-4,9")]
)
def test_indexes_are_written_as_the_real_controller_writes_them(found, text):
    assert indexes_text(found) == text


def test_each_failure_doubles_the_wait_up_to_ten_minutes():
    backoff, waits = JobBackoff(), []
    for at in range(8):
        backoff.add([], [ended("Failed", at)])
        waits.append(backoff.remaining(NOW + timedelta(seconds=at)))
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]


def test_a_success_resets_the_backoff_of_earlier_failures():
    backoff = JobBackoff()
    backoff.add([], [ended("Failed", 1), ended("Failed", 2)])
    backoff.add([ended("Succeeded", 5)], [ended("Failed", 3), ended("Failed", 7)])
    assert backoff.remaining(NOW + timedelta(seconds=7)) == 10
    backoff.add([ended("Succeeded", 9)], [])
    assert backoff.remaining(NOW + timedelta(seconds=9)) == 0


@pytest.mark.parametrize("field", ["backoffLimitPerIndex", "successPolicy"])
def test_a_field_that_is_not_implemented_is_refused_by_name(field):
    value = 1 if field == "backoffLimitPerIndex" else {"rules": []}
    with pytest.raises(ValueError, match=f"spec.{field} is not implemented"):
        job_spec({"spec": {"template": {}, field: value}})
