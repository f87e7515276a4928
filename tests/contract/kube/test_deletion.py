"""Deletion: at once, after a grace period, or when the last finalizer is removed."""

from tests.contract.kube.api_client import STRATEGIC, refused
from tests.contract.kube.objects import config_map, finalized, names, pod, version


async def test_an_object_with_a_finalizer_stays_until_it_is_removed(api):
    created = await api("configmaps").create(finalized(config_map("a"), "example.com/x"))

    answer = await api("configmaps").delete("a")

    assert answer["kind"] == "ConfigMap"
    assert answer["metadata"]["deletionTimestamp"].endswith("Z")
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    stays = await api("configmaps").get("a")
    assert stays["metadata"]["finalizers"] == ["example.com/x"]
    assert int(version(stays)) > int(version(created))

    last = await api("configmaps").patch("a", {"metadata": {"finalizers": None}})
    assert "finalizers" not in last["metadata"]
    assert (await refused(api("configmaps").get("a"))).status == 404


async def test_a_second_deletion_of_a_finalized_object_changes_nothing(api):
    await api("configmaps").create(finalized(config_map("a"), "example.com/x"))
    first = await api("configmaps").delete("a")

    second = await api("configmaps").delete("a")

    assert version(second) == version(first)
    assert second["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]
    await api("configmaps").patch("a", {"metadata": {"finalizers": None}})


async def test_finalizers_may_be_removed_one_by_one(api):
    await api("configmaps").create(finalized(config_map("a"), "example.com/x", "example.com/y"))
    await api("configmaps").delete("a")

    one = await api("configmaps").patch("a", {"metadata": {"finalizers": ["example.com/y"]}})

    assert one["metadata"]["finalizers"] == ["example.com/y"]
    await api("configmaps").patch("a", {"metadata": {"finalizers": []}})
    assert (await refused(api("configmaps").get("a"))).status == 404


async def test_no_finalizer_is_added_to_an_object_that_is_being_deleted(api):
    await api("configmaps").create(finalized(config_map("a"), "example.com/x"))
    await api("configmaps").delete("a")

    refusal = await refused(
        api("configmaps").patch("a", {"metadata": {"finalizers": ["example.com/x", "example.com/z"]}})
    )

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message == (
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
        'being deleted, found new finalizers []string{"example.com/z"}'
    )
    assert refusal.causes[0][:2] == ("metadata.finalizers", "FieldValueForbidden")
    await api("configmaps").patch("a", {"metadata": {"finalizers": None}})


async def test_other_fields_may_change_while_being_deleted(api):
    await api("configmaps").create(finalized(config_map("a"), "example.com/x"))
    await api("configmaps").delete("a")

    assert (await api("configmaps").patch("a", {"data": {"note": "last words"}}))["data"] == {"note": "last words"}
    await api("configmaps").patch("a", {"metadata": {"finalizers": None}})


async def test_a_deletion_timestamp_cannot_be_set_or_unset_by_hand(api):
    created = await api("configmaps").create(finalized(config_map("a"), "example.com/x"))
    created["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    refusal = await refused(api("configmaps").update(created))
    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0] == (
        "metadata.deletionTimestamp",
        "FieldValueInvalid",
        'Invalid value: "2030-01-01T00:00:00Z": field is immutable',
    )

    await api("configmaps").delete("a")
    kept = await api("configmaps").patch("a", {"metadata": {"deletionTimestamp": None}})
    assert kept["metadata"]["deletionTimestamp"]
    await api("configmaps").patch("a", {"metadata": {"finalizers": None}})


async def test_the_removal_of_the_last_finalizer_is_watched_as_a_deletion(api):
    created = await api("configmaps").create(finalized(config_map("a"), "example.com/x"))

    async with api("configmaps").watch(resourceVersion=version(created), fieldSelector="metadata.name=a") as events:
        await api("configmaps").delete("a")
        await api("configmaps").patch("a", {"metadata": {"finalizers": None}})
        (marked, body), (ended, _) = [await events.next(), await events.next()]

    assert (marked, ended) == ("MODIFIED", "DELETED")
    assert body["metadata"]["deletionTimestamp"]


async def test_a_finalizer_is_a_qualified_name(api):
    refusal = await refused(api("configmaps").create(finalized(config_map("a"), "just-a-word")))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0][0] == "metadata.finalizers[0]"
    assert "name is neither a standard finalizer name nor is it fully qualified" in refusal.message


async def test_an_unbound_pod_is_gone_at_once(api):
    await api("pods").create(pod("p"))

    answer = await api("pods").delete("p")

    assert answer["kind"] == "Pod"
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await refused(api("pods").get("p"))).status == 404


async def test_the_deletion_of_a_pod_is_watched_in_two_events_even_without_grace(api):
    start = version(await api("pods").list())
    async with api("pods").watch(resourceVersion=start) as events:
        await api("pods").create(pod("unbound"))
        await api("pods").delete("unbound")
        await api("pods").create(pod("bound", nodeName=api.named("n")))
        await api("pods").delete("bound", {"gracePeriodSeconds": 0})
        seen = [await events.next() for _ in range(6)]

    assert [(kind, body["metadata"]["name"]) for kind, body in seen] == [
        *((kind, "unbound") for kind in ("ADDED", "MODIFIED", "DELETED")),
        *((kind, "bound") for kind in ("ADDED", "MODIFIED", "DELETED")),
    ]
    assert seen[1][1]["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_bound_pod_waits_for_its_kubelet(api):
    await api("pods").create(pod("p", nodeName=api.named("n")))

    answer = await api("pods").delete("p")

    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    assert answer["metadata"]["deletionTimestamp"]
    stays = await api("pods").get("p")
    assert stays["metadata"]["deletionTimestamp"] == answer["metadata"]["deletionTimestamp"]

    await api("pods").delete("p", {"gracePeriodSeconds": 0})
    assert (await refused(api("pods").get("p"))).status == 404


async def test_the_deletion_timestamp_lies_the_grace_period_ahead(api):
    from datetime import datetime

    created = await api("pods").create(pod("p", nodeName=api.named("n")))
    answer = await api("pods").delete("p", {"gracePeriodSeconds": 300})

    born = datetime.fromisoformat(created["metadata"]["creationTimestamp"])
    ends = datetime.fromisoformat(answer["metadata"]["deletionTimestamp"])
    assert 295 <= (ends - born).total_seconds() <= 310
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 300


async def test_a_pods_own_grace_period_is_the_default(api):
    await api("pods").create(pod("p", nodeName=api.named("n"), terminationGracePeriodSeconds=7))

    assert (await api("pods").delete("p"))["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_second_deletion_may_only_shorten_the_grace_period(api):
    await api("pods").create(pod("p", nodeName=api.named("n")))
    await api("pods").delete("p", {"gracePeriodSeconds": 20})

    longer = await api("pods").delete("p", {"gracePeriodSeconds": 60})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 20
    shorter = await api("pods").delete("p", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5


async def test_a_graceful_deletion_counts_as_a_change_of_the_spec(api):
    created = await api("pods").create(pod("p", nodeName=api.named("n")))

    answer = await api("pods").delete("p")

    assert answer["metadata"]["generation"] == created["metadata"]["generation"] + 1


async def test_a_finished_pod_is_gone_at_once(api):
    await api("pods").create(pod("p", nodeName=api.named("n")))
    await api("pods").patch("p", {"status": {"phase": "Succeeded"}}, "status", kind=STRATEGIC)

    await api("pods").delete("p")

    assert (await refused(api("pods").get("p"))).status == 404


async def test_grace_zero_does_not_override_a_finalizer(api):
    await api("pods").create(finalized(pod("p", nodeName=api.named("n")), "example.com/x"))

    await api("pods").delete("p", {"gracePeriodSeconds": 0})

    stays = await api("pods").get("p")
    assert stays["metadata"]["deletionGracePeriodSeconds"] == 0
    await api("pods").patch("p", {"metadata": {"finalizers": None}})
    assert (await refused(api("pods").get("p"))).status == 404


async def test_a_finalizer_removed_within_the_grace_period_leaves_the_pod_to_its_kubelet(api):
    await api("pods").create(finalized(pod("p", nodeName=api.named("n")), "example.com/x"))
    await api("pods").delete("p")

    await api("pods").patch("p", {"metadata": {"finalizers": None}})

    assert (await api("pods").get("p"))["metadata"]["deletionTimestamp"]
    await api("pods").delete("p", gracePeriodSeconds=0)
    assert names(await api("pods").list()) == []


async def test_a_negative_grace_period_means_one_second_at_least(api):
    await api("pods").create(pod("p", nodeName=api.named("n")))

    answer = await api("pods").delete("p", {"gracePeriodSeconds": -5})

    assert answer["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_a_collection_of_pods_is_deleted_with_its_grace(api):
    await api("pods").create(pod("bound", nodeName=api.named("n")))
    await api("pods").create(pod("free"))

    await api("pods").delete_all()
    assert names(await api("pods").list()) == ["bound"]

    await api("pods").delete_all({"gracePeriodSeconds": 0})
    assert names(await api("pods").list()) == []
