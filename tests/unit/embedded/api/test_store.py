"""The store: versions, conflicts, deletion, and lists of past versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import (
    CONFIG_MAP_KIND,
    DISRUPTION_BUDGET_KIND,
    EVENT_KIND,
    NAMESPACE_KIND,
    NODE_KIND,
    POD_KIND,
)
from forebay.embedded.api.store import Store
from forebay.kube.decoders import ADDED, DELETED, MODIFIED
from tests.unit.embedded.worlds import Api, Clock, a_pod, a_store, named


def refusal(call, *arguments, **options):
    with pytest.raises(ApiFailure) as refused:
        call(*arguments, **options)
    return refused.value


def test_written_objects_are_copied_and_stored_objects_never_change():
    store = a_store()
    mine = named("settings", data={"colour": "blue"})
    stored = store.create(CONFIG_MAP_KIND, mine)
    mine["data"]["colour"] = "red"
    assert store.get(CONFIG_MAP_KIND, "default", "settings")["data"] == {"colour": "blue"}

    store.update(CONFIG_MAP_KIND, {**stored, "data": {"colour": "green"}})

    assert stored["data"] == {"colour": "blue"}


def test_the_same_seed_gives_the_same_cluster():
    names = [
        a_store().create(POD_KIND, {"metadata": {"generateName": "p-"}, "spec": a_pod("x")["spec"]}) for _ in range(2)
    ]

    assert names[0] == names[1]


def test_an_update_of_an_old_version_is_a_conflict_and_one_without_a_version_wins():
    store = a_store()
    first = store.create(CONFIG_MAP_KIND, named("settings", data={"n": "1"}))
    store.update(CONFIG_MAP_KIND, {**first, "data": {"n": "2"}})

    assert refusal(store.update, CONFIG_MAP_KIND, {**first, "data": {"n": "3"}}).code == 409
    assert store.update(CONFIG_MAP_KIND, named("settings", data={"n": "4"}))["data"] == {"n": "4"}


def test_an_update_that_changes_nothing_is_no_event():
    store = a_store()
    stored = store.create(CONFIG_MAP_KIND, named("settings", data={"n": "1"}))
    heard = []
    store.subscribe(CONFIG_MAP_KIND, heard.append)

    assert store.update(CONFIG_MAP_KIND, named("settings", data={"n": "1"})) == stored
    assert heard == []


def test_status_and_spec_are_written_separately_and_only_the_spec_changes_the_generation():
    store = a_store()
    budget = store.create(DISRUPTION_BUDGET_KIND, named("b", spec={"minAvailable": 1}))

    both = {**budget, "spec": {"minAvailable": 2}, "status": {"disruptionsAllowed": 5}}
    by_status = store.update(DISRUPTION_BUDGET_KIND, both, subresource="status")
    assert (by_status["spec"], by_status["metadata"]["generation"]) == ({"minAvailable": 1}, 1)
    assert by_status["status"] == {"disruptionsAllowed": 5}

    by_spec = store.update(DISRUPTION_BUDGET_KIND, {**by_status, "spec": {"minAvailable": 2}, "status": {}})
    assert (by_spec["spec"], by_spec["metadata"]["generation"]) == ({"minAvailable": 2}, 2)
    assert by_spec["status"] == {"disruptionsAllowed": 5}


def test_subscribers_are_called_in_the_order_of_versions_even_when_one_of_them_writes():
    store = a_store()
    heard = []

    def echo(change):
        name = change.new["metadata"]["name"]
        heard.append(("first", change.type, name))
        if change.type == ADDED and name == "a":
            store.create(CONFIG_MAP_KIND, named("b"))

    store.subscribe(CONFIG_MAP_KIND, echo)
    end = store.subscribe(
        CONFIG_MAP_KIND, lambda change: heard.append(("second", change.type, change.new["metadata"]["name"]))
    )
    store.create(CONFIG_MAP_KIND, named("a"))
    end()
    store.delete(CONFIG_MAP_KIND, "default", "b")

    assert heard == [
        ("first", ADDED, "a"),
        ("second", ADDED, "a"),
        ("first", ADDED, "b"),
        ("second", ADDED, "b"),
        ("first", DELETED, "b"),
    ]


def test_a_failing_subscriber_does_not_keep_changes_from_the_others():
    store = a_store()
    heard = []

    def fail(change):
        if change.new["metadata"]["name"] == "a":
            store.create(CONFIG_MAP_KIND, named("b"))
            raise ZeroDivisionError

    store.subscribe(CONFIG_MAP_KIND, fail)
    store.subscribe(CONFIG_MAP_KIND, lambda change: heard.append(change.new["metadata"]["name"]))
    with pytest.raises(ZeroDivisionError):
        store.create(CONFIG_MAP_KIND, named("a"))

    assert heard == ["a", "b"]


def test_a_finalizer_keeps_an_object_until_it_is_removed():
    store = a_store()
    held = named("settings")
    held["metadata"]["finalizers"] = ["example.com/x"]
    store.create(CONFIG_MAP_KIND, held)
    heard = []
    store.subscribe(CONFIG_MAP_KIND, lambda change: heard.append(change.type))

    marked, gone = store.delete(CONFIG_MAP_KIND, "default", "settings")
    assert not gone
    assert marked["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:00Z"
    assert refusal(store.create, CONFIG_MAP_KIND, held).reason == "AlreadyExists"
    store.remove_finalizer(CONFIG_MAP_KIND, marked, "example.com/x")

    assert store.find(CONFIG_MAP_KIND, "default", "settings") is None
    assert heard == [MODIFIED, DELETED]


def test_a_deleted_bound_pod_stays_until_its_kubelet_has_stopped_it():
    clock = Clock()
    store = a_store(clock)
    store.create(POD_KIND, a_pod("p", nodeName="n"))

    marked, gone = store.delete(POD_KIND, "default", "p")
    assert (gone, marked["metadata"]["deletionGracePeriodSeconds"]) == (False, 30)
    clock.advance(seconds=5)
    shorter, _ = store.delete(POD_KIND, "default", "p", grace=10)
    assert shorter["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:10Z"
    longer, _ = store.delete(POD_KIND, "default", "p", grace=60)
    assert longer == shorter

    assert store.delete(POD_KIND, "default", "p", grace=0)[1]


def test_a_subscriber_may_finish_a_graceful_deletion():
    store = a_store()

    def kubelet(change):
        meta = change.new["metadata"]
        if "deletionTimestamp" in meta and store.find(POD_KIND, "default", meta["name"]):
            store.delete(POD_KIND, "default", meta["name"], grace=0)

    store.subscribe(POD_KIND, kubelet)
    store.create(POD_KIND, a_pod("p", nodeName="n"))
    store.delete(POD_KIND, "default", "p", grace=0)
    store.create(POD_KIND, a_pod("q", nodeName="n"))
    store.delete(POD_KIND, "default", "q")

    assert store.list(POD_KIND) == []


def test_the_oldest_changes_leave_the_history_first():
    store = Store(clock=Clock(), history=3)
    store.create(NAMESPACE_KIND, {"metadata": {"name": "a"}})
    start = store.version
    for number in range(4):
        store.create(NODE_KIND, {"metadata": {"name": f"n{number}"}})

    assert refusal(store.changes_since, NODE_KIND, start).reason == "Expired"
    assert [change.new["metadata"]["name"] for change in store.changes_since(NODE_KIND, start + 1)] == [
        "n1",
        "n2",
        "n3",
    ]
    assert store.changes_since(NAMESPACE_KIND, start) == []


def test_compaction_expires_everything_before_it():
    store = a_store()
    start = store.version
    store.create(NODE_KIND, {"metadata": {"name": "n"}})
    store.compact()

    assert refusal(store.changes_since, NODE_KIND, start).code == 410
    assert store.changes_since(NODE_KIND, store.version) == []


names = st.sampled_from(["a", "b", "c", "d"])
steps = st.lists(st.tuples(st.sampled_from(["put", "delete"]), names, st.integers(0, 3)), max_size=25)


@pytest.mark.law
@given(steps)
def test_the_list_of_every_earlier_version_can_be_read(story):
    store = a_store()
    seen = {store.version: store.list(CONFIG_MAP_KIND, "default")}
    for verb, name, value in story:
        exists = store.find(CONFIG_MAP_KIND, "default", name) is not None
        if verb == "delete" and exists:
            store.delete(CONFIG_MAP_KIND, "default", name)
        elif verb == "put":
            body = named(name, data={"value": str(value)})
            (store.update if exists else store.create)(CONFIG_MAP_KIND, body)
        seen[store.version] = store.list(CONFIG_MAP_KIND, "default")

    for version, objects in seen.items():
        assert list(store.list_at(CONFIG_MAP_KIND, "default", version)) == objects


def test_events_are_removed_after_an_hour():
    clock = Clock()
    store = a_store(clock)
    about = {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    store.create(EVENT_KIND, named("old", **about))
    clock.advance(minutes=30)
    store.create(EVENT_KIND, named("young", **about))
    clock.advance(minutes=40)
    store.create(EVENT_KIND, named("new", **about))

    assert [event["metadata"]["name"] for event in store.list(EVENT_KIND)] == ["new", "young"]


@pytest.mark.parametrize(("body", "gone"), [(None, False), ({}, True), ({"dryRun": ["All"]}, False)])
async def test_the_query_of_a_deletion_counts_only_without_a_body(body, gone):
    store = a_store()
    store.create(CONFIG_MAP_KIND, named("settings"))
    status, _ = await Api(store).answer("DELETE", "/api/v1/namespaces/default/configmaps/settings?dryRun=All", body)

    assert status == 200
    assert (store.find(CONFIG_MAP_KIND, "default", "settings") is None) is gone
