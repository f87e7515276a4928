"""Budgets of gpu-k8s-operator and NodeProvisioners of Baseten become Forebay's, which have the same fields."""

import sys

import msgspec
import pytest
import yaml

from forebay.api.codec import decode_any
from forebay.cli import main
from forebay.migrate.migration import migrate
from forebay.migrate.notes import NoteKind
from forebay.migrate.target import MigrationTarget
from forebay.providers.admission import KNOWN

BUDGET = """\
apiVersion: budget.zxuhan.dev/v1alpha1
kind: GPUWorkloadBudget
metadata:
  name: team-a
  namespace: default
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", team: a}
  resourceVersion: "7"
spec:
  selector: {matchLabels: {team: a}}
  quota: {gpuHours: "100", windowHours: 24}
  enforcement: {action: AlertOnly, gracePeriodSeconds: 60}
status: {consumedGpuHours: "3"}
"""
PROVISIONER = """\
apiVersion: compute.baseten.co/v1alpha1
kind: NodeProvisioner
metadata: {name: a3}
spec:
  existingInstanceGroupNames: [a3-group]
  minGPUUtilizationPercent: 80
"""
TARGET = MigrationTarget(capabilities=KNOWN, group_provider="gcp", group_location="us-central1-a")


def sentences(done, kind):
    return " ".join(each.sentence for each in done.notes if each.kind is kind)


@pytest.mark.parametrize("action", ["AlertOnly", "Evict", "Pause"])
def test_a_budget_keeps_its_fields_and_says_what_it_does_differently(action):
    budget = yaml.safe_load(BUDGET)
    budget["spec"]["enforcement"]["action"] = action
    done = migrate([budget], TARGET)

    (made,) = done.manifests
    assert made["spec"] == budget["spec"]
    assert made["metadata"] == {"name": "team-a", "namespace": "default", "annotations": {"team": "a"}}
    assert decode_any(msgspec.json.encode(made)).spec.enforcement.grace_period_seconds == 60
    assert done.complete
    said = sentences(done, NoteKind.CHANGED)
    assert "Hours of deleted pods count" in said
    assert ("suspends the Jobs" in said) is (action == "Pause")
    assert ("After an eviction" in said) is (action == "Evict")


def test_a_provisioner_keeps_its_fields_and_is_told_where_its_groups_are(tmp_path, capsys):
    file = tmp_path / "provisioners.yaml"
    file.write_text(PROVISIONER)
    assert main(["migrate", "-f", str(file), "--group-provider", "gcp", "--group-location", "us-central1-a"]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["spec"]["provider"] == {"name": "gcp", "location": "us-central1-a"}
    assert made["spec"]["minGPUUtilizationPercent"] == 80
    assert decode_any(msgspec.json.encode(made)).metadata.name == "a3"


def test_without_a_place_somebody_must_name_it(tmp_path, capsys):
    file = tmp_path / "provisioners.yaml"
    file.write_text(PROVISIONER)
    assert main(["migrate", "--check", "-f", str(file)]) == 1
    told = capsys.readouterr().err.split("To do before the result is applied:\n")[1]
    assert "give --group-provider (" in told
    assert len(told.splitlines()) == 1, "what is missing is said once"


def test_objects_of_several_predecessors_may_be_in_one_file():
    done = migrate(yaml.safe_load_all(f"{BUDGET}---\n{PROVISIONER}"), TARGET)

    assert [each["kind"] for each in done.manifests] == ["GPUWorkloadBudget", "NodeProvisioner"]


def test_everything_that_the_api_server_refuses_is_named_at_once(tmp_path, capsys):
    file = tmp_path / "budget.yaml"
    typed = (
        BUDGET.replace("windowHours: 24", "windowHours: day").replace("AlertOnly", "Kill").replace("{team: a}}", "7}")
    )
    file.write_text(typed.replace("enforcement:", "quotas: 2\n  enforcement:"))
    assert main(["migrate", "--check", "-f", str(file)]) == 1
    told = capsys.readouterr().err.split("To do before the result is applied:\n")[1].splitlines()
    assert [each.removeprefix("  GPUWorkloadBudget default/team-a: ") for each in told] == [
        "spec.selector.matchLabels: Expected `object`, got `int`.",
        "spec.quota.windowHours: Expected `int`, got `str`.",
        "spec.enforcement.action: Invalid enum value 'Kill'.",
        "spec.quotas is no field of Forebay's: remove it.",
    ]


def test_rules_of_the_api_server_are_checked_where_the_types_are_right(tmp_path, capsys):
    file = tmp_path / "budget.yaml"
    file.write_text(BUDGET.replace('"100"', '"-5x"'))
    assert main(["migrate", "--check", "-f", str(file)]) == 1
    assert 'spec.quota.gpuHours: Invalid value: "-5x": must be a quantity greater than 0' in capsys.readouterr().err


def test_without_the_means_to_check_rules_it_says_who_does(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "celpy", None)
    file = tmp_path / "budget.yaml"
    file.write_text(BUDGET.replace('"100"', '"-5x"'))
    assert main(["migrate", "--check", "-f", str(file)]) == 0
    assert (
        "rules were not checked, which needs the extra `embedded`: kubectl apply --dry-run=server"
        in capsys.readouterr().err
    )


def test_a_provider_of_groups_that_nobody_knows_is_named():
    mistyped = msgspec.structs.replace(TARGET, group_provider="gpc")
    done = migrate([yaml.safe_load(PROVISIONER)], mistyped)
    assert "gpc is no provider of this release: give --group-provider one that has instance groups (gcp" in sentences(
        done, NoteKind.NEEDED
    )
