"""When pods ran, as their statuses tell it: what budgets count by."""

import json

import pytest

from forebay.kube.pods import PodDecoder

SPEC = {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "100m"}}}]}
PLAIN = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}


def read(status, spec=SPEC, counted=()):
    metadata = {"name": "p", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-03-02T11:00:00Z"}
    body = {"metadata": metadata, "spec": {"nodeName": "n1", **spec}, "status": status}
    return PodDecoder(timed=counted).object(json.dumps(body).encode())


def stamp(minute):
    return None if minute is None else f"2026-03-02T12:{minute:02d}:00Z"


def running(start):
    return {"running": {"startedAt": stamp(start)}}


def terminated(start, end):
    return {"terminated": {"startedAt": stamp(start), "finishedAt": stamp(end), "exitCode": 0}}


def container(state, last=None, restarts=0):
    return {"state": state, "lastState": last or {}, "restartCount": restarts}


WAITING = {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize(
    ("phase", "init", "main", "started", "finished"),
    [
        pytest.param("Pending", [running(3)], [WAITING], 3, None, id="an init container holds the GPUs too"),
        pytest.param("Running", [terminated(1, 4)], [running(5)], 1, None, id="init containers count as begun"),
        pytest.param("Running", [running(2)], [running(5)], 2, None, id="a sidecar counts"),
        pytest.param("Succeeded", [terminated(1, 9)], [terminated(2, 8)], 1, 9, id="the sidecar ends last"),
        pytest.param("Failed", [], [terminated(1, 5), WAITING], 1, 5, id="who never began does not matter"),
        pytest.param("Failed", [], [terminated(1, 5), running(2)], 1, None, id="one end was never told"),
        pytest.param("Failed", [], [terminated(None, None)], None, None, id="ContainerStatusUnknown"),
        pytest.param("Running", [], [terminated(1, 5), running(2)], 1, None, id="one of two has ended"),
    ],
)
def test_from_the_first_start_to_the_last_end_of_any_container(phase, init, main, started, finished):
    pod = read(
        {
            "phase": phase,
            "initContainerStatuses": [container(state) for state in init],
            "containerStatuses": [container(state) for state in main],
        }
    )
    assert pod.started == (None if started is None else pod.created.replace(hour=12, minute=started))
    assert pod.finished == (None if finished is None else pod.created.replace(hour=12, minute=finished))
    assert not pod.restarted


def test_a_restarted_container_says_so():
    status = {"phase": "Running", "containerStatuses": [container(running(9), terminated(5, 8), 3)]}
    pod = read(status)
    assert pod.restarted
    assert pod.started == pod.created.replace(hour=12, minute=5)


def test_of_pods_without_gpu_it_is_read_only_where_a_budget_counts_what_they_ask_for():
    status = {"phase": "Running", "containerStatuses": [container(running(5))]}
    assert read(status, PLAIN).started is None
    assert read(status, PLAIN, {"example.com/fpga"}).started is None
    assert read(status, PLAIN, {"cpu"}).started is not None
