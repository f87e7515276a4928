"""What a user gets who typed it wrong: one clear sentence on standard error, exit code 2, never a traceback."""

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from tests.pki import Authority


def kubeconfig(tmp_path, *, server="https://127.0.0.1:1", user=None, **cluster):
    path = tmp_path / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def forebay(*arguments, **variables):
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    return subprocess.run(
        [sys.executable, "-m", "forebay", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )


def sentence(outcome):
    """The one line on standard error of a command that failed as it should."""
    assert outcome.returncode == 2, outcome
    assert outcome.stdout == ""
    lines = outcome.stderr.splitlines()
    assert len(lines) == 1, outcome.stderr
    assert lines[0].startswith("forebay: ")
    return lines[0].removeprefix("forebay: ")


def test_a_broken_kubeconfig(tmp_path):
    path = tmp_path / "config"
    path.write_text("clusters: [\n")

    said = sentence(forebay("status", "--kubeconfig", str(path)))

    assert str(path) in said
    assert "YAML" in said


def test_an_unknown_context_names_those_there_are(tmp_path):
    path = kubeconfig(tmp_path)

    said = sentence(forebay("status", "--kubeconfig", str(path), "--context", "elsewhere"))

    assert said == f'{path} has no context "elsewhere"; its contexts are "here"'


def test_an_expired_client_certificate(tmp_path):
    authority = Authority()
    then = datetime.now(UTC) - timedelta(days=1)
    pair = authority.client("someone", not_before=then - timedelta(days=1), not_after=then)
    certificate, key = pair.write(tmp_path, "someone")
    path = kubeconfig(tmp_path, user={"client-certificate": str(certificate), "client-key": str(key)})

    said = sentence(forebay("status", "--kubeconfig", str(path)))

    assert "expired" in said
    assert f"{then:%Y-%m-%d}" in said


def test_a_refused_connection_names_the_server(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    path = kubeconfig(tmp_path, server=f"http://127.0.0.1:{port}")

    said = sentence(forebay("status", "--kubeconfig", str(path)))

    assert f"127.0.0.1:{port}" in said
    assert "refused" in said


def test_no_cluster_at_all():
    assert "--kubeconfig" in sentence(forebay("status"))


def test_a_setting_that_cannot_be(tmp_path):
    said = sentence(forebay("status", FOREBAY_LOG_LEVEL="loud"))

    assert said == "FOREBAY_LOG_LEVEL is 'loud'; it takes one of: debug, info, warning, error."


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["demo", "--until-idle", "--speed", "2"], "leave out one of them"),
        (["demo", "--until-idle", "--serve"], "leave out one of them"),
        (["demo", "--serve", "--output", "json"], "leave out one"),
        (["demo", "--port", "8001"], "add --serve"),
        (["explain", "train-0"], "give pod/NAME, job/NAME, node/NAME or gi/NAME"),
        (["explain", "deployment/web"], "give pod/NAME, job/NAME, node/NAME or gi/NAME"),
    ],
)
def test_options_that_do_not_go_together(arguments, wanted):
    assert wanted in sentence(forebay(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["wash"],
        ["embedded", "--port", "99999"],
        ["status", "--colour"],
        ["demo", "--speed", "0"],
        ["demo", "--speed", "nan"],
        ["demo", "--jobs", "-3"],
        ["demo", "--seed", "one"],
        ["explain"],
        [],
    ],
)
def test_a_misspelt_command_line_shows_the_usage(arguments):
    outcome = forebay(*arguments)

    assert outcome.returncode == 2
    assert outcome.stderr.startswith("usage: forebay")
    assert "Traceback" not in outcome.stderr


def test_a_kubeconfig_of_another_cluster_is_never_overwritten(tmp_path):
    path = kubeconfig(tmp_path)
    before = path.read_bytes()

    said = sentence(forebay("embedded", "--write-kubeconfig", str(path)))

    assert "not overwritten" in said
    assert path.read_bytes() == before


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        outcome = forebay("embedded", "--port", port, "--write-kubeconfig", str(tmp_path / "new"))

    assert f"cannot serve on port {port}" in sentence(outcome)
    assert not (tmp_path / "new").exists()
