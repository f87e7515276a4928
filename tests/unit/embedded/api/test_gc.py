"""Garbage collection of dependents, of the content of namespaces and of the objects of CRDs."""

import pytest

from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import (
    CONFIG_MAP_KIND,
    CRD_KIND,
    JOB_KIND,
    NAMESPACE_KIND,
    NODE_KIND,
    POD_KIND,
    SECRET_KIND,
)
from tests.unit.embedded.worlds import a_crd, a_pod, a_store, define, named, owned_by


def family(store, **reference):
    owner = store.create(CONFIG_MAP_KIND, named("owner"))
    store.create(SECRET_KIND, owned_by(owner, named("child"), **reference))
    return owner


def test_dependents_are_deleted_with_their_last_owner():
    store = a_store()
    first, second = (store.create(CONFIG_MAP_KIND, named(name)) for name in ("first", "second"))
    store.create(SECRET_KIND, owned_by(second, owned_by(first, named("child"))))

    store.delete(CONFIG_MAP_KIND, "default", "first")
    [left] = store.get(SECRET_KIND, "default", "child")["metadata"]["ownerReferences"]
    assert left["name"] == "second"

    store.delete(CONFIG_MAP_KIND, "default", "second")
    assert store.list(SECRET_KIND) == []


def test_dependents_of_dependents_are_deleted_too():
    store = a_store()
    parent = store.create(CONFIG_MAP_KIND, named("g0"))
    for number in range(1, 50):
        parent = store.create(CONFIG_MAP_KIND, owned_by(parent, named(f"g{number}")))

    store.delete(CONFIG_MAP_KIND, "default", "g0")

    assert [obj["metadata"]["name"] for obj in store.list(CONFIG_MAP_KIND, "default")] == ["kube-root-ca.crt"]


def test_an_owner_deleted_in_the_foreground_waits_for_dependents_that_block_it():
    store = a_store()
    owner = store.create(CONFIG_MAP_KIND, named("owner"))
    pod = store.create(POD_KIND, owned_by(owner, a_pod("p", nodeName="n"), blockOwnerDeletion=True))

    store.delete(CONFIG_MAP_KIND, "default", "owner", propagation="Foreground")
    assert store.get(CONFIG_MAP_KIND, "default", "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in store.get(POD_KIND, "default", "p")["metadata"]

    store.delete(POD_KIND, "default", pod["metadata"]["name"], grace=0)
    assert store.find(CONFIG_MAP_KIND, "default", "owner") is None


def test_orphans_lose_the_reference_to_their_owner():
    store = a_store()
    family(store)

    store.delete(CONFIG_MAP_KIND, "default", "owner", propagation="Orphan")

    assert "ownerReferences" not in store.get(SECRET_KIND, "default", "child")["metadata"]
    assert store.find(CONFIG_MAP_KIND, "default", "owner") is None


def test_an_owner_of_that_name_with_another_uid_is_not_the_owner():
    store = a_store()
    owner = store.create(CONFIG_MAP_KIND, named("owner"))
    stranger = {**owner, "metadata": {**owner["metadata"], "uid": "another"}}

    store.create(SECRET_KIND, owned_by(stranger, named("child")))

    assert store.list(SECRET_KIND) == []


def test_a_dependent_of_an_unknown_kind_of_owner_stays():
    store = a_store()
    unknown = {"apiVersion": "example.dev/v1", "kind": "Mystery", "metadata": {"name": "m", "uid": "u"}}

    store.create(SECRET_KIND, owned_by(unknown, named("child")))

    assert store.find(SECRET_KIND, "default", "child") is not None


def test_a_namespace_is_removed_after_the_last_of_its_objects():
    store = a_store()
    store.create(NAMESPACE_KIND, {"metadata": {"name": "team"}})
    pod = a_pod("p", nodeName="n")
    pod["metadata"]["namespace"] = "team"
    store.create(POD_KIND, pod)
    store.create(NODE_KIND, {"metadata": {"name": "n"}})

    store.delete(NAMESPACE_KIND, None, "team")

    assert store.get(NAMESPACE_KIND, None, "team")["status"]["phase"] == "Terminating"
    with pytest.raises(ApiFailure, match="because it is being terminated"):
        store.create(SECRET_KIND, {"metadata": {"name": "s", "namespace": "team"}})
    store.delete(POD_KIND, "team", "p", grace=0)
    assert store.find(NAMESPACE_KIND, None, "team") is None
    assert store.find(NODE_KIND, None, "n") is not None


def test_a_crd_is_removed_after_the_last_of_its_objects():
    store = a_store()
    things = define(store, {"size": {"type": "integer"}})
    held = named("held", spec={"size": 1})
    held["metadata"]["finalizers"] = ["example.com/x"]
    store.create(things, held)
    store.create(things, named("free"))
    from forebay.embedded.api.kinds import CRD_KIND

    store.delete(CRD_KIND, None, "things.example.dev")
    [left] = store.list(things)
    assert left["metadata"]["name"] == "held"

    store.remove_finalizer(things, left, "example.com/x")
    assert store.find(CRD_KIND, None, "things.example.dev") is None
    assert store.kinds.at("example.dev", "v1", "things") is None
    store.create(CRD_KIND, a_crd({}))


def test_a_repeated_deletion_without_a_policy_keeps_the_first_policy():
    store = a_store()
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i:1"}]}}
    job = store.create(JOB_KIND, named("train", spec={"template": template}))
    child = owned_by(job, named("child"), blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["example.dev/hold"]
    store.create(SECRET_KIND, child)

    store.delete(JOB_KIND, "default", "train", propagation="Foreground")
    store.delete(JOB_KIND, "default", "train")

    assert store.get(JOB_KIND, "default", "train")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in store.get(SECRET_KIND, "default", "child")["metadata"]


def test_a_crd_of_which_no_version_is_served_can_be_deleted():
    store = a_store()
    define(store, {}, served=False)
    store.delete(CRD_KIND, None, "things.example.dev")
    assert store.list(CRD_KIND) == []
