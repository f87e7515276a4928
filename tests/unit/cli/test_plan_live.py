"""`forebay plan` and `forebay offers` against a cluster that is served over a socket."""

import contextlib
import json
import tarfile
import urllib.error
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.test_commands import forebay, request, running, waiting_for_the_fifth_job


@pytest.fixture(scope="module")
def kubeconfig():
    """A demo cluster after some minutes of its own time, with one Job that no machine is large enough for."""
    with running("demo", "--serve", "--speed", "60") as (_, path):
        waiting_for_the_fifth_job(path)
        yield str(path)


def test_a_plan_of_the_cluster_equals_the_plan_of_its_saved_snapshot(kubeconfig, tmp_path):
    saved = tmp_path / "seen.json"

    live = forebay("plan", "--output", "json", "--save", str(saved), KUBECONFIG=kubeconfig)
    again = forebay("plan", "--output", "json", "-f", str(saved))
    text = forebay("plan", "-f", str(saved))

    assert (live.returncode, live.stderr) == (1, "")
    first, second = json.loads(live.stdout), json.loads(again.stdout)
    assert second["plan"] == first["plan"]
    (giant,) = [each for each in first["plan"]["left_out"] if each["pod"].startswith("default/giant-05-")]
    assert giant["reason"] == "NoOfferFits"
    assert text.returncode == 1
    assert f"  {giant['pod']}: NoOfferFits\n" in text.stdout


def test_a_support_bundle_is_replayed_without_the_cluster(kubeconfig, tmp_path):
    bundle = tmp_path / "bundle.tar.gz"

    made = forebay("support-bundle", "--to", str(bundle), KUBECONFIG=kubeconfig)
    plan = forebay("plan", "-o", "json", "-f", str(bundle))

    assert (made.returncode, made.stderr) == (0, "")
    assert bundle.stat().st_mode & 0o777 == 0o600
    (giant,) = [
        each for each in json.loads(plan.stdout)["plan"]["left_out"] if each["pod"].startswith("default/giant-05-")
    ]
    explained = forebay("explain", f"pod/{giant['pod'].partition('/')[2]}", "-f", str(bundle))
    assert explained.returncode == 0
    assert explained.stdout.splitlines()[0] == f"Pod {giant['pod']}: NoOfferFits"
    assert "Next: " in explained.stdout
    with tarfile.open(bundle) as tar:
        files = {Path(each.name).name: tar.extractfile(each).read() for each in tar}
    assert set(files) == {"README.txt", "snapshot.json", "status.json", "budgets.json", "plan.json"}
    assert "error" not in json.loads(files["status.json"])
    again = forebay("support-bundle", "--to", str(bundle), KUBECONFIG=kubeconfig)
    assert (again.returncode, "exists: choose another file" in again.stderr) == (2, True)
    unknown = forebay("explain", "pod/nobody", "-f", str(bundle))
    assert (unknown.returncode, "has no pod default/nobody" in unknown.stderr) == (2, True)


def test_owned_machines_are_offers(kubeconfig):
    outcome = forebay("offers", "--output", "json", KUBECONFIG=kubeconfig)

    offers = json.loads(outcome.stdout)["offers"]
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert offers
    assert {each["provider"] for each in offers} == {"webhook"}
    assert all(each["machine"] == each["instance_type"] for each in offers)
    assert [float(each["price_per_gpu"]) for each in offers] == sorted(float(each["price_per_gpu"]) for each in offers)


def test_the_checks_of_providers_are_those_of_the_operator(kubeconfig):
    outcome = forebay("providers", "check", "--output", "json", KUBECONFIG=kubeconfig)
    text = forebay("providers", "check", KUBECONFIG=kubeconfig)

    (check,) = json.loads(outcome.stdout)["providers"]
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert (check["node_class"], check["provider"], check["ready"], check["passed"]) == ("lab", "webhook", "True", True)
    assert text.stdout.splitlines()[0].split() == ["CLASS", "PROVIDER", "READY", "REASON", "MESSAGE"]
    assert check["message"] in text.stdout


def test_a_cluster_without_forebays_crds_is_an_error(tmp_path):
    with running("embedded", "--write-kubeconfig", str(tmp_path / "config")) as (_, path):
        for kind in ("gpunodeclasses", "gpunodepools"):
            definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}.forebay.dev"
            with contextlib.suppress(urllib.error.HTTPError):
                request(path, definition, method="DELETE").close()
        outcome = forebay("plan", KUBECONFIG=str(path))

    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "does not serve GPUNodeClass, GPUNodePool" in outcome.stderr
    assert (
        "run: forebay manifests crds | kubectl apply -f - (without a cluster: forebay plan -f FILE, forebay "
        "offers --from FILE)" in outcome.stderr
    )


def test_in_an_empty_cluster_each_command_says_what_to_create(tmp_path):
    with running("embedded", "--write-kubeconfig", str(tmp_path / "config")) as (_, path):
        for definition in yaml.safe_load_all(forebay("manifests", "crds").stdout):
            request(path, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=definition).close()
        commands = (("plan",), ("offers",), ("providers", "check"), ("budgets",))
        plan, offers, providers, budgets = (forebay(*each, KUBECONFIG=str(path)) for each in commands)

    assert [each.returncode for each in (plan, offers, providers, budgets)] == [0, 1, 0, 0]
    for each in (plan, offers, providers):
        assert "No GPUNodeClass names a provider: create one (docs/providers/README.md)," in each.stdout
    assert "GPUWorkloadBudget limits GPU-hours or dollars: docs/budgets.md" in budgets.stdout


def test_a_cluster_without_predecessors_has_nothing_to_migrate_and_passes_in_ci(kubeconfig):
    checked = forebay("migrate", "--from-cluster", "--check", KUBECONFIG=kubeconfig)
    asked = forebay("migrate", "--from-cluster", KUBECONFIG=kubeconfig)

    assert (checked.returncode, checked.stderr) == (0, "There is nothing to migrate in the cluster.\n")
    assert (asked.returncode, asked.stderr) == (2, "forebay: there is nothing to migrate in the cluster\n")
