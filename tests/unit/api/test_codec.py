import copy
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.api.codec import Undecodable, decode, decode_any, encode, unknown_fields
from forebay.api.gpu_instance import GPU_INSTANCE, InstanceState
from forebay.api.gpu_node_pool import GPU_NODE_POOL
from forebay.api.gpu_workload_budget import GPU_WORKLOAD_BUDGET, EnforcementAction
from forebay.api.kinds import KINDS
from forebay.api.schema import object_schema
from forebay.embedded.api.schema import default
from forebay.model.sources import Billing
from tests.unit.api.documents import documents
from tests.unit.api.examples import NAMES, changed, example


def data(manifest):
    return json.dumps(manifest).encode()


SCHEMAS = {kind.kind: object_schema(kind.type) for kind in KINDS}


def defaulted(manifest):
    stored = copy.deepcopy(manifest)
    default(SCHEMAS[manifest["kind"]], stored)
    return stored


def without_empties(value):
    """An empty list or map means the same as an absent one."""
    if isinstance(value, dict):
        inner = {key: without_empties(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in ({}, [], "")}
    return [without_empties(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
def test_an_example_read_and_written_back_has_lost_nothing(name):
    manifest = example(name)
    written = json.loads(encode(decode_any(data(manifest))))
    assert without_empties(defaulted(written)) == without_empties(defaulted(manifest))


@pytest.mark.parametrize("name", NAMES)
def test_the_server_fills_in_the_same_defaults_as_the_types(name):
    manifest = example(name)
    assert decode_any(data(defaulted(manifest))) == decode_any(data(manifest))


@pytest.mark.law
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])
@given(random=st.data())
def test_any_object_read_and_written_back_has_lost_nothing(kind, random):
    fields = SCHEMAS[kind.kind]["properties"]
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}}
    manifest |= {part: random.draw(documents(fields[part])) for part in ("spec", "status")}
    read = decode(kind, data(manifest))
    assert without_empties(defaulted(json.loads(encode(read)))) == without_empties(defaulted(manifest))
    assert decode(kind, data(defaulted(manifest))) == read


def test_values_are_decoded():
    budget = decode(GPU_WORKLOAD_BUDGET, data(example("gpuworkloadbudget")))
    assert budget.spec.enforcement.action is EnforcementAction.PAUSE
    assert budget.spec.quota.gpu_hours == "100"
    assert budget.key == ("default", "team-a")
    instance = decode(GPU_INSTANCE, data(example("gpuinstance")))
    assert instance.status is not None
    assert instance.status.state is InstanceState.READY
    assert instance.status.since == datetime(2026, 11, 16, 4, 23, 10, tzinfo=UTC)


def test_the_key_of_an_object_without_a_namespace_has_an_empty_one():
    assert decode(GPU_INSTANCE, data(example("gpuinstance"))).key == ("", example("gpuinstance")["metadata"]["name"])


def test_a_machine_is_billed_on_the_terms_of_its_order_or_on_the_usual_ones():
    ordered = decode(GPU_INSTANCE, data(changed("gpuinstance", {"spec": {"billing": {"minimum": "1h"}}})))
    usual = decode(GPU_INSTANCE, data(changed("gpuinstance", {"spec": {"billing": None}})))
    assert ordered.billing == Billing(minimum=timedelta(hours=1))
    assert usual.billing == Billing()


def test_an_item_of_a_list_need_not_repeat_its_kind():
    manifest = changed("gpunodepool", {"apiVersion": None, "kind": None})
    assert decode(GPU_NODE_POOL, data(manifest)).spec.node_class_ref.name == "rented"


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        ({"spec": {"quota": {"windowHours": "24"}}}, "spec.quota.windowHours", "Expected `int`, got `str`"),
        ({"spec": {"quota": {"gpuHours": 1.5}}}, "spec.quota.gpuHours", "got `float`"),
        ({"spec": {"enforcement": {"action": "Kill"}}}, "spec.enforcement.action", "Invalid enum value 'Kill'"),
        ({"spec": {"selector": None}}, "spec", "missing required field `selector`"),
        ({"spec": None}, "", "missing required field `spec`"),
        ({"kind": "GPUBudget"}, "", "GPUBudget of forebay.dev/v1alpha1 is not a kind"),
        ({"apiVersion": "budget.zxuhan.dev/v1alpha1"}, "", "budget.zxuhan.dev/v1alpha1 is not a kind"),
    ],
)
def test_an_error_says_where_and_what(change, path, problem):
    with pytest.raises(Undecodable) as caught:
        decode_any(data(changed("gpuworkloadbudget", change)))
    assert caught.value.path == path
    assert problem in str(caught.value)
    assert path in str(caught.value)


def test_an_object_of_another_kind_is_refused():
    with pytest.raises(Undecodable, match="GPUNodePool: is a GPUWorkloadBudget"):
        decode(GPU_NODE_POOL, data(example("gpuworkloadbudget")))


def test_an_object_without_a_kind_is_refused_by_that_name_and_another_by_its_own():
    for change, name in (({"kind": None}, "object"), ({"kind": "GPUBudget"}, "GPUBudget")):
        with pytest.raises(Undecodable) as caught:
            decode_any(data(changed("gpuworkloadbudget", change)))
        assert caught.value.kind == name
    with pytest.raises(Undecodable, match=r"no kind of forebay\.dev/v1alpha1 is not a kind"):
        decode_any(data(changed("gpuworkloadbudget", {"kind": None})))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_invalid_json_is_undecodable(text):
    with pytest.raises(Undecodable):
        decode_any(text)


def test_typos_in_a_users_file_are_found():
    manifest = changed(
        "gpunodepool",
        {
            "metadata": {"anything": 1},
            "specs": {},
            "spec": {"maxHourlyprice": 3, "template": {"spec": {"taints": [{"key": "a", "efect": "NoSchedule"}]}}},
        },
    )
    assert unknown_fields(manifest) == {
        "spec.template.spec.taints[0].efect": "effect",
        # That pool has a maxHourlyPrice, too.
        "spec.maxHourlyprice": "",
        "specs": "",
    }
    assert not any(unknown_fields(example(name)) for name in NAMES)


def test_fields_of_a_newer_forebay_are_dropped():
    manifest = changed("gpunodepool", {"spec": {"fromTheFuture": True}})
    assert decode_any(data(manifest)) == decode_any(data(example("gpunodepool")))
