"""What the audit of budgets reads of pods and budgets, as an API server writes them."""

import json
from datetime import UTC, datetime

import pytest

from forebay.kube.audited import AUDITED_BUDGETS, AUDITED_PODS

GPU = "nvidia.com/gpu"
CREATED = "2026-03-02T11:00:00Z"


def read(*, spec=None, status=None, **metadata):
    meta = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": CREATED, **metadata}
    body = {"metadata": meta, "spec": {"containers": [asks()], **(spec or {})}, "status": status or running()}
    return AUDITED_PODS.make_decoder().object(json.dumps(body).encode())


def asks(gpus=1, **more):
    return {"name": "main", "resources": {"requests": {GPU: str(gpus)}}, **more}


def at(minute):
    return f"2026-03-02T12:{minute:02}:00Z"


def status(phase, *states, init=(), **more):
    return {"phase": phase, "containerStatuses": list(states), "initContainerStatuses": list(init), **more}


def running(**more):
    return status("Running", {"state": {"running": {"startedAt": at(1)}}}, **more)


def ran(start, end, restarts=0):
    state = {"terminated": {"startedAt": at(start), "finishedAt": at(end)}}
    return {"state": state, "restartCount": restarts}


def writer(fields, time=None, **more):
    return {"manager": "kubectl", "operation": "Update", "time": time or at(5), "fieldsV1": fields, **more}


def minutes(pod):
    return [(run.start.minute, None if run.end is None else run.end.minute) for run in pod.runs]


def test_an_ordinary_pod():
    pod = read()
    assert (pod.key, pod.uid, pod.resource_version) == (("n", "p"), "u", 7)
    assert (pod.requests, minutes(pod), pod.ended, pod.conclusive) == ({GPU: 1000}, [(1, None)], False, True)


def test_a_pod_has_the_runs_of_the_containers_that_the_kubelet_has_reported_and_of_no_others():
    waits = read(status={"phase": "Pending"})
    assert (waits.runs, waits.ended, waits.conclusive) == ((), False, True)
    plain = read(status={"phase": "Running", "containerStatuses": [{"state": {"running": {"startedAt": at(1)}}}]})
    assert minutes(plain) == [(1, None)]
    first = read(status={"phase": "Pending", "initContainerStatuses": [ran(1, 2)]})
    assert minutes(first) == [(1, 2)]


def test_every_run_that_the_status_shows():
    restarted = {
        "state": {"running": {"startedAt": at(9)}},
        "lastState": {"terminated": {"startedAt": at(2), "finishedAt": at(8)}},
        "restartCount": 1,
    }
    waiting = {"state": {"waiting": {"reason": "PodInitializing"}}}
    pod = read(status=status("Running", restarted, waiting, init=[ran(1, 2)]))
    assert (minutes(pod), pod.conclusive) == ([(1, 2), (9, None), (2, 8)], True)
    ended = read(status=status("Succeeded", ran(2, 8), ran(3, 4)))
    assert (minutes(ended), ended.ended, ended.conclusive) == ([(2, 8), (3, 4)], True, True)


@pytest.mark.parametrize(
    "told",
    [
        {"status": status("Running", ran(1, 2, restarts=2))},
        {"status": status("Failed", {"state": {"running": {"startedAt": at(1)}}})},
        {"status": status("Failed", ran(1, 2), {"state": {"running": {"startedAt": at(1)}}})},
        {"status": status("Running", ran(3, 4), init=[ran(1, 2, restarts=2)])},
        {"creationTimestamp": at(2), "status": status("Succeeded", ran(3, 4), ran(1, 4))},
        {"status": running(conditions=[{"type": "Ready", "status": "False"}])},
        {"creationTimestamp": at(2)},
        {"spec": {"resourceClaims": [{"name": "gpu"}]}},
        {"managedFields": [writer({"f:metadata": {"f:labels": {"f:team": {}}}})]},
        {"managedFields": [writer({"f:spec": {"f:containers": {'k:{"name":"main"}': {}}}})]},
        {"managedFields": [writer({}, subresource="resize")]},
    ],
    ids=[
        "restarted twice",
        "ended without an end",
        "one of two ended without an end",
        "an init container restarted twice",
        "a slow clock for one of two",
        "on a lost node",
        "a slow clock",
        "devices",
        "labels",
        "requests",
        "resized",
    ],
)
def test_pods_whose_status_does_not_tell_everything(told):
    assert not read(**told).conclusive


@pytest.mark.parametrize(
    "told",
    [
        {"managedFields": [writer({"f:metadata": {"f:labels": {}}, "f:spec": {"f:containers": {}}}, time=CREATED)]},
        {"managedFields": [writer({"f:status": {"f:phase": {}}}), writer({"f:metadata": {"f:annotations": {}}})]},
        {"managedFields": [{"manager": "old", "operation": "Update"}]},
        {"status": running(conditions=[{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}])},
        {"status": status("Succeeded", ran(1, 2), conditions=[{"type": "Ready", "status": "False"}])},
        {"status": status("Running", ran(1, 2, restarts=1))},
        {"creationTimestamp": at(1)},
    ],
)
def test_pods_whose_status_tells_everything(told):
    assert read(**told).conclusive


def test_requests_are_those_that_the_scheduler_reserves():
    sidecar = {"restartPolicy": "Always"}
    containers = {"containers": [asks(1), asks(2)]}
    assert read(spec=containers).requests == {GPU: 3000}
    assert read(spec={**containers, "initContainers": [asks(2)]}).requests == {GPU: 3000}
    assert read(spec={**containers, "initContainers": [asks(8)]}).requests == {GPU: 8000}
    assert read(spec={**containers, "initContainers": [asks(1, **sidecar), asks(4)]}).requests == {GPU: 5000}
    assert read(spec={**containers, "initContainers": [asks(4), asks(1, **sidecar)]}).requests == {GPU: 4000}
    assert read(spec={**containers, "initContainers": [asks(1), asks(1, **sidecar)]}).requests == {GPU: 4000}
    limits = {"containers": [{"resources": {"limits": {GPU: 2, "cpu": "1500m"}, "requests": {"cpu": "0.1"}}}]}
    assert read(spec={**limits, "overhead": {"cpu": "250m"}}).requests == {GPU: 2000, "cpu": 350}
    assert read(spec={**containers, "resources": {"requests": {"cpu": "2"}}}).requests == {GPU: 3000, "cpu": 2000}


def test_when_the_selector_of_a_budget_was_changed():
    def budget(*writers):
        meta = {"name": "b", "namespace": "n", "uid": "u", "resourceVersion": "3", "creationTimestamp": CREATED}
        body = {"metadata": {**meta, "managedFields": list(writers)}, "spec": {}}
        return AUDITED_BUDGETS.make_decoder().object(json.dumps(body).encode())

    selector = {"f:spec": {"f:selector": {"f:matchLabels": {}}}}
    assert budget().selector_changed is None
    assert budget(writer(selector, time=CREATED), writer({"f:status": {}})).selector_changed is None
    changed = budget(writer(selector), writer(selector, time=at(9)))
    assert changed.selector_changed == datetime(2026, 3, 2, 12, 9, tzinfo=UTC)
    assert (changed.created.hour, changed.key, changed.resource_version) == (11, ("n", "b"), 3)


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        pytest.param({"containers": [asks(), {"name": "helper"}]}, {GPU: 1000}, id="one of two"),
        pytest.param({"containers": [{"resources": {"limits": {GPU: "2"}}}]}, {GPU: 2000}, id="a limit is a request"),
        pytest.param(
            {"containers": [{"resources": {"limits": {GPU: "2"}, "requests": {GPU: 1}}}]}, {GPU: 1000}, id="both"
        ),
        pytest.param(
            {"containers": [asks()], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
            {GPU: 1000},
            id="init containers without",
        ),
        pytest.param(
            {"containers": [{"name": "main"}], "initContainers": [asks(2), asks(1, restartPolicy="Always")]},
            {GPU: 2000},
            id="of init containers only",
        ),
        pytest.param(
            {"containers": [asks()], "initContainers": [asks(1, restartPolicy="Always"), asks(4)]},
            {GPU: 5000},
            id="beside a sidecar",
        ),
        pytest.param({"containers": [asks("1m")]}, {GPU: 1}, id="a thousandth"),
        pytest.param({"containers": [asks("1u")]}, {GPU: 1}, id="less counts as one"),
        pytest.param({"containers": [{"name": "main"}], "overhead": {GPU: "1"}}, {}, id="overhead of nothing"),
        pytest.param({"containers": [asks()], "overhead": {GPU: "250m"}}, {GPU: 1250}, id="overhead"),
        pytest.param({"containers": [asks()], "resources": {"requests": {GPU: "3"}}}, {GPU: 3000}, id="of the pod"),
    ],
)
def test_requests_are_what_the_scheduler_reserves(spec, requests):
    assert read(spec=spec).requests == requests


def test_a_container_that_could_not_be_started_has_no_run():
    never = {"state": {"terminated": {"reason": "ContainerCannotRun"}}}
    assert minutes(read(status=status("Running", never, ran(1, 2)))) == [(1, 2)]
