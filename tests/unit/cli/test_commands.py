"""The commands as a user runs them: processes, files, signals."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml


def environment(**variables):
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONUNBUFFERED": "1", **variables}


def forebay(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "forebay", *arguments],
        capture_output=True,
        text=True,
        env=environment(**variables),
        timeout=60,
        check=False,
    )


@contextlib.contextmanager
def running(*arguments):
    """The command's process and the kubeconfig it announces; interrupted at the end as Ctrl-C does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay", *arguments],
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
            pytest.fail(f"{arguments} ended before it served anything: {process.stderr.read()}")
        kubeconfig = Path(found[1])
        yield process, kubeconfig
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=30)
        assert process.returncode == 0
        assert complaints == ""
        assert not kubeconfig.exists(), "a kubeconfig that leads nowhere was left behind"
    finally:
        process.kill()
        process.communicate()


def test_the_embedded_cluster_answers_where_its_kubeconfig_points(tmp_path):
    with running("embedded", "--write-kubeconfig", str(tmp_path / "k" / "config")) as (_, kubeconfig):
        server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        with urllib.request.urlopen(f"{server}/api/v1/namespaces") as answer:
            names = [item["metadata"]["name"] for item in json.load(answer)["items"]]

    assert "kube-system" in names


def test_the_demo_shows_a_job_that_waits_and_status_says_why():
    with running("demo") as (_, kubeconfig):
        text = forebay("status", KUBECONFIG=str(kubeconfig))
        document = json.loads(forebay("status", "--output", "json", KUBECONFIG=str(kubeconfig)).stdout)

    assert text.returncode == 0, text.stderr
    assert text.stderr == ""
    assert "5 kinds installed" in text.stdout
    assert document["kinds_missing"] == []
    (waiting,) = [each for each in document["waiting"] if each["pod"].startswith("default/too-large-")]
    assert waiting["gpus"] == 16
    assert waiting["reason"].startswith(("Unschedulable: ", "NotScheduledYet: "))


def test_manifests_are_what_the_repository_ships():
    printed = list(yaml.safe_load_all(forebay("manifests", "crds").stdout))

    shipped = [yaml.safe_load(path.read_text()) for path in Path("deploy/crds").glob("*.yaml")]
    assert sorted(printed, key=lambda crd: crd["metadata"]["name"]) == sorted(
        shipped, key=lambda crd: crd["metadata"]["name"]
    )


def test_a_reader_that_goes_away_early_is_no_error():
    script = f"{sys.executable} -m forebay manifests crds | head -c 1; exit ${{PIPESTATUS[0]}}"

    outcome = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(), check=False)

    assert (outcome.returncode, outcome.stderr) == (0, "")
