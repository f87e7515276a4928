"""The three kinds of patches, by the examples of their standards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.embedded.api import builtin, patches
from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import NODE_KIND, POD_KIND, SERVICE_KIND

values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.text("ab/~", max_size=2), values, max_size=4)


@pytest.mark.parametrize(
    ("original", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_rfc_7396_shows(original, patch, merged):
    assert patches.apply_merge_patch(original, patch) == merged


@pytest.mark.parametrize(
    ("original", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 2]}, [{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}),
        ({"a": {"b": 1}}, [{"op": "replace", "path": "/a/b", "value": 2}], {"a": {"b": 2}}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
        (
            {"x/y": 1, "m~n": 2},
            [{"op": "replace", "path": "/x~1y", "value": 3}, {"op": "remove", "path": "/m~0n"}],
            {"x/y": 3},
        ),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}], {}),
    ],
)
def test_a_json_patch_does_what_rfc_6902_shows(original, operations, result):
    assert patches.apply_json_patch(original, operations) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/l/5", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "shout", "path": "/a"},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
def test_an_operation_that_does_not_apply_rejects_the_whole_patch(operation):
    with pytest.raises(ApiFailure) as refused:
        patches.apply_json_patch({"a": 1, "l": []}, [{"op": "add", "path": "/z", "value": 0}, operation])
    assert refused.value.code == 422


@pytest.mark.law
@given(documents, documents)
def test_patches_do_not_change_the_original(original, patch):
    before = repr(original)
    patches.apply_merge_patch(original, patch)
    patches.apply_strategic_patch(original, patch, {})
    operations = [{"op": "add", "path": "/" + key.replace("~", "~0").replace("/", "~1"), "value": 1} for key in patch]
    patches.apply_json_patch(original, operations)
    assert repr(original) == before


def merged(kind, original, patch):
    return patches.apply_strategic_patch(original, patch, builtin.built_in_schema(kind))


def pod(*containers, **spec):
    return {"spec": {"containers": [dict(container) for container in containers], **spec}}


def test_containers_are_merged_by_name_and_their_lists_by_their_own_keys():
    original = pod({"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"})

    result = merged(POD_KIND, original, pod({"name": "a", "env": [{"name": "Y", "value": "2"}], "image": None}))

    [first, second] = result["spec"]["containers"]
    assert first == {"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}
    assert second == {"name": "b", "image": "1"}


def test_directives_delete_replace_and_order():
    original = pod({"name": "a"}, {"name": "b"}, {"name": "c"})

    patch = {"spec": {"containers": [{"name": "b", "$patch": "delete"}, {"name": "d"}]}}
    patch["spec"]["$setElementOrder/containers"] = [{"name": "c"}, {"name": "d"}, {"name": "a"}]
    assert [one["name"] for one in merged(POD_KIND, original, patch)["spec"]["containers"]] == ["c", "d", "a"]

    replaced = merged(POD_KIND, original, {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}})
    assert replaced == pod({"name": "z"})


def test_lists_without_a_merge_key_are_replaced_and_lists_of_plain_values_are_extended():
    taints = {"spec": {"taints": [{"key": "a"}, {"key": "b"}]}, "metadata": {"finalizers": ["x/a"]}}

    result = merged(NODE_KIND, taints, {"spec": {"taints": [{"key": "c"}]}, "metadata": {"finalizers": ["x/b"]}})

    assert result == {"spec": {"taints": [{"key": "c"}]}, "metadata": {"finalizers": ["x/a", "x/b"]}}
    less = merged(NODE_KIND, result, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}})
    assert less["metadata"] == {"finalizers": ["x/b"]}


def test_one_of_several_volume_sources_is_kept():
    original = pod(volumes=[{"name": "v", "emptyDir": {}}])

    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}}

    assert merged(POD_KIND, original, patch)["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "c"}}]


def test_ports_of_a_service_have_another_merge_key_than_those_of_a_container():
    original = {"spec": {"ports": [{"port": 80, "name": "web"}]}}

    result = merged(SERVICE_KIND, original, {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}})

    assert result["spec"]["ports"] == [{"port": 80, "name": "web", "targetPort": 8080}]


def test_an_entry_without_its_key_is_refused():
    with pytest.raises(ApiFailure, match="does not contain declared merge key: name"):
        merged(POD_KIND, pod({"name": "a"}), pod({"image": "1"}))
