"""`forebay workload` and `forebay bench budgets`, against an embedded cluster with an operator."""

import json
import subprocess
import sys

import pytest
import yaml

from tests.unit.cli.test_commands import environment, forebay, request, running

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "status": {"capacity": {"cpu": "8", "pods": "110"}, "allocatable": {"cpu": "8", "pods": "110"}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The kubeconfig of a cluster with one node and our kinds."""
    manifests = yaml.safe_load_all(forebay("manifests", "crds").stdout)
    path = tmp_path_factory.mktemp("embedded") / "kubeconfig"
    with running("embedded", "--write-kubeconfig", str(path)) as (_, kubeconfig):
        for each in filter(None, manifests):
            request(kubeconfig, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each).close()
        request(kubeconfig, "/api/v1/nodes", NODE).close()
        yield kubeconfig


def pods(kubeconfig):
    with request(kubeconfig, "/api/v1/namespaces/default/pods") as answer:
        return json.load(answer)["items"]


def test_a_workload_is_pods_that_ask_for_what_they_were_told_to(cluster):
    done = forebay(
        *("workload", "--count", "3", "--rate", "50", "--runtime", "90s", "--gpus", "250m", "--gpu-resource", "cpu"),
        *("--label", "team=a", "--prefix", "try-", "--image", "registry.example/idle:1"),
        KUBECONFIG=str(cluster),
    )
    assert done.returncode == 0, done.stderr
    assert "kubectl -n default delete pods -l team=a" in done.stdout
    created = [each for each in pods(cluster) if each["metadata"]["name"].startswith("try-")]
    assert len(created) == 3
    for each in created:
        assert each["metadata"]["labels"] == {"team": "a"}
        (container,) = each["spec"]["containers"]
        assert (container["image"], container["command"]) == ("registry.example/idle:1", ["sleep", "90"])
        assert container["resources"]["requests"] == {"cpu": "250m"}


def test_a_pod_that_the_api_server_refuses_ends_the_command_with_its_sentence(cluster):
    done = forebay("workload", "--prefix", "Not_A_Name", KUBECONFIG=str(cluster))
    assert done.returncode == 2
    assert "Not_A_Name" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--count", "0"), "not a number from 1 to"),
        (("--rate", "1/0"), "pods a second"),
        (("--rate", "nan"), "pods a second"),
        (("--runtime", "soon"), "not a duration"),
        (("--gpus", "0"), "not more than 0"),
        (("--gpus", "many"), "many"),
        (("--label", "team"), "KEY=VALUE"),
    ],
)
def test_bad_input_is_refused_before_anything_is_created(arguments, sentence):
    done = forebay("workload", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_the_accuracy_of_a_running_operator_is_measured_and_nothing_is_left(cluster, tmp_path):
    log = tmp_path / "operator.log"
    with log.open("w") as written:
        operator = subprocess.Popen(
            [sys.executable, "-m", "forebay", "run", "--namespace", "default", "--health-server-address=127.0.0.1:0"],
            env=environment(KUBECONFIG=str(cluster)),
            stderr=subprocess.STDOUT,
            stdout=written,
        )
    try:
        done = forebay(
            *("bench", "budgets", "--count", "5", "--rate", "10", "--runtime", "30s", "--observe", "20s"),
            *("--gpu-resource", "cpu", "--gpus", "1", "--title", "a try", "--out-dir", str(tmp_path / "results")),
            *("--prefix", "measured-"),
            KUBECONFIG=str(cluster),
        )
    finally:
        operator.terminate()
        operator.wait(30)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert (events[0], events[-1], operator.returncode) == ("operator started", "operator stopped", 0)
    report = json.loads((tmp_path / "results/report.json").read_text())
    assert report["tracked_pods"] == 5
    assert 0 < report["reported_gpu_hours"] <= 5 * 30 / 3600
    assert (tmp_path / "results/SUMMARY.md").read_text() == done.stdout
    assert "consumedGpuHours" in json.loads((tmp_path / "results/status.json").read_text())
    # The kubelet takes a moment to end what was deleted.
    left = [each["metadata"] for each in pods(cluster) if each["metadata"]["name"].startswith("measured-")]
    assert all("deletionTimestamp" in each for each in left)
    with request(cluster, "/apis/forebay.dev/v1alpha1/gpuworkloadbudgets") as answer:
        assert json.load(answer)["items"] == []


def test_without_an_operators_kinds_the_sentence_says_what_to_install(tmp_path):
    with running("embedded", "--write-kubeconfig", str(tmp_path / "kubeconfig")) as (_, kubeconfig):
        done = forebay("bench", "budgets", KUBECONFIG=str(kubeconfig))
    assert done.returncode == 2
    assert "forebay manifests crds" in done.stderr
