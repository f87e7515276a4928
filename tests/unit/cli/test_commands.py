"""Commands as a user runs them: processes, files, signals."""

import base64
import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml


def environment(**variables):
    # Tests may run where the package is not installed.
    source = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONUNBUFFERED": "1", **source, **variables}


def forebay(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "forebay", *arguments],
        capture_output=True,
        text=True,
        env=environment(**variables),
        timeout=60,
        check=False,
    )


def request(kubeconfig, path, body=None, method=None, **headers):
    """The open answer to a request to the cluster of the kubeconfig, with its token."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    asked = urllib.request.Request(f"{cluster['server']}{path}", data, headers, method=method)
    return urllib.request.urlopen(asked, timeout=90, context=context)


#: Runs the rest of the line as from a terminal, also where these tests themselves run under nohup.
_FROM_A_TERMINAL = [
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
]


@contextlib.contextmanager
def running(*arguments, before=(), end=signal.SIGINT):
    """The command's process and the kubeconfig it prints; interrupted at the end, by default as by Ctrl-C."""
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "forebay", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        for line in process.stdout:
            if found := re.search(r"export KUBECONFIG=(\S+)", line):
                break
        else:
            pytest.fail(f"{arguments} ended before it served a cluster: {process.stderr.read()}")
        kubeconfig = Path(found[1])
        yield process, kubeconfig
        process.send_signal(end)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert errors == ""
        assert not kubeconfig.exists(), "a kubeconfig of a cluster that is gone was left behind"
    finally:
        process.kill()
        process.communicate()


def test_a_terminal_that_is_closed_ends_a_command_in_order(tmp_path):
    config = str(tmp_path / "config")
    with running("embedded", "--write-kubeconfig", config, before=_FROM_A_TERMINAL, end=signal.SIGHUP):
        pass


def test_a_terminal_that_is_closed_does_not_end_a_command_under_nohup(tmp_path):
    config = str(tmp_path / "config")
    with running("embedded", "--write-kubeconfig", config, before=["nohup"]) as (process, kubeconfig):
        process.send_signal(signal.SIGHUP)
        with request(kubeconfig, "/api/v1/namespaces") as answer:
            assert answer.status == 200


def test_the_embedded_cluster_answers_at_the_server_of_its_kubeconfig(tmp_path):
    with running("embedded", "--write-kubeconfig", str(tmp_path / "k" / "config")) as (_, kubeconfig):
        with request(kubeconfig, "/api/v1/namespaces") as answer:
            names = [item["metadata"]["name"] for item in json.load(answer)["items"]]
        mode = kubeconfig.stat().st_mode & 0o777
        with pytest.raises(urllib.error.HTTPError) as nobody:
            request(kubeconfig, "/api/v1/namespaces", Authorization="Bearer embedded")
        with pytest.raises(urllib.error.HTTPError) as rebound:
            request(kubeconfig, "/api/v1/namespaces", Host="attacker.example.com")

    for refused in (nobody, rebound):
        refused.value.close()
    assert "kube-system" in names
    assert mode == 0o600
    assert (nobody.value.code, rebound.value.code) == (401, 403)


def test_status_says_what_a_cluster_lacks(tmp_path):
    definitions = yaml.safe_load_all(forebay("manifests", "crds").stdout)
    with running("embedded", "--write-kubeconfig", str(tmp_path / "config")) as (_, kubeconfig):
        empty = json.loads(forebay("status", "--output", "json", KUBECONFIG=str(kubeconfig)).stdout)
        for each in definitions:
            request(kubeconfig, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each).close()
        text = forebay("status", KUBECONFIG=str(kubeconfig))
        document = json.loads(forebay("status", "--output", "json", KUBECONFIG=str(kubeconfig)).stdout)

    # Where there can be no budgets, nothing has to hold their pods.
    assert "GPUWorkloadBudget" in empty["kinds_missing"]
    assert empty["problems"] == []
    assert document["kinds_missing"] == []
    (lacking,) = document["problems"]
    assert lacking.startswith("Nothing holds new pods of a used-up GPUWorkloadBudget, because the admission policies")
    assert "Lacks" in text.stdout


@pytest.fixture(scope="module")
def served_demo():
    """The kubeconfig of a demo that has run for some simulated minutes."""
    with running("demo", "--serve", "--speed", "60") as (_, kubeconfig):
        waiting_for_the_fifth_job(kubeconfig)
        yield str(kubeconfig)


def waiting_for_the_fifth_job(kubeconfig):
    watch = "/apis/events.k8s.io/v1/events?watch=true&timeoutSeconds=3600&fieldSelector=reason=NoOfferFits"
    with request(kubeconfig, watch) as events:
        assert json.loads(events.readline())["object"]["regarding"]["name"].startswith("giant-05-")


def test_status_shows_pools_instances_cost_and_why_pods_wait(served_demo):
    text = forebay("status", KUBECONFIG=served_demo)
    document = json.loads(forebay("status", "--output", "json", KUBECONFIG=served_demo).stdout)

    assert text.returncode == 0, text.stderr
    assert text.stderr == ""
    assert "5 kinds installed" in text.stdout
    assert "forebay-demo in namespace forebay-system" in text.stdout
    assert document["kinds_missing"] == []
    assert document["problems"] == []
    assert "Lacks" not in text.stdout
    assert [each["pool"] for each in document["pools"]] == ["forebay-system/lab"]
    assert document["machines"]
    assert {each["provider"] for each in document["machines"]} == {"webhook"}
    assert float(document["spend"]["total"]) > 0
    # At least the cost of the present GPUInstances: the bill has deleted ones, too.
    assert sum(float(each["spent"]) for each in document["bill"]) >= float(document["spend"]["total"]) * 0.99
    assert "COST IN 31 DAYS" in text.stdout
    assert [each["kind"] for each in document["views"]] == ["nodes", "pods"]
    (waiting,) = [each for each in document["waiting"] if each["pod"].startswith("default/giant-05-")]
    assert waiting["gpus"] == 16
    assert waiting["reason"].startswith("NoOfferFits: ")


def test_explain_shows_why_a_job_waits_and_the_history_of_an_instance(served_demo):
    instance = json.loads(forebay("status", "--output", "json", KUBECONFIG=served_demo).stdout)["machines"][0]["name"]

    job = forebay("explain", "job/giant-05", KUBECONFIG=served_demo)
    explanation = json.loads(forebay("explain", f"gi/{instance}", "-o", "json", KUBECONFIG=served_demo).stdout)

    assert (job.returncode, job.stderr) == (0, "")
    assert job.stdout.startswith("Job default/giant-05: NoOfferFits\n")
    assert "Next: NoOfferFits: None of" in job.stdout
    assert explanation["about"] == f"GPUInstance {instance}"
    assert explanation["machines"][0]["history"][0]["reason"] == "CapacityNeeded"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pod/nobody"], 'Pod "nobody" not found in namespace "default"; choose another namespace with -n'),
        (["pod/nobody", "-n", "elsewhere"], 'Pod "nobody" not found in namespace "elsewhere"; choose another'),
        (["gi/nobody"], 'GPUInstance "nobody" not found'),
    ],
)
def test_explaining_an_object_that_does_not_exist_is_an_error(served_demo, arguments, sentence):
    outcome = forebay("explain", *arguments, KUBECONFIG=served_demo)

    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"forebay: {sentence}")


def test_printed_crds_are_those_in_the_repository():
    printed = list(yaml.safe_load_all(forebay("manifests", "crds").stdout))

    shipped = [yaml.safe_load(path.read_text()) for path in Path("deploy/crds").glob("*.yaml")]
    assert sorted(printed, key=lambda crd: crd["metadata"]["name"]) == sorted(
        shipped, key=lambda crd: crd["metadata"]["name"]
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [("manifests", "crds"), ("completion", "bash")], ids=" ".join)
def test_a_full_disk_is_one_sentence_and_no_answer(arguments):
    """Exit code 1 would say that the answer is no."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "forebay", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            # Buffered, as it is for users: then the last part is written when the command has ended.
            env={**environment(), "PYTHONUNBUFFERED": ""},
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "forebay: the output could not be written: No space left on device"
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [("offers", "--nonsense"), ("plan", "-f", "missing.yaml")], ids=" ".join)
def test_where_standard_error_is_on_a_full_disk_the_exit_code_is_the_same(arguments):
    """Python would exit with 1 or 120."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "forebay", *arguments],
            stdout=subprocess.PIPE,
            stderr=full,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_closed_pipe_is_no_error():
    script = f"{sys.executable} -m forebay manifests crds | head -c 1; exit ${{PIPESTATUS[0]}}"

    outcome = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(), check=False)

    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_an_operator_without_its_kinds_says_what_status_says(tmp_path):
    with running("embedded", "--write-kubeconfig", str(tmp_path / "config")) as (_, path):
        status = forebay("status", KUBECONFIG=str(path))
        operator = subprocess.Popen(
            [sys.executable, "-m", "forebay", "run", "--health-server-address", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(KUBECONFIG=str(path), BOX_NAME="box-1", BOX_GPU_COUNT="2", **BOX_ENDPOINTS),
        )
        lines = []
        for line in operator.stderr:
            lines.append(json.loads(line))
            if lines[-1]["event"] == "kinds not installed":
                break
        operator.terminate()
        operator.communicate(timeout=30)

    hint = "GPUInstance not installed; run: forebay manifests crds | kubectl apply -f -"
    assert lines[-1]["error"].endswith(hint)
    assert hint in status.stdout
    (machine,) = [each for each in lines if each["event"] == "machine configured"]
    assert (machine["machine"], machine["gpus"]) == ("box-1", 2)
    (settings,) = [each for each in lines if each["event"] == "settings"]
    assert settings["idle_delay"] == "30s"


BOX_ENDPOINTS = {"BOX_SCALE_UP_ENDPOINT": "http://power.lan/on", "BOX_SCALE_DOWN_ENDPOINT": "http://power.lan/off"}
