"""Custom resources: what a structural schema defaults, prunes and refuses."""

import pytest

from tests.contract.kube.api_client import JSON_PATCH, STRATEGIC, refused
from tests.contract.kube.objects import names, version
from tests.contract.kube.widgets import VERSION, WIDGETS, widget

NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


async def test_defaults_are_filled_in(api):
    widgets = await api.widgets()

    created = await widgets.create(widget("w", window={"hours": 1}, parts=[{"name": "a"}]))

    assert created["spec"] == {
        "size": 5,
        "replicas": 1,
        "mode": "Sampled",
        "region": "anywhere",
        "window": {"hours": 1, "timezone": "UTC"},
        "parts": [{"name": "a", "count": 1}],
    }


async def test_an_explicit_null_is_defaulted_or_dropped(api):
    widgets = await api.widgets()

    created = await widgets.create(widget("w", mode=None, tags=None))

    assert created["spec"]["mode"] == "Sampled"
    assert "tags" not in created["spec"]


async def test_a_patch_to_null_restores_the_default(api):
    widgets = await api.widgets()
    await widgets.create(widget("w", mode="Exact"))

    assert (await widgets.patch("w", {"spec": {"mode": None}}))["spec"]["mode"] == "Sampled"


async def test_unknown_fields_are_pruned_with_a_warning(api):
    widgets = await api.widgets()

    response = await api.send("POST", widgets.path, widget("w", fooo=1, anything={"kept": {"as": "is"}}))

    assert response.status == 201
    assert response.headers["Warning"] == '299 - "unknown field \\"spec.fooo\\""'
    await response.close()
    stored = await widgets.get("w")
    assert "fooo" not in stored["spec"]
    assert stored["spec"]["anything"] == {"kept": {"as": "is"}}


async def test_strict_validation_refuses_unknown_fields(api):
    widgets = await api.widgets()

    refusal = await refused(
        widgets.create(widget("w", fooo=1, window={"hours": 1, "bar": 2}), fieldValidation="Strict")
    )

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
        'unknown field "spec.fooo", unknown field "spec.window.bar"'
    )


async def test_strict_validation_refuses_duplicate_fields(api):
    widgets = await api.widgets()
    body = b'{"apiVersion":"%s","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"size":2}}' % VERSION.encode()

    refusal = await refused(api.ask("POST", widgets.path, body, query={"fieldValidation": "Strict"}))

    assert refusal.status == 400
    assert refusal.message.endswith('strict decoding error: duplicate field "spec.size"')


async def test_strict_validation_can_be_ignored(api):
    widgets = await api.widgets()

    response = await api.send("POST", widgets.path, widget("w", fooo=1), query={"fieldValidation": "Ignore"})

    assert response.status == 201
    assert "Warning" not in response.headers
    await response.close()


async def test_a_missing_field_is_required(api):
    widgets = await api.widgets()
    body = widget("w")
    del body["spec"]["size"]

    refusal = await refused(widgets.create(body))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message == (
        f'Widget.contract.forebay.dev "w" is invalid: [spec.size: Required value, '
        f"<nil>: Invalid value: null: {NOT_CHECKED}]"
    )
    assert refusal.causes == [
        ("spec.size", "FieldValueRequired", "Required value"),
        ("<nil>", "FieldValueInvalid", f"Invalid value: null: {NOT_CHECKED}"),
    ]
    assert refusal.details["name"] == "w"
    assert refusal.details["group"] == "contract.forebay.dev"
    assert refusal.details["kind"] == "Widget"


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        (
            {"mode": "Wrong"},
            ("spec.mode", "FieldValueNotSupported", 'Unsupported value: "Wrong": supported values: "Sampled", "Exact"'),
        ),
        (
            {"size": 0},
            (
                "spec.size",
                "FieldValueInvalid",
                "Invalid value: 0: spec.size in body should be greater than or equal to 1",
            ),
        ),
        (
            {"size": 101},
            (
                "spec.size",
                "FieldValueInvalid",
                "Invalid value: 101: spec.size in body should be less than or equal to 100",
            ),
        ),
        (
            {"size": "5"},
            (
                "spec.size",
                "FieldValueTypeInvalid",
                'Invalid value: "string": spec.size in body must be of type integer: "string"',
            ),
        ),
        ({"note": "abcdefghijk"}, ("spec.note", "FieldValueTooLong", "Too long: may not be more than 10 bytes")),
        (
            {"note": "ABC"},
            ("spec.note", "FieldValueInvalid", "Invalid value: \"ABC\": spec.note in body should match '^[a-z]*$'"),
        ),
        (
            {"parts": [{"name": name} for name in "abcd"]},
            ("spec.parts", "FieldValueTooMany", "Too many: 4: must have at most 3 items"),
        ),
        ({"parts": [{"name": "a"}, {}]}, ("spec.parts[1].name", "FieldValueRequired", "Required value")),
        (
            {"parts": [{"name": "a"}, {"name": "a"}]},
            ("spec.parts[1]", "FieldValueDuplicate", 'Duplicate value: {"name":"a"}'),
        ),
        (
            {"tags": {"a": 1}},
            (
                "spec.tags.a",
                "FieldValueTypeInvalid",
                'Invalid value: "integer": spec.tags.a in body must be of type string: "integer"',
            ),
        ),
    ],
    ids=["enum", "minimum", "maximum", "type", "length", "pattern", "items", "nested", "duplicate key", "map values"],
)
async def test_the_schema_names_the_field_that_breaks_it(api, spec, cause):
    widgets = await api.widgets()

    refusal = await refused(widgets.create(widget("w", **spec)))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0] == cause


@pytest.mark.parametrize("hours", [100, "100", "1.5", "100m", "2k"])
async def test_a_quantity_is_a_number_or_a_string(api, hours):
    widgets = await api.widgets()

    assert (await widgets.create(widget("w", gpuHours=hours)))["spec"]["gpuHours"] == hours


@pytest.mark.parametrize(("hours", "shown"), [(0, "0"), ("0", '"0"'), (-3, "-3"), ("ten", '"ten"')])
@pytest.mark.since("1.36")
async def test_a_rule_refuses_with_its_message(api, hours, shown):
    widgets = await api.widgets()

    refusal = await refused(widgets.create(widget("w", gpuHours=hours)))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message == (
        f'Widget.contract.forebay.dev "w" is invalid: spec.gpuHours: Invalid value: {shown}: '
        "gpuHours must be a quantity greater than 0"
    )


async def test_a_quantity_must_not_be_a_fraction(api):
    widgets = await api.widgets()

    refusal = await refused(widgets.create(widget("w", gpuHours=1.5)))

    assert refusal.status == 422
    assert refusal.causes[0] == (
        "spec.gpuHours",
        "FieldValueTypeInvalid",
        'Invalid value: "number": spec.gpuHours in body must be of type integer,string: "number"',
    )


@pytest.mark.since("1.36")
async def test_all_violated_rules_are_reported_together(api):
    widgets = await api.widgets()

    refusal = await refused(widgets.create(widget("w", gpuHours="0", replicas=8, window={"hours": 1, "days": 2})))

    assert refusal.status == 422
    assert sorted(refusal.causes) == [
        ("spec.gpuHours", "FieldValueInvalid", 'Invalid value: "0": gpuHours must be a quantity greater than 0'),
        ("spec.replicas", "FieldValueInvalid", "Invalid value: replicas must not exceed size"),
        ("spec.window", "FieldValueInvalid", "Invalid value: exactly one of hours and days must be set"),
    ]


async def test_rules_are_not_evaluated_before_the_types_are_valid(api):
    widgets = await api.widgets()

    refusal = await refused(widgets.create(widget("w", gpuHours="0", mode="Wrong")))

    assert [field for field, _, _ in refusal.causes] == ["spec.mode", "<nil>"]
    assert NOT_CHECKED in refusal.message


@pytest.mark.since("1.36")
async def test_an_immutable_field_stays(api):
    widgets = await api.widgets()
    await widgets.create(widget("w", region="eu"))

    refusal = await refused(widgets.patch("w", {"spec": {"region": "us"}}))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes == [("spec.region", "FieldValueInvalid", 'Invalid value: "us": region is immutable')]
    assert (await widgets.patch("w", {"spec": {"size": 6}}))["spec"]["region"] == "eu"


async def test_a_strategic_patch_is_not_for_custom_resources(api):
    widgets = await api.widgets()
    await widgets.create(widget("w"))

    refusal = await refused(widgets.patch("w", {"spec": {"size": 6}}, kind=STRATEGIC))

    assert (refusal.status, refusal.reason) == (415, "UnsupportedMediaType")
    assert refusal.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


async def test_a_json_patch_is_for_custom_resources_too(api):
    widgets = await api.widgets()
    await widgets.create(widget("w"))

    patched = await widgets.patch("w", [{"op": "replace", "path": "/spec/size", "value": 6}], kind=JSON_PATCH)

    assert patched["spec"]["size"] == 6
    assert patched["metadata"]["generation"] == 2


async def test_a_custom_resource_is_replaced_with_its_version_only(api):
    widgets = await api.widgets()
    created = await widgets.create(widget("w"))

    refusal = await refused(widgets.update(widget("w", size=6)))
    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes == [
        ("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update")
    ]

    created["spec"]["size"] = 6
    assert (await widgets.update(created))["spec"]["size"] == 6
    assert (await refused(widgets.update(created))).reason == "Conflict"


async def test_a_custom_resource_must_have_its_kind(api):
    widgets = await api.widgets()

    nameless = await refused(widgets.create({"metadata": {"name": "w"}, "spec": {"size": 1}}))
    assert (nameless.status, nameless.reason) == (400, "BadRequest")
    assert nameless.message.startswith(
        "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing"
    )

    await widgets.create(widget("w"))
    [item] = (await widgets.list())["items"]
    assert (item["kind"], item["apiVersion"]) == ("Widget", VERSION)


async def test_custom_resources_are_selected_by_the_selectable_fields_of_their_crd(api):
    widgets = await api.widgets()
    await widgets.create(widget("sampled"))
    await widgets.create(widget("exact", mode="Exact"))

    assert names(await widgets.list(fieldSelector="spec.mode=Exact")) == ["exact"]
    assert names(await widgets.list(fieldSelector="metadata.name=sampled")) == ["sampled"]
    refusal = await refused(widgets.list(fieldSelector="spec.size=5"))
    assert (refusal.status, refusal.message) == (400, "field label not supported: spec.size")


async def test_a_watch_list_of_custom_resources_with_a_field_selector(api):
    widgets = await api.widgets()
    await widgets.create(widget("sampled"))
    await widgets.create(widget("exact", mode="Exact"))

    async with widgets.watch(
        fieldSelector="metadata.name=exact",
        sendInitialEvents=True,
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks=True,
    ) as events:
        kind, body = await events.next()
        end, mark = await events.next()

    assert (kind, body["metadata"]["name"]) == ("ADDED", "exact")
    assert end == "BOOKMARK"
    assert mark == {
        "apiVersion": VERSION,
        "kind": "Widget",
        "metadata": {"resourceVersion": version(mark), "annotations": {"k8s.io/initial-events-end": "true"}}
        | ({"creationTimestamp": None} if "creationTimestamp" in mark["metadata"] else {}),
    }


async def test_an_established_crd_has_the_condition(api):
    await api.widgets()

    stored = await api.cluster("customresourcedefinitions", "apiextensions.k8s.io/v1").get(WIDGETS["metadata"]["name"])

    conditions = {entry["type"]: entry["status"] for entry in stored["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert stored["status"]["acceptedNames"]["plural"] == "widgets"
    assert stored["status"]["storedVersions"] == ["v1"]
    assert stored["spec"]["conversion"] == {"strategy": "None"}


async def test_the_name_of_a_crd_is_plural_and_group(api):
    body = WIDGETS | {"metadata": {"name": "wrong.contract.forebay.dev"}}

    refusal = await refused(api.cluster("customresourcedefinitions", "apiextensions.k8s.io/v1").create(body))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0][0] == "metadata.name"


async def test_a_crd_with_an_invalid_rule_is_refused(api):
    group = f"{api.namespace}.example.com"
    rule = {"rule": "self.size >", "message": "never"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer"}},
                "x-kubernetes-validations": [rule],
            }
        },
    }
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }

    refusal = await refused(api.cluster("customresourcedefinitions", "apiextensions.k8s.io/v1").create(body))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert "x-kubernetes-validations[0].rule" in refusal.causes[0][0]
