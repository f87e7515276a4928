"""Bad input: one sentence on standard error, exit code 2, no traceback."""

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


def error_of(outcome):
    """The one line on standard error of a command that failed with exit code 2."""
    assert outcome.returncode == 2, outcome
    assert outcome.stdout == ""
    lines = outcome.stderr.splitlines()
    assert len(lines) == 1, outcome.stderr
    assert lines[0].startswith("forebay: ")
    return lines[0].removeprefix("forebay: ")


def test_a_broken_kubeconfig(tmp_path):
    path = tmp_path / "config"
    path.write_text("clusters: [\n")

    error = error_of(forebay("status", "--kubeconfig", str(path)))

    assert str(path) in error
    assert "YAML" in error


def test_an_unknown_context_is_refused_with_the_known_ones(tmp_path):
    path = kubeconfig(tmp_path)

    error = error_of(forebay("status", "--kubeconfig", str(path), "--context", "elsewhere"))

    assert error == f'{path} has no context "elsewhere"; its contexts are "here"'


def test_an_expired_client_certificate(tmp_path):
    authority = Authority()
    then = datetime.now(UTC) - timedelta(days=1)
    pair = authority.client("someone", not_before=then - timedelta(days=1), not_after=then)
    certificate, key = pair.write(tmp_path, "someone")
    path = kubeconfig(tmp_path, user={"client-certificate": str(certificate), "client-key": str(key)})

    error = error_of(forebay("status", "--kubeconfig", str(path)))

    assert "expired" in error
    assert f"{then:%Y-%m-%d}" in error


def test_a_refused_connection_names_the_server(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    path = kubeconfig(tmp_path, server=f"http://127.0.0.1:{port}")

    error = error_of(forebay("status", "--kubeconfig", str(path)))

    assert f"127.0.0.1:{port}" in error
    assert "refused" in error


def test_no_cluster_at_all():
    assert "--kubeconfig" in error_of(forebay("status"))


def test_an_invalid_setting(tmp_path):
    error = error_of(forebay("status", FOREBAY_LOG_LEVEL="loud"))

    assert error == "FOREBAY_LOG_LEVEL is 'loud'; it takes one of: debug, info, warning, error."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["demo", "--until-idle", "--speed", "2"], "leave out one of them"),
        (["demo", "--until-idle", "--serve"], "leave out one of them"),
        (["demo", "--serve", "--output", "json"], "leave out --serve or --output json"),
        (["demo", "--port", "8001"], "add --serve"),
        (["explain", "train-0"], "give pod/NAME, job/NAME, node/NAME, gi/NAME or np/NAME"),
        (["explain", "deployment/web"], "give pod/NAME, job/NAME, node/NAME, gi/NAME or np/NAME"),
    ],
)
def test_options_that_exclude_each_other(arguments, expected):
    assert expected in error_of(forebay(*arguments))


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
    ],
)
def test_an_invalid_command_line_is_told_in_one_sentence_with_where_to_read_on(arguments):
    outcome = forebay(*arguments)

    assert outcome.returncode == 2
    what, where = outcome.stderr.splitlines()
    assert what.startswith("forebay")
    assert where.startswith("Options and examples: forebay")
    assert where.endswith(" --help")


@pytest.mark.parametrize(("group", "command"), [([], "simulate"), (["manifests"], "crds"), (["bench"], "budgets")])
def test_without_a_command_the_help_says_what_there_is(group, command):
    outcome = forebay(*group)

    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert f"\n    {command} " in outcome.stdout


def test_everything_that_is_wrong_with_the_settings_is_listed_at_once():
    error = error_of(forebay("run", "--budgets", "maybe", "--web-address", "nowhere", FOREBAY_IDLE_DELAY="soon"))

    for part in (
        "--budgets is 'maybe'; it takes one of: on, off.",
        '--idle-delay: "soon" is',
        "--web-address: 'nowhere' is",
    ):
        assert part in error


def test_a_slip_of_the_finger_is_answered_with_what_was_meant():
    assert "there is no command 'statsu'; did you mean status?" in forebay("statsu").stderr
    assert "forebay status: -o/--output is 'xml'; give one of text, json, yaml" in forebay("status", "-o", "xml").stderr
    assert "forebay explain: give KIND/NAME\n" in forebay("explain").stderr
    unknown = "forebay status: unrecognized arguments: --bogus\nOptions and examples: forebay status --help\n"
    assert forebay("status", "--bogus").stderr == unknown
    assert "unrecognized arguments: --ouput json; did you mean --output?" in forebay("status", "--ouput", "json").stderr
    assert "argument --seed: 'x' is not a whole number" in forebay("demo", "--seed", "x").stderr


def test_the_version_of_the_command_is_told_without_a_cluster(tmp_path):
    outcome = forebay("version", KUBECONFIG=str(tmp_path / "none"))

    assert outcome.returncode == 2
    assert outcome.stdout.startswith("Forebay  ")


def test_the_kubeconfig_of_another_cluster_is_not_overwritten(tmp_path):
    path = kubeconfig(tmp_path)
    before = path.read_bytes()

    error = error_of(forebay("embedded", "--write-kubeconfig", str(path)))

    assert "not overwritten" in error
    assert path.read_bytes() == before


def test_a_port_in_use(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        outcome = forebay("embedded", "--port", port, "--write-kubeconfig", str(tmp_path / "new"))

    assert f"cannot serve on port {port}" in error_of(outcome)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "address", [":99999", "nonsense", "[::1", "::1:8080", "a b:80", ":-1", f"{'x' * 70}.example.com:80", "1.2.3.4:x"]
)
def test_an_address_that_nothing_can_listen_on(tmp_path, address):
    error = error_of(forebay("run", "--kubeconfig", str(kubeconfig(tmp_path)), "--health-server-address", address))

    assert address in error
