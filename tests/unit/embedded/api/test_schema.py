"""Structural schemas and CEL rules: defaults, pruning, error messages."""

import pytest

from forebay.embedded.api import cel, schema
from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import CRD_KIND
from tests.unit.embedded.worlds import a_crd, a_store, define, named


def message(store, kind, spec):
    with pytest.raises(ApiFailure) as refused:
        store.create(kind, named("t", spec=spec))
    assert refused.value.code == 422
    return refused.value.message.removeprefix('Thing.example.dev "t" is invalid: ')


def test_defaults_reach_into_lists_and_maps_and_nulls_count_as_absent():
    inner = {"type": "object", "properties": {"n": {"type": "integer", "default": 5}}}
    shape = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": inner},
            "map": {"type": "object", "additionalProperties": inner},
            "whole": {**inner, "default": {}},
            "kept": {"type": "string", "nullable": True},
        },
    }
    value = {"list": [{}, {"n": 1}, {"n": None}], "map": {"a": {}}, "kept": None}

    schema.default(shape, value)

    assert value == {
        "list": [{"n": 5}, {"n": 1}, {"n": 5}],
        "map": {"a": {"n": 5}},
        "whole": {"n": 5},
        "kept": None,
    }


def test_a_default_is_a_new_copy_each_time():
    shape = {"type": "object", "properties": {"list": {"type": "array", "items": {}, "default": [{"a": 1}]}}}
    first, second = {}, {}
    schema.default(shape, first)
    schema.default(shape, second)
    first["list"][0]["a"] = 2

    assert second == {"list": [{"a": 1}]}


def test_pruning_yields_every_field_it_drops_and_preserves_marked_ones():
    shape = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                    "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}},
                },
            }
        },
    }
    obj = {"kind": "T", "metadata": {"name": "x"}, "spec": {"free": {"z": 1}, "list": [{"a": "", "b": 1}], "c": 1}}
    obj["spec"]["metadata"] = {"labels": {}, "name": "n"}

    assert sorted(schema.prune(shape, obj)) == ["spec.c", "spec.list[0].b", "spec.metadata.name"]
    assert obj["spec"] == {"free": {"z": 1}, "list": [{"a": ""}], "metadata": {"labels": {}}}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (
            {"type": "integer", "minimum": 1},
            0,
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        ({"type": "string", "enum": ["a", "b"]}, "c", 'spec.x: Unsupported value: "c": supported values: "a", "b"'),
        ({"type": "string", "maxLength": 2}, "abc", "spec.x: Too long: may not be more than 2 bytes"),
        (
            {"type": "string", "pattern": "^a+$"},
            "b",
            "spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a", "b"],
            "spec.x: Too many: 2: must have at most 1 items",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            ["a", "a"],
            'spec.x[1]: Duplicate value: "a"',
        ),
        ({"type": "integer"}, "a", 'spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"'),
        (
            {"type": "string", "format": "date-time"},
            "noon",
            'spec.x: Invalid value: "noon": spec.x in body must be of type date-time: "noon"',
        ),
        (
            {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
            {},
            "spec.x.a: Required value",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_wrong_value_is_refused_in_the_words_of_a_real_server(field, value, said):
    store = a_store()
    things = define(store, {"x": field})

    assert said in message(store, things, {"x": value})


def test_rules_are_not_evaluated_before_the_types_are_valid():
    rule = {"rule": "self.a < self.b", "message": "a must be less than b"}
    number = {"type": "integer"}
    pair = {"type": "object", "required": ["a", "b"], "properties": {"a": number, "b": number}}
    store = a_store()
    things = define(store, {"x": {**pair, "x-kubernetes-validations": [rule]}})

    assert message(store, things, {"x": {"a": 2, "b": 1}}) == "spec.x: Invalid value: a must be less than b"
    shapeless = message(store, things, {"x": {"a": 2}})
    assert "a must be less than b" not in shapeless
    assert "some validation rules were not checked" in shapeless
    store.create(things, named("t", spec={"x": {"a": 1, "b": 2}}))


def test_a_rule_that_cannot_be_evaluated_makes_the_object_invalid():
    rule = {"rule": "self.missing == 1", "message": "never said"}
    store = a_store()
    things = define(store, {"x": {"type": "object", "x-kubernetes-validations": [rule], "properties": {}}})

    assert "rule evaluation error: no such member in mapping: 'missing'" in message(store, things, {"x": {}})


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"rule": "self ==", "message": "m"}, "Syntax error"),
        ({"rule": "frobnicate(self)"}, "undeclared reference to 'frobnicate'"),
        ({"rule": "self.frobnicate()"}, "undeclared reference to 'frobnicate'"),
        ({"rule": "[1].map(x, x > 0, x) == [1]"}, "map() with 3 arguments is not supported"),
        ({"rule": "self == oldSelf", "optionalOldSelf": True}, "optionalOldSelf is not supported"),
        ({"rule": "true", "messageExpression": "("}, "Syntax error"),
    ],
    ids=lambda value: value["rule"] if isinstance(value, dict) else None,
)
def test_a_rule_that_cannot_be_compiled_makes_the_crd_invalid(rule, why):
    with pytest.raises(ApiFailure) as refused:
        a_store().create(CRD_KIND, a_crd({"x": {"type": "string", "x-kubernetes-validations": [rule]}}))

    assert refused.value.code == 422
    assert why in refused.value.message


def test_a_transition_rule_applies_only_to_updates_and_to_list_entries_with_keys():
    fixed = {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is fixed"}]}
    entry = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "v": fixed}}
    by_name = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    store = a_store()
    things = define(
        store,
        {
            "x": fixed,
            "map": {"type": "array", "items": entry, **by_name},
            "atomic": {"type": "array", "items": entry},
        },
    )
    entries = [{"name": "a", "v": 1}, {"name": "b", "v": 2}]
    created = store.create(things, named("t", spec={"x": 1, "map": entries, "atomic": entries}))

    swapped = entries[::-1]
    store.update(things, {**created, "spec": {"map": swapped, "atomic": [{"name": "a", "v": 9}]}})
    current = store.get(things, "default", "t")
    with pytest.raises(ApiFailure) as refused:
        store.update(things, {**current, "spec": {"map": [{"name": "b", "v": 3}]}})
    assert refused.value.message.endswith("spec.map[0].v: Invalid value: 3: is fixed")


def test_values_that_an_update_leaves_unchanged_are_not_validated_again():
    store = a_store()
    things = define(store, {"x": {"type": "string"}, "y": {"type": "string"}})
    old = store.create(things, named("t", spec={"x": "long", "y": "a"}))
    definition = store.get(CRD_KIND, None, "things.example.dev")
    stricter = a_crd({"x": {"type": "string", "maxLength": 2}, "y": {"type": "string"}})
    store.update(CRD_KIND, {**definition, "spec": stricter["spec"]})

    changed = store.update(things, {**old, "spec": {"x": "long", "y": "b"}})
    assert changed["spec"]["y"] == "b"
    with pytest.raises(ApiFailure, match="Too long"):
        store.update(things, {**changed, "spec": {"x": "longer", "y": "b"}})


def test_rules_may_give_field_path_reason_and_message():
    rules = [
        {"rule": "has(self.a)", "message": "a is needed", "reason": "FieldValueRequired", "fieldPath": ".a"},
        {"rule": "!has(self.b)", "message": "no b here", "reason": "FieldValueForbidden", "fieldPath": ".b"},
        {"rule": "false", "message": "plain", "messageExpression": "'got ' + string(size(self))"},
    ]
    text = {"type": "string"}
    store = a_store()
    things = define(
        store, {"x": {"type": "object", "properties": {"a": text, "b": text}, "x-kubernetes-validations": rules}}
    )

    said = message(store, things, {"x": {"b": "1"}})

    assert said == (
        "[spec.x.a: Required value: a is needed, spec.x.b: Forbidden: no b here, spec.x: Invalid value: got 1]"
    )


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("quantity(self).isGreaterThan(quantity('1')) && quantity(self).compareTo(quantity('2k')) == 0", "2000"),
        ("isQuantity(self) && !isQuantity('ten') && quantity(self).asInteger() == 3", "3"),
        ("self.split(',').size() == 2 && self.split(',').join('-') == 'a-b'", "a,b"),
        ("self.lowerAscii() == 'abc' && self.trim().substring(1, 2) == 'B' && self.indexOf('C') == 2", "ABC"),
    ],
)
def test_the_functions_that_kubernetes_adds(source, value):
    assert cel.CompiledRule({"rule": source}).violation({"type": "string"}, value) is None


def test_values_are_typed_by_their_schema():
    shape = {
        "type": "object",
        "properties": {
            "price": {"type": "number"},
            "since": {"type": "string", "format": "date-time"},
            "for": {"type": "string", "format": "duration"},
            "namespace": {"type": "string"},
        },
    }
    value = {"price": 1, "since": "2030-01-01T00:00:00Z", "for": "90m", "namespace": "a"}
    rule = (
        "self.price < 1.5 && self.since < timestamp('2031-01-01T00:00:00Z') && self.__for__ > duration('1h')"
        " && self.__namespace__ == 'a'"
    )

    assert cel.CompiledRule({"rule": rule}).violation(shape, value) is None


def test_a_changed_schema_does_not_change_stored_objects():
    store = a_store()
    kind = define(store, {})
    stored = store.create(kind, named("t", spec={}))
    definition = a_crd({"size": {"type": "integer", "default": 3}})
    store.update(CRD_KIND, definition)

    store.update(kind, named("t", status={}), subresource="status")

    assert stored["spec"] == {}
    assert store.get(kind, "default", "t")["spec"] == {"size": 3}


def test_a_rule_gives_each_value_its_own_verdict_however_often_it_is_asked():
    rule = cel.CompiledRule({"rule": "self.size >= oldSelf.size", "message": "it only grows"})
    shape = {"type": "object", "properties": {"size": {"type": "integer"}}}
    small, large = {"size": 1}, {"size": 2}
    for _ in range(2):
        assert rule.violation(shape, large, small) is None
        assert rule.violation(shape, small, large) == "it only grows"


def test_the_same_rule_in_another_schema_is_another_question():
    rule = cel.CompiledRule({"rule": "self == 1.0"})
    for _ in range(2):
        assert rule.violation({"type": "number"}, 1) is None
        assert rule.violation({"type": "string"}, "1") is not None
    assert rule.violation({"type": "integer"}, 2) is not None
