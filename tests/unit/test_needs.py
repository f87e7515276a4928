"""What a machine lacks is said at the end of the run, with what to do; in CI it is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import NEEDS, skip, summary

REPOSITORY = Path(__file__).parents[2]
#: One that needs a control plane, one that needs kubectl, and one that needs nothing.
THREE = [
    "tests/rig/test_rig.py::test_a_refusal_says_what_was_refused",
    "tests/contract/kubectl/test_kubectl.py::test_kubectl_watches_the_same_on_both_servers",
    "tests/rig/test_rig.py::test_every_program_is_pinned",
]


def on_a_bare_machine(home, *arguments, ci="false"):
    """pytest where there is no control plane and no kubectl."""
    environment = {
        "PATH": "",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "CI": ci,
        "LANG": os.environ.get("LANG", "C"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


def test_each_need_that_is_not_met_has_one_line_with_its_count():
    control_plane, kubectl, helm, *_ = NEEDS

    lines = summary([kubectl.reason, control_plane.reason, kubectl.reason, "it does not promise that"])

    assert lines == [
        f"NOT TESTED without a real control plane (1 test): {control_plane.remedy}",
        f"NOT TESTED without kubectl (2 tests): {kubectl.remedy}",
        "SKIPPED (1 test): it does not promise that",
    ]
    assert helm.reason == f"NOT TESTED without Helm: {helm.remedy}"
    assert summary([]) == []


def test_a_run_ends_with_what_was_not_tested(tmp_path):
    control_plane, kubectl, *_ = NEEDS

    for workers in ("0", "1"):
        done = on_a_bare_machine(tmp_path, "-n", workers, *THREE)

        assert done.returncode == 0, done.stdout
        *_, first, second, last = done.stdout.splitlines()
        assert [first, second] == summary([control_plane.reason, kubectl.reason])
        assert "1 passed, 2 skipped" in last


def test_in_ci_what_cannot_be_tested_fails(tmp_path):
    done = on_a_bare_machine(tmp_path, *THREE, ci="true")

    assert done.returncode == 1
    assert "1 passed, 2 errors" in done.stdout
    assert "NOT TESTED without kubectl: run `make kubectl`" in done.stdout


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.marker)
def test_only_what_is_not_ours_to_provide_may_be_missing_in_ci(monkeypatch, need):
    monkeypatch.setenv("CI", "true")

    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception)) as ended:
        skip(need)

    may_be_missing = {"browser", "prices", "prometheus", "shells", "specs"}
    assert ended.type is (pytest.skip.Exception if need.marker in may_be_missing else pytest.fail.Exception)
