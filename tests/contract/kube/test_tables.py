"""Tables that `kubectl get` prints."""

import pytest

from tests.contract.kube.api_client import STRATEGIC, TABLE
from tests.contract.kube.objects import config_map, node, pod, version
from tests.contract.kube.widgets import widget


def columns(table):
    return [column["name"] for column in table["columnDefinitions"]]


def cells(table, name):
    """The row of that name, ages left out."""
    [row] = [row for row in table["rows"] if row["cells"][0] == name]
    return {key: value for key, value in zip(columns(table), row["cells"], strict=True) if key != "Age"}


async def pod_cells(api, name):
    return cells(await api("pods").list(accept=TABLE), name)


async def test_a_table_of_pods(api):
    await api("pods").create(pod("p"))

    table = await api("pods").list(accept=TABLE)

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert version(table)
    assert [
        (column["name"], column["type"], column["format"], column["priority"]) for column in table["columnDefinitions"]
    ] == [
        ("Name", "string", "name", 0),
        ("Ready", "string", "", 0),
        ("Status", "string", "", 0),
        ("Restarts", "string", "", 0),
        ("Age", "string", "", 0),
        ("IP", "string", "", 1),
        ("Node", "string", "", 1),
        ("Nominated Node", "string", "", 1),
        ("Readiness Gates", "string", "", 1),
    ]
    assert cells(table, "p") == {
        "Name": "p",
        "Ready": "0/1",
        "Status": "Pending",
        "Restarts": "0",
        "IP": "<none>",
        "Node": "<none>",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }
    [row] = table["rows"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "p"
    assert "spec" not in row["object"]


async def test_the_status_column_of_a_pod(api):
    await api("pods").create(pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
    assert (await pod_cells(api, "gated"))["Status"] == "SchedulingGated"

    await api("pods").create(pod("p", nodeName="n1", restartPolicy="Never"))
    base = {"name": "main", "image": "i", "imageID": "", "restartCount": 0}
    running = {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "podIPs": [{"ip": "10.0.0.7"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [base | {"ready": True, "state": {"running": {"startedAt": "2030-01-01T00:00:00Z"}}}],
    }
    await api("pods").patch("p", {"status": running}, "status", kind=STRATEGIC)
    shown = await pod_cells(api, "p")
    assert (shown["Ready"], shown["Status"], shown["IP"], shown["Node"]) == ("1/1", "Running", "10.0.0.7", "n1")

    await api("pods").delete("p")
    assert (await pod_cells(api, "p"))["Status"] == "Terminating"

    await api("pods").create(pod("q", nodeName="n1", restartPolicy="Never"))
    failed = {"terminated": {"exitCode": 3, "reason": "Error"}}
    status = {"phase": "Failed", "containerStatuses": [base | {"ready": False, "state": failed}]}
    await api("pods").patch("q", {"status": status}, "status", kind=STRATEGIC)
    assert (await pod_cells(api, "q"))["Status"] == "Error"

    await api("pods").create(pod("r", nodeName="n1"))
    waiting = {"waiting": {"reason": "ImagePullBackOff"}}
    status = {"phase": "Pending", "containerStatuses": [base | {"ready": False, "state": waiting}]}
    await api("pods").patch("r", {"status": status}, "status", kind=STRATEGIC)
    assert (await pod_cells(api, "r"))["Status"] == "ImagePullBackOff"


async def test_a_finished_pods_row_is_marked(api):
    await api("pods").create(pod("p", nodeName="n1", restartPolicy="Never"))
    base = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    done = base | {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    await api("pods").patch(
        "p", {"status": {"phase": "Succeeded", "containerStatuses": [done]}}, "status", kind=STRATEGIC
    )

    table = await api("pods").list(accept=TABLE)

    assert cells(table, "p")["Status"] == "Completed"
    [condition] = table["rows"][0]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Completed", "True", "Succeeded")


async def test_a_table_of_nodes(api):
    name = api.named("n")
    role = {"node-role.kubernetes.io/gpu": ""}
    await api.cluster("nodes").create(node(name, labels=role, unschedulable=True))
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Talos"},
    }
    await api.cluster("nodes").patch(name, {"status": status}, "status", kind=STRATEGIC)

    table = await api.cluster("nodes").list(accept=TABLE, fieldSelector=f"metadata.name={name}")

    assert cells(table, name) == {
        "Name": name,
        "Status": "Ready,SchedulingDisabled",
        "Roles": "gpu",
        "Version": "v1.36.4",
        "Internal-IP": "10.0.0.1",
        "External-IP": "<none>",
        "OS-Image": "Talos",
        "Kernel-Version": "<unknown>",
        "Container-Runtime": "<unknown>",
    }
    await api.cluster("nodes").patch(
        name, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "status", kind=STRATEGIC
    )
    table = await api.cluster("nodes").list(accept=TABLE, fieldSelector=f"metadata.name={name}")
    assert cells(table, name)["Status"] == "NotReady,SchedulingDisabled"
    await api.cluster("nodes").delete(name)


@pytest.mark.since("1.36")
async def test_the_columns_of_the_kinds_we_show(api):
    async def of(resource, group_version="v1"):
        return columns(await api.cluster(resource, group_version).list(accept=TABLE, limit=1))

    assert await of("configmaps") == ["Name", "Data", "Age"]
    assert await of("secrets") == ["Name", "Type", "Data", "Age"]
    assert await of("namespaces") == ["Name", "Status", "Age"]
    assert await of("serviceaccounts") == ["Name", "Age"]
    assert await of("leases", "coordination.k8s.io/v1") == ["Name", "Holder", "Age"]
    assert await of("events") == [
        "Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name",
    ]  # fmt: skip
    assert await of("jobs", "batch/v1") == [
        "Name", "Status", "Completions", "Duration", "Age", "Containers", "Images", "Selector",
    ]  # fmt: skip
    assert await of("replicasets", "apps/v1") == [
        "Name", "Desired", "Current", "Ready", "Age", "Containers", "Images", "Selector",
    ]  # fmt: skip
    assert await of("daemonsets", "apps/v1") == [
        "Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age",
        "Containers", "Images", "Selector",
    ]  # fmt: skip
    assert await of("poddisruptionbudgets", "policy/v1") == [
        "Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age",
    ]  # fmt: skip
    assert await of("priorityclasses", "scheduling.k8s.io/v1") == [
        "Name", "Value", "Global-Default", "Age", "PreemptionPolicy",
    ]  # fmt: skip
    assert await of("customresourcedefinitions", "apiextensions.k8s.io/v1") == ["Name", "Created At"]


async def test_printer_columns_become_a_table(api):
    widgets = await api.widgets()
    await widgets.create(widget("w"))

    table = await widgets.list(accept=TABLE)

    assert [(column["name"], column["type"], column["priority"]) for column in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Phase", "string", 0),
        ("Mode", "string", 1),
        ("Age", "date", 0),
    ]
    assert cells(table, "w") == {"Name": "w", "Size": 5, "Phase": None, "Mode": "Sampled"}

    await widgets.patch("w", {"status": {"phase": "Ready"}}, "status")
    assert cells(await widgets.list(accept=TABLE), "w")["Phase"] == "Ready"


async def test_one_object_is_a_table_of_one_row(api):
    await api("configmaps").create(config_map("settings", colour="blue", size="1"))

    table = await api.ask("GET", f"{api('configmaps').path}/settings", accept=TABLE)

    assert cells(table, "settings") == {"Name": "settings", "Data": 2}


async def test_a_table_can_carry_the_whole_object_or_none(api):
    await api("configmaps").create(config_map("settings", labels={"mine": "yes"}, colour="blue"))

    whole = await api("configmaps").list(accept=TABLE, includeObject="Object", labelSelector="mine")
    assert whole["rows"][0]["object"]["data"] == {"colour": "blue"}
    assert whole["rows"][0]["object"]["kind"] == "ConfigMap"
    bare = await api("configmaps").list(accept=TABLE, includeObject="None", labelSelector="mine")
    assert bare["rows"][0]["object"] is None


async def test_a_watch_can_be_of_tables(api):
    listing = await api("pods").list(accept=TABLE)
    from tests.contract.kube.api_client import Events

    response = await api.send(
        "GET",
        api("pods").path,
        query={"watch": True, "resourceVersion": version(listing)},
        accept=TABLE,
        stream=True,
    )
    events = Events(response)
    await api("pods").create(pod("p"))
    await api("pods").patch("p", {"metadata": {"labels": {"a": "b"}}})
    kind, first = await events.next()
    again, second = await events.next()
    await events.close()

    assert (kind, first["kind"], first["rows"][0]["cells"][0]) == ("ADDED", "Table", "p")
    assert columns(first)[:3] == ["Name", "Ready", "Status"]
    # Columns are sent once.
    assert again == "MODIFIED"
    assert not second.get("columnDefinitions")
    assert second["rows"][0]["object"]["metadata"]["labels"] == {"a": "b"}
