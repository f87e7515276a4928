"""`--watch`: the output again and again, until Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.unit.cli.test_commands import environment, forebay, running


def watching(*arguments, output, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    path = tmp_path_factory.mktemp("embedded") / "kubeconfig"
    with running("embedded", "--write-kubeconfig", str(path)) as (_, kubeconfig):
        yield str(kubeconfig)


def interrupted(process):
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors


def test_scripts_get_one_document_after_the_other(kubeconfig):
    process = watching(
        "status", "--output", "json", "--watch", "--every", "0.5", output=subprocess.PIPE, KUBECONFIG=kubeconfig
    )
    text = ""
    while text.count("\n}\n") < 2:
        text += process.stdout.readline()
    assert interrupted(process) == (0, "")
    first, rest = json.JSONDecoder().raw_decode(text)
    second, _ = json.JSONDecoder().raw_decode(text[rest:].lstrip())
    assert first["cluster_id"] == second["cluster_id"]


def test_a_terminal_shows_the_new_output_in_place_of_the_old(kubeconfig):
    ours, theirs = pty.openpty()
    process = watching("status", "--watch", "--every", "0.5", output=theirs, KUBECONFIG=kubeconfig)
    os.close(theirs)
    shown = b""
    while shown.count(b"\x1b[J") < 2:
        shown += os.read(ours, 65536)
    assert interrupted(process) == (0, "")
    os.close(ours)
    frames = shown.split(b"\x1b[J")
    assert all(frame.startswith(b"\x1b[H") and b"Kubernetes v1." in frame for frame in frames[:2])


def test_a_cluster_that_is_away_is_said_and_asked_again(tmp_path):
    process = watching(
        "status", "--watch", "--every", "0.5", output=subprocess.DEVNULL, KUBECONFIG=str(tmp_path / "comes-later.yaml")
    )
    sentences = [process.stderr.readline() for _ in range(2)]
    assert interrupted(process)[0] == 0
    assert all("comes-later.yaml" in each for each in sentences)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon", "1e99"])
def test_a_span_that_is_none_is_refused(text):
    done = forebay("status", f"--every={text}")
    assert done.returncode == 2
    assert "number of seconds" in done.stderr
