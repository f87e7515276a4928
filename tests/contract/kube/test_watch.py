"""Watches: every change once and in order, from a version on, or a 410."""

import pytest

from tests.contract.kube.api_client import PARTIAL, STRATEGIC, refused
from tests.contract.kube.objects import binding, config_map, names, pod, version

END_OF_INITIAL_EVENTS = {"k8s.io/initial-events-end": "true"}
WATCH_LIST = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": True}


def summary(events):
    """Type and name of each event, without bookmarks."""
    return [(kind, body["metadata"]["name"]) for kind, body in events if kind != "BOOKMARK"]


async def test_a_watch_sends_all_changes_in_order(api):
    start = version(await api("configmaps").list())

    async with api("configmaps").watch(resourceVersion=start) as events:
        await api("configmaps").create(config_map("a"))
        await api("configmaps").create(config_map("b"))
        await api("configmaps").patch("a", {"data": {"colour": "red"}})
        await api("configmaps").delete("b")
        await api("configmaps").delete("a")
        seen = await events.until(lambda kind, body: kind == "DELETED" and body["metadata"]["name"] == "a")

    told = [event for event in summary(seen) if event[1] in {"a", "b"}]
    assert told == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("DELETED", "a")]
    versions = [int(version(body)) for _, body in seen]
    assert versions == sorted(set(versions))


async def test_a_watched_object_is_whole_and_has_its_kind(api):
    start = version(await api("configmaps").list())
    created = await api("configmaps").create(config_map("a", colour="blue"))

    async with api("configmaps").watch(resourceVersion=start, fieldSelector="metadata.name=a") as events:
        assert await events.next() == ("ADDED", created)


async def test_a_deletion_is_sent_with_the_last_state_and_a_version_of_its_own(api):
    created = await api("configmaps").create(config_map("a", colour="blue"))

    async with api("configmaps").watch(resourceVersion=version(created)) as events:
        await api("configmaps").delete("a")
        [*_, (kind, body)] = await events.until(lambda _, body: body["metadata"]["name"] == "a")

    assert kind == "DELETED"
    assert body["data"] == {"colour": "blue"}
    assert int(version(body)) > int(version(created))


async def test_a_watch_resumes_after_the_version_it_names(api):
    first = await api("configmaps").create(config_map("a"))
    await api("configmaps").create(config_map("b"))
    third = await api("configmaps").create(config_map("c"))

    async with api("configmaps").watch(resourceVersion=version(first)) as events:
        seen = await events.until(lambda _, body: body["metadata"]["name"] == "c")
    assert summary(seen)[-2:] == [("ADDED", "b"), ("ADDED", "c")]
    assert ("ADDED", "a") not in summary(seen)

    async with api("configmaps").watch(resourceVersion=version(third)) as events:
        await api("configmaps").delete("a")
        assert summary([await events.next()]) == [("DELETED", "a")]


@pytest.mark.parametrize("start", [{"resourceVersion": "0"}, {}], ids=["from 0", "from nowhere"])
async def test_a_watch_without_a_version_begins_with_all_objects(api, start):
    await api("configmaps").create(config_map("a"))
    await api("configmaps").create(config_map("b"))

    mine = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}
    async with api("configmaps").watch(**start, **mine) as events:
        present = summary([await events.next(), await events.next()])
        assert sorted(present) == [("ADDED", "a"), ("ADDED", "b")]
        await api("configmaps").create(config_map("c"))
        assert summary([await events.next()]) == [("ADDED", "c")]


async def test_an_object_that_begins_to_match_is_added_and_one_that_ceases_to_match_is_deleted(api):
    start = version(await api("configmaps").create(config_map("a", labels={"team": "blue"})))

    async with api("configmaps").watch(labelSelector="team=red", resourceVersion=start) as events:
        await api("configmaps").patch("a", {"metadata": {"labels": {"team": "red"}}})
        await api("configmaps").patch("a", {"data": {"size": "1"}})
        await api("configmaps").patch("a", {"metadata": {"labels": {"team": "blue"}}})
        await api("configmaps").patch("a", {"data": {"size": "2"}})
        await api("configmaps").patch("a", {"metadata": {"labels": {"team": "red"}}})
        seen = [await events.next() for _ in range(4)]

    assert [kind for kind, _ in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    # The object is shown in its last matching state, with the version of the change.
    assert seen[2][1]["metadata"]["labels"] == {"team": "red"}
    assert int(version(seen[2][1])) > int(version(seen[1][1]))


async def test_a_pod_that_is_bound_leaves_the_watch_of_unbound_ones(api):
    created = await api("pods").create(pod("p"))
    node = api.named("n")

    async with (
        api("pods").watch(fieldSelector="spec.nodeName=", resourceVersion=version(created)) as free,
        api("pods").watch(fieldSelector=f"spec.nodeName={node}", resourceVersion=version(created)) as bound,
    ):
        await api("pods").post("p", "binding", binding("p", node))
        assert (await free.next())[0] == "DELETED"
        kind, body = await bound.next()

    assert kind == "ADDED"
    assert body["spec"]["nodeName"] == node


async def test_a_version_older_than_history_is_gone(api):
    widgets = await api.widgets()
    await api.compact()

    async with widgets.watch(resourceVersion=1) as events:
        kind, body = await events.next()

    assert kind == "ERROR"
    assert body["kind"] == "Status"
    assert (body["code"], body["reason"]) == (410, "Expired")
    assert body["message"].startswith("too old resource version: 1 (")


async def test_a_watch_ends_at_its_timeout(api):
    async with api("secrets").watch(timeoutSeconds=1) as events:
        with pytest.raises(StopAsyncIteration):
            await events.next()


async def test_a_bookmark_carries_a_version_and_nothing_else(api):
    start = version(await api("pods").list())
    async with api("pods").watch(resourceVersion=start, allowWatchBookmarks=True, timeoutSeconds=3) as events:
        created = await api("pods").create(pod("p"))
        seen = await events.until(lambda kind, _: kind == "BOOKMARK")

    body = seen[-1][1]
    assert int(version(body)) >= int(version(created))
    assert body["kind"] == "Pod"
    assert {key: value for key, value in body["metadata"].items() if value} == {"resourceVersion": version(body)}


async def test_a_watch_list_sends_all_objects_then_its_end_bookmark_then_changes(api):
    await api("secrets").create({"metadata": {"name": "a"}})
    await api("secrets").create({"metadata": {"name": "b"}})

    async with api("secrets").watch(**WATCH_LIST) as events:
        seen = await events.until(lambda kind, _: kind == "BOOKMARK")
        assert sorted(summary(seen)) == [("ADDED", "a"), ("ADDED", "b")]
        mark = seen[-1][1]
        assert mark["metadata"]["annotations"] == END_OF_INITIAL_EVENTS
        assert mark["kind"] == "Secret"
        assert mark["apiVersion"] == "v1"
        listing = await api("secrets").list()
        assert int(version(mark)) <= int(version(listing))

        await api("secrets").create({"metadata": {"name": "c"}})
        assert summary([await events.next()]) == [("ADDED", "c")]

    async with api("secrets").watch(resourceVersion=version(mark)) as resumed:
        assert summary([await resumed.next()]) == [("ADDED", "c")]


async def test_the_end_bookmark_of_pods(api):
    await api("pods").create(pod("p", nodeName=api.named("n")))

    async with api("pods").watch(fieldSelector=f"spec.nodeName={api.named('n')}", **WATCH_LIST) as events:
        assert summary([await events.next()]) == [("ADDED", "p")]
        kind, mark = await events.next()

    assert kind == "BOOKMARK"
    assert mark == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": version(mark), "annotations": END_OF_INITIAL_EVENTS},
        "spec": {"containers": None},
        "status": {},
    }


async def test_an_empty_watch_list_is_just_its_end_bookmark(api):
    async with api("secrets").watch(labelSelector="no=such", **WATCH_LIST) as events:
        kind, mark = await events.next()

    assert kind == "BOOKMARK"
    assert mark["metadata"]["annotations"] == END_OF_INITIAL_EVENTS


async def test_a_watch_list_is_at_least_as_new_as_asked(api):
    created = await api("secrets").create({"metadata": {"name": "a"}})

    async with api("secrets").watch(resourceVersion=version(created), **WATCH_LIST) as events:
        seen = await events.until(lambda kind, _: kind == "BOOKMARK")

    assert summary(seen) == [("ADDED", "a")]
    assert int(version(seen[-1][1])) >= int(version(created))


async def test_a_watch_list_needs_its_version_match(api):
    query = {"watch": True, "sendInitialEvents": True, "allowWatchBookmarks": True}

    refusal = await refused(api.ask("GET", api("secrets").path, query=query))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes == [
        (
            "resourceVersionMatch",
            "FieldValueForbidden",
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )
    ]


async def test_initial_events_are_for_watches_only(api):
    refusal = await refused(
        api("secrets").list(sendInitialEvents=True, resourceVersionMatch="NotOlderThan", allowWatchBookmarks=True)
    )

    assert (refusal.status, refusal.reason) == (422, "Invalid")


async def test_a_watch_can_be_of_metadata_only(api):
    await api("secrets").create({"metadata": {"name": "a"}, "data": {"key": "dmFsdWU="}})

    response = await api.send(
        "GET", api("secrets").path, query={"watch": True, **WATCH_LIST}, accept=PARTIAL, stream=True
    )
    from tests.contract.kube.api_client import Events

    events = Events(response)
    kind, body = await events.next()
    end, mark = await events.next()
    await events.close()

    assert (kind, body["kind"], body["apiVersion"]) == ("ADDED", "PartialObjectMetadata", "meta.k8s.io/v1")
    assert body["metadata"]["name"] == "a"
    assert "data" not in body
    assert (end, mark["kind"]) == ("BOOKMARK", "PartialObjectMetadata")
    assert mark["metadata"]["annotations"] == END_OF_INITIAL_EVENTS


async def test_a_watch_of_the_cluster_sees_every_namespace(api):
    start = version(await api.cluster("configmaps").list())

    async with api.cluster("configmaps").watch(resourceVersion=start, labelSelector=f"mine={api.namespace}") as events:
        await api("configmaps").create(config_map("a", labels={"mine": api.namespace}))
        kind, body = await events.next()

    assert (kind, body["metadata"]["namespace"]) == ("ADDED", api.namespace)


async def test_a_status_change_is_a_modification(api):
    created = await api("pods").create(pod("p"))

    async with api("pods").watch(resourceVersion=version(created)) as events:
        await api("pods").patch("p", {"status": {"message": "hello"}}, "status", kind=STRATEGIC)
        kind, body = await events.next()

    assert (kind, body["status"]["message"]) == ("MODIFIED", "hello")


async def test_a_write_that_changes_nothing_is_not_sent(api):
    created = await api("configmaps").create(config_map("a", colour="blue"))

    async with api("configmaps").watch(resourceVersion=version(created), fieldSelector="metadata.name=a") as events:
        await api("configmaps").patch("a", {"data": {"colour": "blue"}})
        await api("configmaps").patch("a", {"data": {"colour": "red"}})
        kind, body = await events.next()

    assert (kind, body["data"]) == ("MODIFIED", {"colour": "red"})


async def test_a_list_and_a_watch_from_it_miss_nothing_between_them(api):
    await api("configmaps").create(config_map("a"))
    listing = await api("configmaps").list(fieldSelector="metadata.name!=kube-root-ca.crt")
    await api("configmaps").create(config_map("b"))

    assert names(listing) == ["a"]
    async with api("configmaps").watch(
        resourceVersion=version(listing), fieldSelector="metadata.name!=kube-root-ca.crt"
    ) as events:
        assert summary([await events.next()]) == [("ADDED", "b")]
