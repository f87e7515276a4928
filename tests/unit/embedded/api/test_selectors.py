"""Label selectors and field selectors."""

import pytest

from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import CONFIG_MAP_KIND, EVENT_KIND, EVENT_V1_KIND, NODE_KIND, POD_KIND
from forebay.embedded.api.selectors import field_selector, label_selector, selector_matches


def labelled(**labels):
    return {"metadata": {"name": "x", "labels": labels}}


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("a=1", {"a": "1"}, {"a": "2"}),
        ("a==1", {"a": "1"}, {}),
        ("a!=1", {}, {"a": "1"}),
        ("a in (1, 2)", {"a": "2"}, {"a": "3"}),
        ("a notin (1,2)", {"b": "1"}, {"a": "1"}),
        ("a", {"a": ""}, {"b": ""}),
        ("!a", {"b": ""}, {"a": ""}),
        ("a=1,b=2", {"a": "1", "b": "2"}, {"a": "1"}),
        ("a=1, !c , b in (2)", {"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": ""}),
        ("a>5", {"a": "6"}, {"a": "5"}),
        ("a<5", {"a": "4"}, {"a": "x"}),
        ("a=", {"a": ""}, {"a": "1"}),
        ("in=notin", {"in": "notin"}, {}),
        ("example.com/x-y_z.a=v", {"example.com/x-y_z.a": "v"}, {}),
    ],
)
def test_a_label_selector_matches_the_one_and_not_the_other(text, matching, other):
    matches = label_selector(text)

    assert matches(labelled(**matching))
    assert not matches(labelled(**other))


@pytest.mark.parametrize("text", ["a in", "a in (", "a=b=c", "=b", "a,,b", "a b", "a>x"])
def test_an_invalid_label_selector_is_a_bad_request(text):
    with pytest.raises(ApiFailure) as refused:
        label_selector(text)
    assert refused.value.code == 400


def test_an_empty_selector_selects_everything():
    assert label_selector("") is None
    assert field_selector(POD_KIND, "") is None
    assert selector_matches({}, {"a": "b"})


@pytest.mark.parametrize(
    ("kind", "text", "obj", "expected"),
    [
        (
            POD_KIND,
            "spec.nodeName=n,status.phase!=Failed",
            {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}},
            True,
        ),
        (POD_KIND, "spec.nodeName=", {"spec": {}}, True),
        (POD_KIND, "metadata.name==p", {"metadata": {"name": "p"}}, True),
        (NODE_KIND, "spec.unschedulable=true", {"spec": {}}, False),
        (NODE_KIND, "spec.unschedulable=false", {"spec": {}}, True),
        (
            EVENT_KIND,
            "involvedObject.kind=Pod,type=Normal",
            {"involvedObject": {"kind": "Pod"}, "type": "Normal"},
            True,
        ),
        (EVENT_V1_KIND, "regarding.name=p", {"involvedObject": {"name": "p"}}, True),
        (CONFIG_MAP_KIND, r"metadata.name=a\,b", {"metadata": {"name": "a,b"}}, True),
    ],
)
def test_a_field_selector_reads_the_stored_field(kind, text, obj, expected):
    assert field_selector(kind, text)(obj) is expected


@pytest.mark.parametrize("text", ["spec.priority=1", "spec.nodeName", "spec.nodeName>1"])
def test_a_field_that_cannot_be_selected_is_a_bad_request(text):
    with pytest.raises(ApiFailure) as refused:
        field_selector(POD_KIND, text)
    assert refused.value.code == 400


def test_selectors_inside_objects():
    selector = {
        "matchLabels": {"app": "x"},
        "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["db"]},
            {"key": "zone", "operator": "Exists"},
        ],
    }

    assert selector_matches(selector, {"app": "x", "zone": "1"})
    assert not selector_matches(selector, {"app": "x", "zone": "1", "tier": "db"})
    assert not selector_matches(selector, {"app": "x"})
