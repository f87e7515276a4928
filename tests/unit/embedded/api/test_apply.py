"""Server-side apply beyond the contract suite: lists with keys, sets, and updates between applies."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from forebay.embedded.api.apply import _decode, _encode
from tests.unit.embedded.worlds import Api, a_store, define

PODS = "/api/v1/namespaces/default/pods/p"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


def pod(*containers, **more):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers)},
        **more,
    }


async def apply(api, path, body, manager, *, force=False):
    query = f"?fieldManager={manager}&force={'true' if force else 'false'}"
    return await api.answer("PATCH", path + query, yaml.safe_dump(body).encode(), Content_Type=APPLY)


async def test_each_manager_has_its_own_entries_of_a_keyed_list():
    api = Api(a_store())
    await apply(api, PODS, pod({"name": "a", "image": "1"}), "first")
    labels = {"metadata": {"name": "p", "labels": {"tier": "gpu"}, "finalizers": ["x/y"]}}
    code, applied = await apply(api, PODS, {"apiVersion": "v1", "kind": "Pod", **labels}, "second")

    assert code == 200
    assert [one["image"] for one in applied["spec"]["containers"]] == ["1"]
    owners = {entry["manager"]: entry["fieldsV1"] for entry in applied["metadata"]["managedFields"]}
    assert owners["first"]["f:spec"]["f:containers"]['k:{"name":"a"}'] == {".": {}, "f:image": {}, "f:name": {}}
    assert owners["second"] == {"f:metadata": {"f:labels": {"f:tier": {}}, "f:finalizers": {'v:"x/y"': {}}}}

    _, left = await apply(api, PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, "second")
    assert "labels" not in left["metadata"]
    assert "finalizers" not in left["metadata"]


async def test_an_entry_that_is_no_longer_applied_is_removed_unless_another_manager_owns_part_of_it():
    entry = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "a": {"type": "integer"}},
    }
    entry["properties"]["b"] = {"type": "integer"}
    store = a_store()
    by_name = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    define(store, {"list": {"type": "array", "items": entry, **by_name}})
    api, path = Api(store), "/apis/example.dev/v1/namespaces/default/things/t"

    def thing(*entries):
        head = {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "t"}}
        return {**head, "spec": {"list": list(entries)}}

    await apply(api, path, thing({"name": "x", "a": 1}, {"name": "y", "a": 1}), "first")
    await apply(api, path, thing({"name": "x", "b": 2}), "second")
    _, applied = await apply(api, path, thing(), "first")

    assert applied["spec"]["list"] == [{"name": "x", "b": 2}]


async def test_an_update_takes_over_the_fields_it_changes():
    api = Api(a_store())
    await apply(
        api,
        PODS,
        pod(
            {"name": "a", "image": "1"},
        ),
        "first",
    )
    change = [{"op": "replace", "path": "/spec/containers/0/image", "value": "2"}]
    await api.answer("PATCH", PODS, change, Content_Type="application/json-patch+json", User_Agent="hand/1.0")

    code, refused = await apply(api, PODS, pod({"name": "a", "image": "1"}), "first")
    assert (code, refused["reason"]) == (409, "Conflict")
    assert refused["message"].startswith('Apply failed with 1 conflict: conflict with "hand" using v1: ')
    assert refused["details"]["causes"][0]["field"] == '.spec.containers[name="a"].image'

    code, forced = await apply(api, PODS, pod({"name": "a", "image": "3"}), "first", force=True)
    assert (code, forced["spec"]["containers"][0]["image"]) == (200, "3")
    assert [entry["manager"] for entry in forced["metadata"]["managedFields"]] == ["first"]


async def test_fields_from_before_the_first_apply_conflict_too():
    api = Api(a_store())
    path = "/api/v1/namespaces/default/configmaps"
    await api.answer("POST", path, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "2"}}

    code, refused = await apply(api, f"{path}/c", body, "me")

    assert code == 409
    assert 'conflict with "before-first-apply" using v1: .data.a' in refused["message"]


@pytest.mark.parametrize("missing", ["apiVersion", "kind"])
async def test_an_applied_object_needs_kind_and_api_version(missing):
    body = pod({"name": "a", "image": "1"})
    del body[missing]

    code, _ = await apply(Api(a_store()), PODS, body, "me")

    assert code == 400


steps = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])


@pytest.mark.law
@given(st.sets(st.lists(steps, min_size=1, max_size=4).map(tuple), max_size=8))
def test_a_set_of_fields_is_read_back_from_fields_v1(fields):
    assert set(_decode(_encode(fields))) == fields
