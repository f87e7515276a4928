"""Which objects `forebay explain` takes."""

import pytest

from forebay.cli.explain.command import asked_for, target
from forebay.cli.parser import UserError, namespace_and_name


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("pod/x", "pod", "x"),
        ("po/x", "pod", "x"),
        ("job.batch/x", "job", "x"),
        ("Node/x", "node", "x"),
        ("gpuinstance.forebay.dev/a.b", "gi", "a.b"),
    ],
)
def test_objects_are_named_as_kubectl_names_them(text, kind, name):
    assert target(text) == (kind, None, name)


@pytest.mark.parametrize(("text", "option"), [("pod/team/x", None), ("pod/team/x", "team"), ("pod/x", "team")])
def test_a_pod_is_also_named_as_status_shows_it(text, option):
    assert target(text, option) == ("pod", "team", "x")


def test_kind_and_name_may_be_two_words_as_with_kubectl():
    assert asked_for("pod/x", None) == "pod/x"
    assert target(asked_for("pod", "x")) == ("pod", None, "x")
    assert target(asked_for("pod", "team/x")) == ("pod", "team", "x")
    with pytest.raises(UserError, match="one object is explained at a time: 'pod/x' or 'y'"):
        asked_for("pod/x", "y")


def test_two_namespaces_for_one_pod_are_refused():
    with pytest.raises(UserError, match="'team/x' is in namespace 'team', and -n says 'lab'; give one of them"):
        target("pod/team/x", "lab")


@pytest.mark.parametrize("text", ["x", "pod/", "/x", "deployment/x", "", "node/a/b", "pod/a/b/c", "pod/team/"])
def test_the_error_about_another_object_names_the_kinds_that_can_be_explained(text):
    with pytest.raises(UserError, match="give pod/NAME, job/NAME, node/NAME, gi/NAME or np/NAME"):
        target(text)


@pytest.mark.parametrize("text", ["/x", "team/", "a/b/c"])
def test_a_name_that_is_neither_one_nor_two_words_is_refused(text):
    with pytest.raises(UserError, match="is neither NAME nor NAMESPACE/NAME"):
        namespace_and_name(text, None)
