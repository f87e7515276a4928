"""Bindings: a pod is bound once, by the first client, and never moves."""

import asyncio

import pytest

from tests.contract.kube.api_client import JSON_PATCH, STRATEGIC, Refused, refused
from tests.contract.kube.objects import binding, pod, version


async def test_a_binding_assigns_the_pod_to_its_node(api):
    created = await api("pods").create(pod("p"))

    answer = await api("pods").post("p", "binding", binding("p", "n1", uid=created["metadata"]["uid"]))

    assert answer == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    bound = await api("pods").get("p")
    assert bound["spec"]["nodeName"] == "n1"
    conditions = {entry["type"]: entry for entry in bound["status"]["conditions"]}
    assert conditions["PodScheduled"]["status"] == "True"
    assert bound["metadata"]["generation"] == created["metadata"]["generation"]
    assert int(version(bound)) > int(version(created))


@pytest.mark.since("1.35")
async def test_labels_and_annotations_of_the_binding_are_added_to_the_pod(api):
    await api("pods").create(pod("p", labels={"team": "red"}))

    await api("pods").post("p", "binding", binding("p", "n1", labels={"managed": "true"}, annotations={"by": "us"}))

    bound = await api("pods").get("p")
    assert bound["metadata"]["labels"] == {"team": "red", "managed": "true"}
    assert bound["metadata"]["annotations"] == {"by": "us"}


async def test_a_bound_pod_is_not_bound_again(api):
    await api("pods").create(pod("p"))
    await api("pods").post("p", "binding", binding("p", "n1"))

    for target in ("n2", "n1"):
        refusal = await refused(api("pods").post("p", "binding", binding("p", target, labels={"late": "true"})))
        assert (refusal.status, refusal.reason) == (409, "Conflict")
        assert refusal.message == (
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
        )
    assert "labels" not in (await api("pods").get("p"))["metadata"]


async def test_of_many_concurrent_bindings_one_wins(api):
    for number in range(5):
        await api("pods").create(pod(f"p{number}"))

    for number in range(5):
        name = f"p{number}"
        binders = [api("pods").post(name, "binding", binding(name, f"n{target}")) for target in range(3)]
        answers = await asyncio.gather(*binders, return_exceptions=True)
        winners = [f"n{target}" for target, answer in enumerate(answers) if not isinstance(answer, Refused)]
        assert winners == [(await api("pods").get(name))["spec"]["nodeName"]]
        assert [answer.reason for answer in answers if isinstance(answer, Refused)] == ["Conflict", "Conflict"]


async def test_a_binding_may_require_a_uid(api):
    await api("pods").create(pod("p"))

    refusal = await refused(api("pods").post("p", "binding", binding("p", "n1", uid="someone-else")))

    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: someone-else" in refusal.message
    assert "nodeName" not in (await api("pods").get("p"))["spec"]


async def test_a_missing_pod_cannot_be_bound(api):
    refusal = await refused(api("pods").post("p", "binding", binding("p", "n1")))

    assert (refusal.status, refusal.reason) == (404, "NotFound")
    assert refusal.message == 'pods "p" not found'


async def test_a_gated_pod_cannot_be_bound(api):
    await api("pods").create(pod("p", schedulingGates=[{"name": "example.com/wait"}]))

    refusal = await refused(api("pods").post("p", "binding", binding("p", "n1")))

    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert refusal.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p has non-empty .spec.schedulingGates'
    )


async def test_a_pod_being_deleted_cannot_be_bound(api):
    body = pod("p")
    body["metadata"]["finalizers"] = ["example.com/x"]
    await api("pods").create(body)
    await api("pods").delete("p")

    refusal = await refused(api("pods").post("p", "binding", binding("p", "n1")))

    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert "is being deleted, cannot be assigned to a host" in refusal.message
    await api("pods").patch("p", {"metadata": {"finalizers": None}})


async def test_a_binding_names_its_pod(api):
    await api("pods").create(pod("p"))

    refusal = await refused(api("pods").post("p", "binding", {"target": {"kind": "Node", "name": "n1"}}))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == "name in URL does not match name in Binding object"


async def test_the_node_need_not_exist(api):
    await api("pods").create(pod("p"))

    await api("pods").post("p", "binding", binding("p", "no-such-node"))

    assert (await api("pods").get("p"))["spec"]["nodeName"] == "no-such-node"


async def test_a_node_name_cannot_be_patched(api):
    await api("pods").create(pod("p"))

    refusal = await refused(api("pods").patch("p", {"spec": {"nodeName": "n1"}}))

    assert (refusal.status, refusal.reason) == (422, "Invalid")


@pytest.mark.since("1.36")
async def test_a_nomination_is_set_on_unbound_pods_only(api):
    await api("pods").create(pod("p"))
    nominated = await api("pods").patch("p", {"status": {"nominatedNodeName": "n1"}}, "status")
    assert nominated["status"]["nominatedNodeName"] == "n1"
    moved = await api("pods").patch("p", {"status": {"nominatedNodeName": "n2"}}, "status")
    assert moved["status"]["nominatedNodeName"] == "n2"

    await api("pods").post("p", "binding", binding("p", "n1"))
    refusal = await refused(api("pods").patch("p", {"status": {"nominatedNodeName": "n3"}}, "status"))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message == (
        'Pod "p" is invalid: status.nominatedNodeName: Forbidden: '
        "may not be set on pods that are already bound to a node"
    )


@pytest.mark.since("1.36")
async def test_a_binding_removes_the_nomination(api):
    await api("pods").create(pod("p"))
    await api("pods").patch("p", {"status": {"nominatedNodeName": "n2"}}, "status")

    await api("pods").post("p", "binding", binding("p", "n1"))

    assert "nominatedNodeName" not in (await api("pods").get("p"))["status"]


async def test_gates_are_only_ever_removed(api):
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    created = await api("pods").create(pod("p", schedulingGates=gates))
    [condition] = created["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")

    refusal = await refused(api("pods").patch("p", {"spec": {"schedulingGates": [*gates, {"name": "example.com/c"}]}}))
    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert "only deletion is allowed, but found new scheduling gate" in refusal.message

    one = await api("pods").patch(
        "p",
        [
            {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "example.com/a"},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ],
        kind=JSON_PATCH,
    )
    assert one["spec"]["schedulingGates"] == [{"name": "example.com/b"}]

    none = await api("pods").patch("p", {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in none["spec"]


async def test_a_gated_pod_has_no_node_name(api):
    refusal = await refused(api("pods").create(pod("p", nodeName="n1", schedulingGates=[{"name": "example.com/a"}])))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message == (
        'Pod "p" is invalid: spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared'
    )


async def test_toleration_seconds_can_be_removed(api):
    await api("pods").create(pod("p", nodeName="n1"))

    patched = await api("pods").patch(
        "p", [{"op": "remove", "path": "/spec/tolerations/0/tolerationSeconds"}], kind=JSON_PATCH
    )

    assert "tolerationSeconds" not in patched["spec"]["tolerations"][0]
    assert patched["spec"]["tolerations"][1]["tolerationSeconds"] == 300


async def test_a_terminated_container_cannot_become_running_again(api):
    await api("pods").create(pod("p", nodeName="n1", restartPolicy="Never"))
    base = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    done = base | {"state": {"terminated": {"exitCode": 0}}}
    await api("pods").patch(
        "p", {"status": {"phase": "Running", "containerStatuses": [done]}}, "status", kind=STRATEGIC
    )

    again = base | {"state": {"running": {"startedAt": "2030-01-01T00:00:00Z"}}}
    refusal = await refused(
        api("pods").patch("p", {"status": {"containerStatuses": [again]}}, "status", kind=STRATEGIC)
    )

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert "may not be transitioned to non-terminated state" in refusal.message
