"""What the records of a pod's containers say about the pod."""

import pytest

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, Transition
from forebay.api.meta import ObjectMeta
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.offload.pod_status import RemoteEnd
from forebay.offload.record_progress import ReportedExit, remote_container
from tests.unit.demand.builders import ago

S = InstanceState
REQUESTED = (S.REQUESTED, Reason.CAPACITY_NEEDED)
LAUNCHED = (S.LAUNCHED, Reason.LAUNCH_ACCEPTED)
RUNNING = (S.RUNNING, Reason.CONTAINER_RUNNING)


def record(*steps, name="first", age=60, **status):
    """A record that has gone through these states, a minute each; the last was entered a minute ago."""
    transitions = tuple(
        Transition(state=state, at=ago(minutes=len(steps) - number), reason=reason, message=f"{reason}.")
        for number, (state, reason) in enumerate(steps)
    )
    return GPUInstance(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=ago(minutes=age)),
        spec=GPUInstanceSpec(provider="runpod", delivers=Delivery.CONTAINER),
        status=GPUInstanceStatus(
            state=steps[-1][0], instance_id="pod1", message="So it is.", transitions=transitions, **status
        ),
    )


def seen(*records, reported=None):
    return remote_container(records, "main", "work:1", reported)


STORIES = {
    "nothing ordered yet": ((), False, None),
    "ordered": ((REQUESTED,), False, None),
    "launched": ((REQUESTED, LAUNCHED), False, None),
    "running": ((LAUNCHED, RUNNING), True, None),
    "finished": ((RUNNING, (S.FINISHED, Reason.CONTAINER_FINISHED)), True, RemoteEnd.EXITED),
    "finished before it was seen to run": (
        (LAUNCHED, (S.FINISHED, Reason.CONTAINER_FINISHED)),
        False,
        RemoteEnd.EXITED,
    ),
    "an image that cannot be pulled": ((LAUNCHED, (S.FINISHED, Reason.CONTAINER_FAILED)), False, RemoteEnd.BROKEN),
    "stopped while it ran": ((RUNNING, (S.FINISHED, Reason.CONTAINER_FAILED)), True, RemoteEnd.LOST),
    "vanished": ((RUNNING, (S.GONE, Reason.VANISHED)), True, RemoteEnd.LOST),
    "terminated while it ran": ((RUNNING, (S.TERMINATING, Reason.DELETED)), True, RemoteEnd.LOST),
    "finished and then terminated": (
        (RUNNING, (S.FINISHED, Reason.CONTAINER_FINISHED), (S.TERMINATING, Reason.CONTAINER_FINISHED)),
        True,
        RemoteEnd.EXITED,
    ),
    "never launched": ((REQUESTED, (S.GONE, Reason.NO_CAPACITY)), False, None),
    "too dear before it ran": ((LAUNCHED, (S.TERMINATING, Reason.PRICE_RAISED)), False, None),
    "too dear, and it ran": ((RUNNING, (S.TERMINATING, Reason.PRICE_RAISED)), True, RemoteEnd.LOST),
    "never ran": ((LAUNCHED, (S.TERMINATING, Reason.LAUNCH_TIMEOUT)), False, None),
}


@pytest.mark.parametrize("case", STORIES)
def test_a_record_says_whether_the_container_started_and_how_it_ended(case):
    steps, started, ended = STORIES[case]
    found = seen(record(*steps)) if steps else seen()
    assert (found.started is not None, found.ended) == (started, ended)


@pytest.mark.parametrize("after", [(), ((S.GONE, Reason.TERMINATED),)])
def test_of_a_container_that_never_ran_its_pod_is_told_why(after):
    found = seen(record(LAUNCHED, (S.TERMINATING, Reason.PRICE_RAISED), *after))
    assert (found.id, found.message) == (None, "PriceRaised.")
    assert seen(record(REQUESTED, (S.GONE, Reason.NO_CAPACITY))).message == "NoCapacity."


def test_times_are_those_of_the_transitions():
    found = seen(record(LAUNCHED, RUNNING, (S.FINISHED, Reason.CONTAINER_FINISHED), exit_code=3))
    assert (found.started, found.finished, found.exit_code) == (ago(minutes=2), ago(minutes=1), 3)


def test_the_report_of_the_shell_counts_before_any_listing():
    report = ReportedExit(exit_code=42, at=ago(seconds=5), restarts=1, last_exit_code=1)
    for steps in ((LAUNCHED,), (LAUNCHED, RUNNING), (RUNNING, (S.GONE, Reason.VANISHED))):
        found = seen(record(*steps), reported=report)
        assert (found.ended, found.exit_code, found.finished) == (RemoteEnd.EXITED, 42, ago(seconds=5))
        assert found.started is not None
        assert (found.restarts, found.last_exit_code) == (1, 1)


def test_a_launch_that_failed_is_no_end_while_the_next_is_tried():
    failed = record(REQUESTED, (S.GONE, Reason.NO_CAPACITY), name="first", age=60)
    second = record(LAUNCHED, RUNNING, name="second", age=30)
    assert seen(failed, second).started is not None
    assert seen(second, failed).started is not None
    assert seen(failed).id is None


def test_a_container_that_ran_decides_although_another_was_ordered_before():
    finished = (S.FINISHED, Reason.CONTAINER_FINISHED)
    ran = record(RUNNING, finished, (S.GONE, Reason.TERMINATED), name="ran", age=60)
    for later in ((REQUESTED,), (REQUESTED, (S.GONE, Reason.NOT_NEEDED))):
        assert seen(ran, record(*later, name="late", age=30)).ended is RemoteEnd.EXITED


FINISHED = (S.FINISHED, Reason.CONTAINER_FINISHED)


@pytest.mark.parametrize(
    ("steps", "reported", "ended"),
    [
        ((RUNNING, FINISHED), None, None),
        ((RUNNING, FINISHED), ReportedExit(restarts=1, last_exit_code=1), None),
        ((RUNNING, FINISHED), ReportedExit(whole=True), RemoteEnd.UNREPORTED),
        ((RUNNING, FINISHED), ReportedExit(exit_code=0, whole=True), RemoteEnd.EXITED),
        ((RUNNING, FINISHED, (S.TERMINATING, Reason.CONTAINER_FINISHED)), None, RemoteEnd.UNREPORTED),
        ((LAUNCHED, FINISHED, (S.GONE, Reason.VANISHED)), None, RemoteEnd.UNREPORTED),
    ],
)
def test_a_command_that_reported_no_exit_code_has_not_succeeded(steps, reported, ended):
    assert remote_container((record(*steps),), "main", "work:1", reported, has_command=True).ended is ended


def test_a_provider_that_tells_exit_codes_is_believed():
    told = remote_container((record(RUNNING, FINISHED, exit_code=0),), "main", "work:1", has_command=True)
    assert (told.ended, told.exit_code) == (RemoteEnd.EXITED, 0)
