"""Server-side apply: ownership of fields."""

from tests.contract.kube.api_client import APPLY, refused
from tests.contract.kube.objects import config_map, version


async def test_apply_creates_what_is_missing(api):
    applied = await api("configmaps").apply(config_map("settings", colour="blue"), "painter")

    assert applied["data"] == {"colour": "blue"}
    [entry] = applied["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("painter", "Apply", "v1")
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["fieldsV1"] == {"f:data": {"f:colour": {}}}


async def test_apply_twice_changes_nothing(api):
    first = await api("configmaps").apply(config_map("settings", colour="blue"), "painter")

    again = await api("configmaps").apply(config_map("settings", colour="blue"), "painter")

    assert version(again) == version(first)


async def test_a_field_that_its_manager_no_longer_applies_is_removed(api):
    await api("configmaps").apply(config_map("settings", colour="blue", size="1"), "painter")

    applied = await api("configmaps").apply(config_map("settings", size="1"), "painter")

    assert applied["data"] == {"size": "1"}


async def test_fields_of_other_managers_are_unchanged(api):
    await api("configmaps").apply(config_map("settings", colour="blue"), "painter")

    applied = await api("configmaps").apply(config_map("settings", size="1"), "tailor")

    assert applied["data"] == {"colour": "blue", "size": "1"}
    assert {entry["manager"] for entry in applied["metadata"]["managedFields"]} == {"painter", "tailor"}


async def test_two_managers_of_one_field_conflict(api):
    await api("configmaps").apply(config_map("settings", colour="blue"), "painter")

    refusal = await refused(api("configmaps").apply(config_map("settings", colour="red"), "tailor"))

    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert refusal.message == 'Apply failed with 1 conflict: conflict with "painter": .data.colour'
    assert refusal.causes == [(".data.colour", "FieldManagerConflict", 'conflict with "painter"')]


async def test_force_takes_the_field_over(api):
    await api("configmaps").apply(config_map("settings", colour="blue"), "painter")

    applied = await api("configmaps").apply(config_map("settings", colour="red"), "tailor", force=True)

    assert applied["data"] == {"colour": "red"}
    assert [entry["manager"] for entry in applied["metadata"]["managedFields"]] == ["tailor"]


async def test_the_same_value_is_shared(api):
    await api("configmaps").apply(config_map("settings", colour="blue"), "painter")

    applied = await api("configmaps").apply(config_map("settings", colour="blue"), "tailor")

    assert {entry["manager"] for entry in applied["metadata"]["managedFields"]} == {"painter", "tailor"}
    left = await api("configmaps").apply(config_map("settings"), "painter")
    assert left["data"] == {"colour": "blue"}


async def test_an_applied_object_needs_its_kind(api):
    refusal = await refused(
        api("configmaps").patch("settings", {"metadata": {"name": "settings"}}, kind=APPLY, fieldManager="painter")
    )

    assert (refusal.status, refusal.reason) == (400, "BadRequest")


async def test_apply_needs_a_manager(api):
    refusal = await refused(api("configmaps").patch("settings", config_map("settings"), kind=APPLY))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes == [("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")]


async def test_apply_of_a_stale_version_conflicts(api):
    first = await api("configmaps").apply(config_map("settings", colour="blue"), "painter")
    await api("configmaps").patch("settings", {"data": {"size": "1"}})
    stale = config_map("settings", colour="red")
    stale["metadata"]["resourceVersion"] = version(first)

    refusal = await refused(api("configmaps").apply(stale, "painter"))

    assert (refusal.status, refusal.reason) == (409, "Conflict")
