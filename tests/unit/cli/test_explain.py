"""Which objects `forebay explain` takes."""

import pytest

from forebay.cli.explain.command import target
from forebay.cli.parser import UserError


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
    assert target(text) == (kind, name)


@pytest.mark.parametrize("text", ["x", "pod/", "/x", "deployment/x", ""])
def test_the_error_about_another_object_names_the_kinds_that_can_be_explained(text):
    with pytest.raises(UserError, match="give pod/NAME, job/NAME, node/NAME, gi/NAME or np/NAME"):
        target(text)
