"""`forebay budgets` as a user runs it, against a demo cluster with an operator, served over a socket."""

import json

import pytest

from tests.unit.cli.test_commands import forebay, request, running

BUDGETS = "/apis/forebay.dev/v1alpha1/namespaces/default/gpuworkloadbudgets"
QUOTA = {
    "apiVersion": "forebay.dev/v1alpha1",
    "kind": "GPUWorkloadBudget",
    "metadata": {"name": "lab", "namespace": "default"},
    "spec": {
        "selector": {"matchExpressions": [{"key": "batch.kubernetes.io/job-name", "operator": "Exists"}]},
        "quota": {"gpuHours": "1000", "usd": "500", "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
    },
}


def call(kubeconfig, path, body=None):
    with request(kubeconfig, path, body) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def kubeconfig():
    """A demo in which the operator has counted usage for a budget."""
    with running("demo", "--serve", "--speed", "60") as (_, path):
        made = call(path, BUDGETS, QUOTA)
        version = made["metadata"]["resourceVersion"]
        watch = f"{BUDGETS}?watch=true&timeoutSeconds=3600&resourceVersion={version}"
        with request(path, watch) as events:
            for line in events:
                status = json.loads(line)["object"].get("status", {})
                if str(status.get("consumedGpuHours", "0")) != "0" and status.get("trackedPods"):
                    break
        yield str(path)


@pytest.mark.real_time
def test_the_table_shows_usage_and_quota(kubeconfig):
    text = forebay("budgets", KUBECONFIG=kubeconfig)
    assert (text.returncode, text.stderr) == (0, "")
    header, *rows = text.stdout.splitlines()
    assert header.split()[:5] == ["BUDGET", "CONSUMED", "QUOTA", "LEFT", "USD"]
    (row,) = (each for each in rows if each.startswith("default/lab "))
    assert " of 500.00 " in row


@pytest.mark.real_time
def test_one_budget_has_its_window_plotted(kubeconfig):
    text = forebay("budgets", "lab", "-n", "default", KUBECONFIG=kubeconfig)
    assert (text.returncode, text.stderr) == (0, "")
    assert "quota 1000" in text.stdout
    assert "-24h" in text.stdout


@pytest.mark.real_time
def test_a_budget_is_also_named_as_the_table_shows_it(kubeconfig):
    text = forebay("budgets", "default/lab", KUBECONFIG=kubeconfig)
    assert (text.returncode, text.stderr) == (0, "")
    assert "quota 1000" in text.stdout


@pytest.mark.real_time
def test_json_has_decimals_and_the_history(kubeconfig):
    document = json.loads(forebay("budgets", "--output", "json", KUBECONFIG=kubeconfig).stdout)
    (found,) = (each for each in document["budgets"] if each["name"] == "lab")
    assert document["note"] == ""
    assert float(found["consumed"]) > 0
    assert float(found["consumed"]) + float(found["remaining"]) == pytest.approx(1000)
    assert len(found["history"]) == 48


@pytest.mark.real_time
def test_a_budget_that_does_not_exist_is_an_error_of_one_sentence(kubeconfig):
    outcome = forebay("budgets", "nothing", "-n", "default", KUBECONFIG=kubeconfig)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert 'GPUWorkloadBudget "nothing" not found in namespace "default"' in outcome.stderr


@pytest.mark.real_time
def test_the_past_of_the_cluster_is_simulated_from_its_ledger(kubeconfig, tmp_path):
    (tmp_path / "offers.csv").write_text(
        "provider,instance_type,gpu_model,gpu_count,vcpus,memory_gib,price_ondemand_usd_h,price_spot_usd_h,region\n"
        "cloud,eight,A100,8,64,512,8.00,,eu\n"
    )
    offers = ("--offers", str(tmp_path / "offers.csv"))
    done = forebay("simulate", "--from-cluster", "1d", *offers, "--output", "json", KUBECONFIG=kubeconfig)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["pods"] >= 1
    assert report["gpu_hours"] > 0
