"""`forebay version`: what runs here, and what it talks to."""

import json
import platform

import pytest

from forebay import __version__
from tests.unit.cli.test_commands import forebay, running


def test_the_version_of_the_command_needs_no_cluster():
    done = forebay("version", "--client")
    assert (done.returncode, done.stdout) == (0, f"Forebay      {__version__} (Python {platform.python_version()})\n")


def test_without_a_cluster_one_sentence_says_so():
    done = forebay("version")
    assert done.returncode == 2
    assert done.stderr.startswith("forebay: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_script_gets_the_version_of_the_command_and_why_the_cluster_has_none():
    done = forebay("version", "--output", "json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert (document["forebay"], document["kubernetes"]) == (__version__, None)
    assert done.stderr == f"forebay: {document['problem']}\n"


@pytest.mark.parametrize("output", ["text", "json"])
def test_the_version_of_the_cluster_is_asked_of_its_api_server(output, tmp_path):
    with running("embedded", "--write-kubeconfig", str(tmp_path / "kubeconfig")) as (_, kubeconfig):
        done = forebay("version", "--output", output, KUBECONFIG=str(kubeconfig))
    assert done.returncode == 0, done.stderr
    if output == "text":
        assert "Kubernetes   v1." in done.stdout
    else:
        document = json.loads(done.stdout)
        assert document["forebay"] == __version__
        assert document["kubernetes"].startswith("v1.")
        assert document["problem"] is None
