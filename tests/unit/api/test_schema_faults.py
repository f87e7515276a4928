"""All faults of a manifest are named at once, each where it is."""

import pytest

from forebay.api.codec import Undecodable, all_faults
from tests.unit.api.examples import NAMES, changed, example


@pytest.mark.parametrize("name", NAMES)
def test_a_good_manifest_has_none(name):
    assert all_faults(example(name)) == []


def test_every_fault_of_a_budget_has_its_path():
    budget = changed(
        "gpuworkloadbudget",
        {
            "spec": {
                "selector": {"matchLabels": {"team": 7, "tier": True}},
                "quota": {"windowHours": "24"},
                "enforcement": {"action": "Kill", "gracePeriodSeconds": -5},
            }
        },
    )

    assert dict(all_faults(budget)) == {
        "spec.selector.matchLabels.team": "Expected `str`, got `int`",
        "spec.selector.matchLabels.tier": "Expected `str`, got `bool`",
        "spec.quota.windowHours": "Expected `int`, got `str`",
        "spec.enforcement.action": "Invalid enum value 'Kill'",
        "spec.enforcement.gracePeriodSeconds": "Expected `int` >= 0",
    }


def test_a_missing_field_hides_no_other_fault():
    budget = changed("gpuworkloadbudget", {"spec": {"selector": None, "quota": {"windowHours": "x"}}})

    assert all_faults(budget) == [
        ("spec", "Object missing required field `selector`"),
        ("spec.quota.windowHours", "Expected `int`, got `str`"),
    ]


def test_items_of_a_list_are_numbered_and_its_length_is_judged_too():
    machine = {"name": "a", "gpuCount": "two"}
    too_many = changed(
        "gpunodeclass-owned-machines", {"spec": {"providers": [{"name": 5, "machines": [machine] * 300}]}}
    )

    found = all_faults(too_many)

    assert ("spec.providers[0].name", "Expected `str`, got `int`") in found
    assert ("spec.providers[0].machines", "Expected `array` of length <= 256") in found
    assert any(path == "spec.providers[0].machines[299].gpuCount" for path, _ in found)


@pytest.mark.parametrize("providers", [{"name": "lambdalabs"}, "lambdalabs", 7])
def test_what_stands_where_a_list_belongs_is_one_fault(providers):
    node_class = changed("gpunodeclass-owned-machines", {"spec": {"providers": providers}})

    ((path, problem),) = all_faults(node_class)

    assert path == "spec.providers"
    assert problem.startswith("Expected `array`")


@pytest.mark.parametrize("spec", [[], "x", 7, None, True])
def test_a_spec_that_is_no_mapping_is_one_fault(spec):
    ((path, problem),) = all_faults({**example("gpunodepool"), "spec": spec})

    assert path == "spec"
    assert problem.startswith("Expected `object`")


def test_another_kind_has_no_faults_to_name():
    with pytest.raises(Undecodable, match="is not a kind of"):
        all_faults({"apiVersion": "v1", "kind": "Pod"})
