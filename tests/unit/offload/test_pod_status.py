"""What a remote container stands for in the status of its pod."""

from datetime import timedelta

import pytest

from forebay.offload.pod_status import RemoteContainer, RemoteEnd, pod_status, unsupported_status
from tests.unit.demand.builders import NOW, ago

BOUND = ago(minutes=10)
STARTED = ago(minutes=8)
FINISHED = ago(minutes=1)


def remote(**fields):
    return RemoteContainer(container="main", image="example.test/train:1", **fields)


def ended(end, **fields):
    return remote(id="pod1", started=STARTED, ended=end, finished=FINISHED, **fields)


def conditions(status):
    return {each["type"]: each["status"] for each in status["conditions"]}


def state(status):
    (container,) = status["containerStatuses"]
    (kind,) = [kind for kind, value in container["state"].items() if value is not None]
    return kind, container["state"][kind]


PHASES = {
    "not launched yet": (remote(), "Pending", "waiting", None, "ContainerCreating"),
    "launched": (remote(id="pod1", message="Pulling."), "Pending", "waiting", None, "ContainerCreating"),
    "running": (remote(id="pod1", started=STARTED), "Running", "running", None, None),
    "success": (ended(RemoteEnd.EXITED, exit_code=0), "Succeeded", "terminated", 0, "Completed"),
    "failure": (ended(RemoteEnd.EXITED, exit_code=42), "Failed", "terminated", 42, "Error"),
    "an end that nobody explains": (ended(RemoteEnd.EXITED), "Succeeded", "terminated", 0, "Completed"),
    "lost": (ended(RemoteEnd.LOST), "Failed", "terminated", 137, "ContainerStatusUnknown"),
    "stopped without a report": (ended(RemoteEnd.UNREPORTED), "Failed", "terminated", 137, "ContainerStatusUnknown"),
    "broken": (remote(ended=RemoteEnd.BROKEN, message="No such image."), "Failed", "terminated", 128, "StartError"),
}


@pytest.mark.parametrize("case", PHASES)
def test_phase_and_state(case):
    container, phase, kind, code, reason = PHASES[case]
    status = pod_status(container, BOUND, NOW)
    found, details = state(status)
    assert (status["phase"], found) == (phase, kind)
    assert details.get("exitCode") == code
    assert details.get("reason") == reason
    assert conditions(status)["Ready"] == ("True" if phase == "Running" else "False")
    assert conditions(status)["PodScheduled"] == "True"


def test_only_a_lost_container_is_a_disruption_that_failure_policies_may_ignore():
    for case, (container, *_) in PHASES.items():
        assert ("DisruptionTarget" in conditions(pod_status(container, BOUND, NOW))) == (case == "lost")


def test_times_of_the_container_are_those_of_the_provider():
    _, details = state(pod_status(ended(RemoteEnd.EXITED, exit_code=0), BOUND, NOW))
    assert details["startedAt"] == "2026-03-02T11:52:00Z"
    assert details["finishedAt"] == "2026-03-02T11:59:00Z"


def test_an_end_before_its_start_ends_at_its_start():
    late = remote(started=NOW, ended=RemoteEnd.EXITED, finished=NOW - timedelta(seconds=2), exit_code=0)
    _, details = state(pod_status(late, BOUND, NOW))
    assert details["finishedAt"] == details["startedAt"]


def test_restarts_count_and_the_last_exit_code_is_shown():
    status = pod_status(remote(started=STARTED, restarts=2, last_exit_code=3), BOUND, NOW)
    (container,) = status["containerStatuses"]
    assert container["restartCount"] == 2
    assert container["lastState"]["terminated"]["exitCode"] == 3


def test_the_same_facts_give_the_same_status_whenever_it_is_written():
    for container, *_ in PHASES.values():
        if container.finished is None and container.ended is not None:
            continue
        assert pod_status(container, BOUND, NOW) == pod_status(container, BOUND, NOW + timedelta(hours=1))


def test_a_daemon_set_pod_waits_with_a_reason_and_is_never_failed():
    status = unsupported_status({"agent": "example.test/agent:1"}, BOUND)
    assert status["phase"] == "Pending"
    assert state(status)[1]["reason"] == "NotSupported"
    assert "runpod.io/managed" in status["message"]
