"""Every rule of the CRDs on good and bad objects. The same tables were run against a real API server."""

import copy
import re

import pytest

from forebay.api.codec import unknown_fields
from forebay.embedded.api.schema import default, validate
from forebay.install.crds import custom_resource_definitions
from tests.unit.api.examples import NAMES, changed, example
from tests.unit.api.refusals import ACCEPTED, FORBIDDEN_CHANGES, REFUSALS

SCHEMAS = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for crd in custom_resource_definitions()
}


def admitted(manifest):
    stored = copy.deepcopy(manifest)
    assert not unknown_fields(manifest)
    default(SCHEMAS[manifest["kind"]], stored)
    return stored


def complaints(manifest, old=None):
    causes = validate(SCHEMAS[manifest["kind"]], admitted(manifest), admitted(old) if old else None)
    return [(spelt(cause.field), cause.message) for cause in causes]


def spelt(field):
    """A key of a map may be written [key] or .key: both are seen. The object as a whole is <nil> or nothing."""
    return re.sub(r"\[([^]\d]+)\]", r".\1", field.removeprefix("<nil>"))


def refused(case, found):
    return any(field == spelt(case.field) and case.message in message for field, message in found)


def story(case):
    return re.sub(r"\W+", "-", case.story)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_accepted(name):
    assert complaints(example(name)) == []


@pytest.mark.parametrize("case", ACCEPTED, ids=story)
def test_accepted(case):
    assert complaints(changed(case.example, case.change)) == []


@pytest.mark.parametrize("case", REFUSALS, ids=story)
def test_refused_with_a_message_at_the_field(case):
    found = complaints(changed(case.example, case.change))
    assert refused(case, found), found


@pytest.mark.parametrize("case", FORBIDDEN_CHANGES, ids=story)
def test_immutable_fields_cannot_be_changed(case):
    before = example(case.example)
    found = complaints(changed(case.example, case.change), old=before)
    assert refused(case, found), found
    assert complaints(before, old=before) == []


def test_every_rule_refuses_some_object():
    """An untested rule may refuse nothing, or everything."""
    objects = [complaints(changed(case.example, case.change)) for case in REFUSALS]
    changes = [complaints(changed(case.example, case.change), old=example(case.example)) for case in FORBIDDEN_CHANGES]
    messages = " ".join(message for found in objects + changes for _, message in found)
    expected = {rule["message"] for schema in SCHEMAS.values() for rule in rules(schema)}
    assert {message for message in expected if message not in messages} == set()


def rules(schema):
    yield from schema.get("x-kubernetes-validations", [])
    for inner in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        if inner:
            yield from rules(inner)
