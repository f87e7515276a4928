"""Watches in virtual time: bookmarks, timeouts, and how they end."""

import asyncio
import json

from forebay.embedded.api.bootstrap import open_store
from forebay.embedded.api.kinds import CONFIG_MAP_KIND, CRD_KIND
from forebay.embedded.api.watch import MAX_PENDING_CHANGES
from tests.unit.embedded.worlds import Api, define, named

PATH = "/api/v1/namespaces/default/configmaps"


async def lines(response):
    return [json.loads(line) async for chunk in response.chunks() for line in chunk.splitlines()]


async def test_an_idle_watch_gets_a_bookmark_every_minute():
    store = open_store(seed=1)
    loop = asyncio.get_running_loop()
    started = loop.time()
    query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion={store.version}"
    response = await Api(store).ask("GET", PATH + query)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(lines(response))
        await asyncio.sleep(90)
        store.create(CRD_KIND, _definition())
    told = reading.result()
    await response.close()

    assert loop.time() - started == 150
    assert [event["type"] for event in told] == ["BOOKMARK"] * 3
    assert int(told[-1]["object"]["metadata"]["resourceVersion"]) == store.version


def _definition():
    from tests.unit.embedded.worlds import a_crd

    return a_crd({})


async def test_no_change_is_missed_between_the_answer_and_the_first_read():
    store = open_store(seed=1)
    response = await Api(store).ask("GET", f"{PATH}?watch=1&timeoutSeconds=1&resourceVersion={store.version}")
    store.create(CONFIG_MAP_KIND, named("a"))
    await asyncio.sleep(0.5)
    store.delete(CONFIG_MAP_KIND, "default", "a")

    told = await lines(response)
    await response.close()

    assert [(event["type"], event["object"]["metadata"]["name"]) for event in told] == [
        ("ADDED", "a"),
        ("DELETED", "a"),
    ]


async def test_the_end_of_the_initial_events_is_marked_only_where_they_were_requested():
    store = open_store(seed=1)
    plain, asked = "allowWatchBookmarks=true", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    told = {}
    for query in (plain, f"{plain}&{asked}"):
        response = await Api(store).ask("GET", f"{PATH}?watch=1&timeoutSeconds=1&{query}")
        told[query] = [event["object"]["metadata"].get("annotations") for event in await lines(response)]
        await response.close()

    mark = {"k8s.io/initial-events-end": "true"}
    assert mark not in told[plain]
    assert mark in told[f"{plain}&{asked}"]


async def test_a_client_that_does_not_read_has_to_list_again():
    store = open_store(seed=1)
    store.create(CONFIG_MAP_KIND, named("settings"))
    response = await Api(store).ask("GET", f"{PATH}?watch=1&resourceVersion={store.version}")
    for number in range(MAX_PENDING_CHANGES + 1):
        store.update(CONFIG_MAP_KIND, named("settings", data={"n": str(number)}))

    told = await lines(response)
    await response.close()

    assert [event["type"] for event in told] == ["ERROR"]
    assert told[0]["object"]["code"] == 410


async def test_a_closed_watch_unsubscribes():
    store = open_store(seed=1)
    before = {topic: len(calls) for topic, calls in store._subscribers.items()}
    response = await Api(store).ask("GET", f"{PATH}?watch=1")
    await response.close()

    assert {topic: len(calls) for topic, calls in store._subscribers.items() if calls} == before


async def test_a_watch_ends_with_the_crd_of_its_kind():
    store = open_store(seed=1)
    things = define(store, {"size": {"type": "integer"}})
    store.create(things, named("t", spec={"size": 1}))
    response = await Api(store).ask("GET", "/apis/example.dev/v1/things?watch=1")

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(lines(response))
        await asyncio.sleep(1)
        store.delete(CRD_KIND, None, "things.example.dev")
    await response.close()

    assert [event["type"] for event in reading.result()] == ["ADDED", "DELETED"]


async def test_an_object_that_no_longer_matches_is_sent_in_its_last_matching_state():
    store = open_store(seed=1)
    obj = named("a", data={"n": "1"})
    obj["metadata"]["labels"] = {"mine": "yes"}
    created = store.create(CONFIG_MAP_KIND, obj)
    start = store.version
    left = store.update(
        CONFIG_MAP_KIND, {**created, "metadata": {"name": "a", "namespace": "default"}, "data": {"n": "2"}}
    )

    query = f"?watch=1&timeoutSeconds=1&labelSelector=mine&resourceVersion={start}"
    response = await Api(store).ask("GET", PATH + query)
    [event] = await lines(response)
    await response.close()

    assert (event["type"], event["object"]["data"]) == ("DELETED", {"n": "1"})
    assert event["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
