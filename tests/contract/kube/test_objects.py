"""Create, read, replace, delete: what every kind has in common."""

import asyncio

from tests.contract.kube.api_client import refused
from tests.contract.kube.objects import config_map, names, pod, version


async def test_a_created_object_is_returned_with_its_metadata(api):
    created = await api("configmaps").create(config_map("settings", colour="blue"))

    metadata = created["metadata"]
    assert metadata["name"] == "settings"
    assert metadata["namespace"] == api.namespace
    assert len(metadata["uid"]) == 36
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert len(metadata["creationTimestamp"]) == len("2030-01-01T00:00:00Z")
    assert (created["kind"], created["apiVersion"]) == ("ConfigMap", "v1")
    read = await api("configmaps").get("settings")
    assert read == created


async def test_a_name_is_taken_only_once(api):
    await api("configmaps").create(config_map("settings"))

    refusal = await refused(api("configmaps").create(config_map("settings")))

    assert (refusal.status, refusal.reason) == (409, "AlreadyExists")
    assert refusal.message == 'configmaps "settings" already exists'
    assert refusal.details == {"name": "settings", "kind": "configmaps"}
    assert refusal.body["kind"] == "Status"
    assert refusal.body["apiVersion"] == "v1"
    assert refusal.body["status"] == "Failure"
    assert refusal.body["metadata"] == {}
    assert refusal.body["code"] == 409


async def test_of_two_concurrent_creations_one_wins(api):
    racing = [api("configmaps").create(config_map("settings", by=str(number))) for number in range(5)]

    answers = await asyncio.gather(*racing, return_exceptions=True)

    winners = [answer for answer in answers if isinstance(answer, dict)]
    losers = [answer for answer in answers if not isinstance(answer, dict)]
    assert len(winners) == 1
    assert [loser.reason for loser in losers] == ["AlreadyExists"] * 4
    assert (await api("configmaps").get("settings"))["data"] == winners[0]["data"]


async def test_a_generated_name_is_the_prefix_and_five_letters(api):
    body = {"metadata": {"generateName": "run-"}}

    first = await api("configmaps").create(body)
    second = await api("configmaps").create(body)

    assert first["metadata"]["generateName"] == "run-"
    assert first["metadata"]["name"].startswith("run-")
    assert len(first["metadata"]["name"]) == len("run-") + 5
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_an_object_needs_a_name(api):
    refusal = await refused(api("configmaps").create({"metadata": {}}))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message == (
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )
    assert refusal.causes == [
        ("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
    ]
    assert refusal.details["kind"] == "ConfigMap"


async def test_a_name_must_be_a_dns_name(api):
    refusal = await refused(api("configmaps").create(config_map("Not_A_Name")))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message.startswith(
        'ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": '
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters"
    )
    assert refusal.causes[0][:2] == ("metadata.name", "FieldValueInvalid")


async def test_a_bad_label_is_refused(api):
    refusal = await refused(api("configmaps").create(config_map("settings", labels={"team": "not a label"})))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0][:2] == ("metadata.labels", "FieldValueInvalid")


async def test_a_resource_version_on_create_is_refused(api):
    body = config_map("settings")
    body["metadata"]["resourceVersion"] = "5"

    refusal = await refused(api("configmaps").create(body))

    assert refusal.status == 500
    assert refusal.message == "resourceVersion should not be set on objects to be created"


async def test_a_uid_on_create_is_ignored(api):
    body = config_map("settings")
    body["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"

    created = await api("configmaps").create(body)

    assert created["metadata"]["uid"] != body["metadata"]["uid"]


async def test_not_found_names_the_resource_and_the_object(api):
    refusal = await refused(api("configmaps").get("nothing"))

    assert (refusal.status, refusal.reason) == (404, "NotFound")
    assert refusal.message == 'configmaps "nothing" not found'
    assert refusal.details == {"name": "nothing", "kind": "configmaps"}

    grouped = await refused(api("leases", "coordination.k8s.io/v1").get("nothing"))
    assert grouped.message == 'leases.coordination.k8s.io "nothing" not found'
    assert grouped.details == {"name": "nothing", "group": "coordination.k8s.io", "kind": "leases"}


async def test_creation_in_a_missing_namespace_is_refused(api):
    refusal = await refused(api("configmaps", namespace=api.named("absent")).create(config_map("settings")))

    assert (refusal.status, refusal.reason) == (404, "NotFound")
    assert refusal.message == f'namespaces "{api.named("absent")}" not found'


async def test_a_list_of_a_missing_namespace_is_empty(api):
    assert (await api("configmaps", namespace=api.named("absent")).list())["items"] == []


async def test_a_namespace_in_the_body_must_be_that_of_the_path(api):
    body = config_map("settings")
    body["metadata"]["namespace"] = "elsewhere"

    refusal = await refused(api("configmaps").create(body))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == "the namespace of the provided object does not match the namespace sent on the request"


async def test_a_name_in_the_body_must_be_that_of_the_path(api):
    created = await api("configmaps").create(config_map("settings"))
    created["metadata"]["name"] = "other"

    refusal = await refused(api.ask("PUT", f"{api('configmaps').path}/settings", created))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == "the name of the object (other) does not match the name on the URL (settings)"


async def test_a_kind_in_the_body_must_be_that_of_the_path(api):
    refusal = await refused(api("configmaps").create(pod("p")))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")


async def test_a_replacement_of_a_stale_version_conflicts(api):
    stale = await api("configmaps").create(config_map("settings", colour="blue"))
    current = await api("configmaps").update(stale | {"data": {"colour": "red"}})
    assert int(version(current)) > int(version(stale))

    refusal = await refused(api("configmaps").update(stale | {"data": {"colour": "green"}}))

    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert refusal.message == (
        'Operation cannot be fulfilled on configmaps "settings": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert refusal.details == {"name": "settings", "kind": "configmaps"}
    assert (await api("configmaps").get("settings"))["data"] == {"colour": "red"}


async def test_a_replacement_without_a_version_always_wins(api):
    await api("configmaps").create(config_map("settings", colour="blue"))

    replaced = await api("configmaps").update(config_map("settings", colour="red"))

    assert replaced["data"] == {"colour": "red"}


async def test_some_kinds_are_only_replaced_with_a_version(api):
    leases = api("leases", "coordination.k8s.io/v1")
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    await leases.create(lease)

    refusal = await refused(leases.update(lease))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes == [
        ("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update")
    ]


async def test_a_replacement_of_nothing_is_not_found(api):
    refusal = await refused(api("configmaps").update(config_map("settings")))

    assert (refusal.status, refusal.reason) == (404, "NotFound")


async def test_a_replacement_that_changes_nothing_makes_no_new_version(api):
    created = await api("configmaps").create(config_map("settings", colour="blue"))

    again = await api("configmaps").update(created)

    assert version(again) == version(created)


async def test_system_fields_cannot_be_changed(api):
    created = await api("configmaps").create(config_map("settings"))
    identity = created["metadata"]["uid"], created["metadata"]["creationTimestamp"]

    renamed = created | {"metadata": created["metadata"] | {"uid": "11111111-2222-3333-4444-555555555555"}}
    refusal = await refused(api("configmaps").update(renamed))
    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 11111111-2222-3333-4444-555555555555" in refusal.message

    backdated = created | {"metadata": created["metadata"] | {"creationTimestamp": "2001-01-01T00:00:00Z"}}
    kept = await api("configmaps").update(backdated)
    assert (kept["metadata"]["uid"], kept["metadata"]["creationTimestamp"]) == identity


async def test_a_dry_run_answers_as_if_and_stores_nothing(api):
    imagined = await api("configmaps").create(config_map("settings"), dryRun="All")
    assert imagined["metadata"]["uid"]
    assert (await refused(api("configmaps").get("settings"))).status == 404

    real = await api("configmaps").create(config_map("settings", colour="blue"))
    patched = await api("configmaps").patch("settings", {"data": {"colour": "red"}}, dryRun="All")
    assert patched["data"] == {"colour": "red"}
    await api("configmaps").delete("settings", dryRun="All")
    assert await api("configmaps").get("settings") == real

    refusal = await refused(api("configmaps").create(config_map("settings"), dryRun="All"))
    assert refusal.reason == "AlreadyExists"


async def test_a_deletion_answers_with_a_status(api):
    created = await api("configmaps").create(config_map("settings"))

    answer = await api("configmaps").delete("settings")

    assert answer["kind"] == "Status"
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "settings", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    assert (await refused(api("configmaps").delete("settings"))).reason == "NotFound"


async def test_a_deletion_may_have_preconditions(api):
    created = await api("configmaps").create(config_map("settings"))
    uid = created["metadata"]["uid"]

    stranger = await refused(api("configmaps").delete("settings", {"preconditions": {"uid": "someone-else"}}))
    assert (stranger.status, stranger.reason) == (409, "Conflict")
    assert stranger.message == (
        'Operation cannot be fulfilled on ConfigMap "settings": '
        f"the UID in the precondition (someone-else) does not match the UID in record ({uid}). "
        "The object might have been deleted and then recreated"
    )

    stale = await refused(api("configmaps").delete("settings", {"preconditions": {"resourceVersion": "1"}}))
    assert (stale.status, stale.reason) == (409, "Conflict")
    assert stale.message == (
        'Operation cannot be fulfilled on ConfigMap "settings": '
        "the ResourceVersion in the precondition (1) does not match "
        f"the ResourceVersion in record ({version(created)}). "
        "The object might have been modified"
    )

    await api("configmaps").delete("settings", {"preconditions": {"uid": uid, "resourceVersion": version(created)}})
    assert (await refused(api("configmaps").get("settings"))).status == 404


async def test_a_collection_is_deleted_by_selector(api):
    for name, team in (("a", "red"), ("b", "red"), ("c", "blue")):
        await api("configmaps").create(config_map(name, labels={"team": team}))

    answer = await api("configmaps").delete_all(labelSelector="team=red")

    assert answer["kind"] == "ConfigMapList"
    assert sorted(names(answer)) == ["a", "b"]
    left = await api("configmaps").list(labelSelector="team")
    assert names(left) == ["c"]


async def test_generation_counts_changes_of_the_spec_only(api):
    jobs = api("jobs", "batch/v1")
    template = {
        "spec": {"restartPolicy": "Never", "schedulerName": "nobody", "containers": [{"name": "m", "image": "i"}]}
    }
    job = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    assert (await jobs.create(job))["metadata"]["generation"] == 1

    labelled = await jobs.patch("j", {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1

    changed = await jobs.patch("j", {"spec": {"parallelism": 3}})
    assert changed["metadata"]["generation"] == 2

    same = await jobs.patch("j", {"spec": {"parallelism": 3}})
    assert same["metadata"]["generation"] == 2


async def test_a_config_map_has_no_generation(api):
    assert "generation" not in (await api("configmaps").create(config_map("settings")))["metadata"]


async def test_broken_json_is_a_bad_request(api):
    refusal = await refused(api.ask("POST", api("configmaps").path, b'{"metadata":'))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")


async def test_a_body_of_the_wrong_type_is_a_bad_request(api):
    refusal = await refused(api("configmaps").create({"metadata": {"name": "settings"}, "data": {"number": 5}}))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
