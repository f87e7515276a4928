"""Garbage collection of dependents: background, foreground and orphan."""

from tests.contract.kube.api_client import refused
from tests.contract.kube.objects import config_map, finalized, owned

FOREGROUND = {"propagationPolicy": "Foreground"}
BACKGROUND = {"propagationPolicy": "Background"}
ORPHAN = {"propagationPolicy": "Orphan"}


async def test_dependents_are_deleted_with_their_owner(api):
    owner = await api("configmaps").create(config_map("owner"))
    child = await api("configmaps").create(owned(config_map("child"), owner))
    await api("configmaps").create(owned(config_map("grandchild"), child))

    await api("configmaps").delete("owner", BACKGROUND)

    assert (await refused(api("configmaps").get("owner"))).status == 404
    await api("configmaps").gone("child")
    await api("configmaps").gone("grandchild")


async def test_a_foreground_deletion_waits_for_dependents_that_block_it(api):
    owner = await api("configmaps").create(config_map("owner"))
    child = finalized(owned(config_map("child"), owner, blockOwnerDeletion=True), "example.com/x")
    await api("configmaps").create(child)

    answer = await api("configmaps").delete("owner", FOREGROUND)

    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert answer["metadata"]["deletionTimestamp"]
    await api("configmaps").until("child", lambda seen: "deletionTimestamp" in seen["metadata"])
    assert (await api("configmaps").get("owner"))["metadata"]["finalizers"] == ["foregroundDeletion"]

    await api("configmaps").patch("child", {"metadata": {"finalizers": None}})
    await api("configmaps").gone("owner")


async def test_a_foreground_deletion_does_not_wait_for_dependents_that_do_not_block_it(api):
    owner = await api("configmaps").create(config_map("owner"))
    await api("configmaps").create(finalized(owned(config_map("child"), owner), "example.com/x"))

    await api("configmaps").delete("owner", FOREGROUND)

    await api("configmaps").gone("owner")
    await api("configmaps").until("child", lambda seen: "deletionTimestamp" in seen["metadata"])
    await api("configmaps").patch("child", {"metadata": {"finalizers": None}})


async def test_orphans_stay_without_their_owner(api):
    owner = await api("configmaps").create(config_map("owner"))
    await api("configmaps").create(owned(config_map("child"), owner))

    answer = await api("configmaps").delete("owner", ORPHAN)
    assert answer["metadata"]["finalizers"] == ["orphan"]

    await api("configmaps").gone("owner")
    assert "ownerReferences" not in (await api("configmaps").get("child"))["metadata"]


async def test_one_owner_is_enough_to_stay(api):
    owner = await api("configmaps").create(config_map("owner"))
    other = await api("configmaps").create(config_map("other"))
    await api("configmaps").create(owned(owned(config_map("child"), owner), other))

    await api("configmaps").delete("owner", BACKGROUND)

    left = await api("configmaps").until("child", lambda seen: len(seen["metadata"]["ownerReferences"]) == 1)
    assert left["metadata"]["ownerReferences"][0]["name"] == "other"


async def test_a_dependent_of_an_owner_that_never_existed_is_deleted(api):
    owner = await api("configmaps").create(config_map("owner"))
    owner["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"

    await api("configmaps").create(owned(config_map("child"), owner))

    await api("configmaps").gone("child")
    assert (await api("configmaps").get("owner"))["metadata"]["name"] == "owner"


async def test_the_older_flag_orphans_too(api):
    owner = await api("configmaps").create(config_map("owner"))
    await api("configmaps").create(owned(config_map("child"), owner))

    answer = await api("configmaps").delete("owner", {"orphanDependents": True})

    assert answer["metadata"]["finalizers"] == ["orphan"]
    await api("configmaps").gone("owner")


async def test_an_unknown_propagation_policy_is_refused(api):
    await api("configmaps").create(config_map("owner"))

    refusal = await refused(api("configmaps").delete("owner", {"propagationPolicy": "Sideways"}))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0][0] == "propagationPolicy"


async def test_there_is_only_one_controlling_owner(api):
    first = await api("configmaps").create(config_map("first"))
    second = await api("configmaps").create(config_map("second"))
    child = owned(owned(config_map("child"), first, controller=True), second, controller=True)

    refusal = await refused(api("configmaps").create(child))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert "Only one reference can have Controller set to true" in refusal.message
