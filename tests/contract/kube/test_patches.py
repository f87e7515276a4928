"""JSON merge, JSON and strategic merge patches, and what each may not do."""

from tests.contract.kube.api_client import JSON_PATCH, MERGE, STRATEGIC, refused
from tests.contract.kube.objects import config_map, node, pod, version


async def test_a_merge_patch_changes_adds_and_removes(api):
    await api("configmaps").create(config_map("settings", labels={"team": "red"}, colour="blue", size="1"))

    patched = await api("configmaps").patch(
        "settings", {"metadata": {"labels": {"team": None}}, "data": {"colour": None, "size": "2", "shape": "round"}}
    )

    assert patched["data"] == {"size": "2", "shape": "round"}
    assert "labels" not in patched["metadata"]


async def test_a_merge_patch_replaces_lists_whole(api):
    await api("pods").create(pod("p", tolerations=[{"key": "a", "operator": "Exists"}]))
    bare = await api("pods").get("p")
    defaults = [entry for entry in bare["spec"]["tolerations"] if entry["key"] != "a"]

    refusal = await refused(api("pods").patch("p", {"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}}))
    assert (refusal.status, refusal.reason) == (422, "Invalid")

    kept = [{"key": "a", "operator": "Exists"}, *defaults]
    patched = await api("pods").patch("p", {"spec": {"tolerations": [*kept, {"key": "b", "operator": "Exists"}]}})
    assert [entry["key"] for entry in patched["spec"]["tolerations"]][-1] == "b"


async def test_a_patch_with_a_version_is_a_compare_and_swap(api):
    created = await api("configmaps").create(config_map("settings", colour="blue"))
    await api("configmaps").patch("settings", {"data": {"colour": "red"}})

    guarded = {"metadata": {"resourceVersion": version(created)}, "data": {"colour": "green"}}
    refusal = await refused(api("configmaps").patch("settings", guarded))

    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert "the object has been modified" in refusal.message


async def test_a_patch_that_names_another_uid_is_refused(api):
    created = await api("configmaps").create(config_map("settings"))
    stranger = "11111111-2222-3333-4444-555555555555"

    refusal = await refused(api("configmaps").patch("settings", {"metadata": {"uid": stranger}, "data": {"a": "b"}}))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message == (
        f'ConfigMap "settings" is invalid: metadata.uid: Invalid value: "{stranger}": field is immutable'
    )
    own = {"metadata": {"uid": created["metadata"]["uid"]}, "data": {"a": "b"}}
    assert (await api("configmaps").patch("settings", own))["data"] == {"a": "b"}


async def test_a_patch_of_nothing_is_not_found(api):
    refusal = await refused(api("configmaps").patch("nothing", {"data": {"colour": "red"}}))

    assert (refusal.status, refusal.reason) == (404, "NotFound")


async def test_an_empty_patch_makes_no_new_version(api):
    created = await api("configmaps").create(config_map("settings"))

    assert version(await api("configmaps").patch("settings", {})) == version(created)


async def test_a_json_patch_applies_its_operations_in_order(api):
    await api("configmaps").create(config_map("settings", colour="blue"))

    patched = await api("configmaps").patch(
        "settings",
        [
            {"op": "test", "path": "/data/colour", "value": "blue"},
            {"op": "replace", "path": "/data/colour", "value": "red"},
            {"op": "add", "path": "/metadata/labels", "value": {"a.example/b": "c"}},
            {"op": "add", "path": "/metadata/labels/d.example~1e", "value": "f"},
            {"op": "copy", "from": "/data/colour", "path": "/data/copy"},
            {"op": "move", "from": "/data/copy", "path": "/data/moved"},
        ],
        kind=JSON_PATCH,
    )

    assert patched["data"] == {"colour": "red", "moved": "red"}
    assert patched["metadata"]["labels"] == {"a.example/b": "c", "d.example/e": "f"}


async def test_a_failing_test_operation_changes_nothing(api):
    created = await api("configmaps").create(config_map("settings", colour="blue"))

    refusal = await refused(
        api("configmaps").patch(
            "settings",
            [
                {"op": "replace", "path": "/data/colour", "value": "green"},
                {"op": "test", "path": "/data/colour", "value": "red"},
            ],
            kind=JSON_PATCH,
        )
    )

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message == "the server rejected our request due to an error in our request"
    assert await api("configmaps").get("settings") == created


async def test_removing_what_is_not_there_is_refused(api):
    await api("configmaps").create(config_map("settings", colour="blue"))

    refusal = await refused(
        api("configmaps").patch("settings", [{"op": "remove", "path": "/data/shape"}], kind=JSON_PATCH)
    )

    assert (refusal.status, refusal.reason) == (422, "Invalid")


async def test_a_json_patch_can_test_that_a_field_is_missing(api):
    await api("configmaps").create({"metadata": {"name": "settings"}})
    absent = {"op": "test", "path": "/data", "value": None}
    add = [absent, {"op": "add", "path": "/data", "value": {"colour": "blue"}}]

    patched = await api("configmaps").patch("settings", add, kind=JSON_PATCH)

    assert patched["data"] == {"colour": "blue"}
    for patch in (add, [{"op": "test", "path": "/none/at/all", "value": None}]):
        refusal = await refused(api("configmaps").patch("settings", patch, kind=JSON_PATCH))
        assert (refusal.status, refusal.reason) == (422, "Invalid")


async def test_a_json_patch_that_is_no_list_is_a_bad_request(api):
    await api("configmaps").create(config_map("settings"))

    refusal = await refused(api("configmaps").patch("settings", {"data": {}}, kind=JSON_PATCH))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")


async def test_a_strategic_patch_merges_lists_by_their_keys(api):
    name = api.named("n")
    taint = {"key": "a", "effect": "NoSchedule", "value": "1"}
    await api.cluster("nodes").create(node(name, taints=[taint]))
    condition = {"type": "Ready", "status": "False", "reason": "Starting"}
    await api.cluster("nodes").patch(name, {"status": {"conditions": [condition]}}, "status", kind=STRATEGIC)

    other = {"type": "GpuHealthy", "status": "True"}
    ready = {"type": "Ready", "status": "True"}
    patched = await api.cluster("nodes").patch(
        name, {"status": {"conditions": [ready, other]}}, "status", kind=STRATEGIC
    )

    conditions = {entry["type"]: entry for entry in patched["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["Ready"]["reason"] == "Starting"
    assert conditions["GpuHealthy"]["status"] == "True"
    await api.cluster("nodes").delete(name)


async def test_a_strategic_patch_replaces_lists_that_have_no_key(api):
    name = api.named("n")
    await api.cluster("nodes").create(node(name, taints=[{"key": "a", "effect": "NoSchedule"}]))

    patched = await api.cluster("nodes").patch(
        name, {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}, kind=STRATEGIC
    )

    assert [taint["key"] for taint in patched["spec"]["taints"]] == ["b"]
    await api.cluster("nodes").delete(name)


async def test_a_strategic_patch_deletes_list_entries_on_request(api):
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    created = pod("p", schedulingGates=gates)
    created["metadata"]["finalizers"] = ["example.com/x", "example.com/y"]
    await api("pods").create(created)

    patched = await api("pods").patch(
        "p",
        {
            "spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/a"}]},
            "metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/x"]},
        },
        kind=STRATEGIC,
    )

    assert patched["spec"]["schedulingGates"] == [{"name": "example.com/b"}]
    assert patched["metadata"]["finalizers"] == ["example.com/y"]
    await api("pods").patch("p", {"metadata": {"finalizers": None}})


async def test_a_strategic_patch_adds_to_finalizers(api):
    created = pod("p")
    created["metadata"]["finalizers"] = ["example.com/x"]
    await api("pods").create(created)

    patched = await api("pods").patch("p", {"metadata": {"finalizers": ["example.com/y"]}}, kind=STRATEGIC)

    assert sorted(patched["metadata"]["finalizers"]) == ["example.com/x", "example.com/y"]
    await api("pods").patch("p", {"metadata": {"finalizers": None}})


async def test_a_strategic_patch_merges_containers_by_name(api):
    await api("pods").create(pod("p"))

    patched = await api("pods").patch(
        "p", {"spec": {"containers": [{"name": "main", "image": "registry.example/main:2"}]}}, kind=STRATEGIC
    )

    assert [container["image"] for container in patched["spec"]["containers"]] == ["registry.example/main:2"]
    assert patched["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


async def test_a_strategic_patch_replaces_container_statuses_whole(api):
    await api("pods").create(pod("p", nodeName=api.named("n")))
    running = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
    started = {"running": {"startedAt": "2030-01-01T00:00:00Z"}}
    statuses = [running | {"state": started}]
    await api("pods").patch(
        "p", {"status": {"phase": "Running", "containerStatuses": statuses}}, "status", kind=STRATEGIC
    )

    done = {"exitCode": 0, "reason": "Completed"}
    finished = {"name": "main", "ready": False, "state": {"running": None, "terminated": done}}
    patched = await api("pods").patch(
        "p", {"status": {"phase": "Succeeded", "containerStatuses": [finished]}}, "status", kind=STRATEGIC
    )

    [status] = patched["status"]["containerStatuses"]
    assert status["image"] == ""
    assert status["state"]["terminated"]["exitCode"] == 0
    assert "running" not in status["state"]


async def test_an_unknown_kind_of_patch_is_not_supported(api):
    await api("configmaps").create(config_map("settings"))

    refusal = await refused(api("configmaps").patch("settings", {}, kind="application/json"))

    assert (refusal.status, refusal.reason) == (415, "UnsupportedMediaType")


async def test_a_patch_cannot_rename(api):
    await api("configmaps").create(config_map("settings"))

    refusal = await refused(api("configmaps").patch("settings", {"metadata": {"name": "other"}}, kind=MERGE))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == "the name of the object (other) does not match the name on the URL (settings)"


async def test_only_a_few_fields_of_a_pod_spec_can_be_patched(api):
    await api("pods").create(pod("p"))

    refusal = await refused(api("pods").patch("p", {"spec": {"priority": 7}}))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message.startswith(
        'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than'
    )
    assert refusal.causes[0][:2] == ("spec", "FieldValueForbidden")
