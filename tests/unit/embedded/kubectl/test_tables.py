"""Tables of `kubectl get`."""

from datetime import timedelta

import pytest

from forebay.embedded.api.custom_resources import CustomVersion
from forebay.embedded.api.kinds import EVENT_KIND, JOB_KIND, POD_KIND, ApiKind
from forebay.embedded.kubectl import tables
from forebay.embedded.kubectl.columns import pod_status
from forebay.embedded.kubectl.json_path import JsonPath
from forebay.model.spans import human
from tests.unit.embedded.worlds import Clock

NOW = Clock().now


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (timedelta(seconds=-5), "<invalid>"),
        (timedelta(seconds=-1), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=2), "2m"),
        (timedelta(minutes=9, seconds=5), "9m5s"),
        (timedelta(minutes=10, seconds=5), "10m"),
        (timedelta(hours=2, minutes=59), "179m"),
        (timedelta(hours=3), "3h"),
        (timedelta(hours=7, minutes=1), "7h1m"),
        (timedelta(hours=47), "47h"),
        (timedelta(days=2), "2d"),
        (timedelta(days=7, hours=23), "7d23h"),
        (timedelta(days=700), "700d"),
        (timedelta(days=731), "2y1d"),
        (timedelta(days=3650), "10y"),
    ],
)
def test_ages_grow_coarser(span, shown):
    assert human(span) == shown


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.size", [3]),
        (".spec.list[0]", ["a"]),
        (".spec.list[-1]", ["b"]),
        (".spec.list[*]", ["a", "b"]),
        ("{.spec.size}", [3]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.status!='True')].type", ["Broken"]),
        (r".metadata.labels.example\.com/x", ["y"]),
        (".metadata.labels['example.com/x']", ["y"]),
        (".spec.nothing.at.all", []),
    ],
)
def test_json_paths(path, found):
    obj = {
        "metadata": {"labels": {"example.com/x": "y"}},
        "spec": {"size": 3, "list": ["a", "b"]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Broken", "status": "False"}]},
    }
    assert JsonPath(path).find(obj) == found


@pytest.mark.parametrize("path", [".spec[?(@.a>1)]", ".spec[", "..x"])
def test_an_unsupported_json_path_is_an_error(path):
    with pytest.raises(ValueError, match="cannot read"):
        JsonPath(path)


def cells(kind, obj, custom=None):
    obj = {"metadata": {"name": "x", "creationTimestamp": "2029-12-31T23:59:00Z"}, **obj}
    columns = tables.columns_of(kind, custom)
    [row] = tables.table([obj], columns, {}, NOW)["rows"]
    return dict(zip((column.name for column in columns), row["cells"], strict=True))


def container(ready=False, restarts=0, **state):  # noqa: FBT002 (reads well at its calls)
    return {"name": "c", "ready": ready, "restartCount": restarts, "state": state}


@pytest.mark.parametrize(
    ("status", "more", "word"),
    [
        ({"phase": "Pending"}, {}, "Pending"),
        ({"phase": "Running", "containerStatuses": [container(True, running={})]}, {}, "Running"),
        (
            {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ErrImagePull"})]},
            {},
            "ErrImagePull",
        ),
        ({"phase": "Succeeded", "containerStatuses": [container(terminated={"reason": "Completed"})]}, {}, "Completed"),
        ({"phase": "Failed", "containerStatuses": [container(terminated={"exitCode": 3})]}, {}, "ExitCode:3"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "Evicted"),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            {},
            "SchedulingGated",
        ),
        ({"phase": "Running"}, {"deletionTimestamp": "2030-01-01T00:00:00Z"}, "Terminating"),
        ({"phase": "Running", "reason": "NodeLost"}, {"deletionTimestamp": "2030-01-01T00:00:00Z"}, "Unknown"),
    ],
)
def test_a_pods_status_is_the_most_specific_reason(status, more, word):
    assert pod_status({"metadata": more, "spec": {}, "status": status}) == word


def test_a_pods_row():
    last = {"terminated": {"finishedAt": "2029-12-31T23:58:00Z"}}
    states = [container(True, 2, running={}) | {"lastState": last}, container(False, 0, waiting={})]
    pod = {
        "spec": {"nodeName": "n", "containers": [{}, {}]},
        "status": {"phase": "Running", "containerStatuses": states},
    }

    shown = cells(POD_KIND, pod)

    assert (shown["Ready"], shown["Restarts"], shown["Age"]) == ("1/2", "2 (2m ago)", "60s")
    assert (shown["Node"], shown["IP"]) == ("n", "<none>")


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"completions": 3}, {"succeeded": 1, "startTime": "2029-12-31T23:59:30Z"}, ("Running", "1/3", "30s")),
        ({"parallelism": 4}, {}, ("Running", "0/1 of 4", "")),
        (
            {"completions": 1},
            {
                "succeeded": 1,
                "startTime": "2029-12-31T23:00:00Z",
                "completionTime": "2029-12-31T23:05:00Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
            ("Complete", "1/1", "5m"),
        ),
        ({"completions": 1}, {"conditions": [{"type": "Suspended", "status": "True"}]}, ("Suspended", "0/1", "")),
    ],
)
def test_a_jobs_row(spec, status, expected):
    shown = cells(JOB_KIND, {"spec": spec, "status": status})

    assert (shown["Status"], shown["Completions"], shown["Duration"]) == expected


def test_an_events_row():
    shown = cells(
        EVENT_KIND,
        {
            "involvedObject": {"kind": "Pod", "name": "p"},
            "type": "Warning",
            "reason": "Failed",
            "message": "no",
            "lastTimestamp": "2029-12-31T23:59:50Z",
            "series": {"count": 7},
            "source": {"component": "scheduler", "host": "h"},
        },
    )

    assert (shown["Last Seen"], shown["Object"], shown["Count"]) == ("10s", "pod/p", "7")
    assert shown["Source"] == "scheduler, h"


def test_custom_columns_show_what_is_there_and_nothing_else():
    columns = (
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Since", "type": "date", "jsonPath": ".status.since"},
        {"name": "Labels", "type": "string", "jsonPath": ".spec.labels", "priority": 1},
        {"name": "Gone", "type": "string", "jsonPath": ".spec.gone"},
    )
    custom = CustomVersion(schema={}, columns=columns, selectable=(), scale=None)
    obj = {"spec": {"size": 3, "labels": {"a": "b"}}, "status": {"since": "2029-12-31T23:00:00Z"}}

    shown = cells(ApiKind(group="g", plural="ts", kind="T", custom=True), obj, custom)

    assert shown == {"Name": "x", "Size": 3, "Since": "60m", "Labels": '{"a":"b"}', "Gone": None}
