"""Completion scripts, asked by the shells that read them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.cli.commands import COMMANDS
from forebay.cli.completion import SHELLS, levels
from forebay.cli.parser import build
from tests.needs import kubectl

BASH = """
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_forebay
printf '%s\\n' "${COMPREPLY[@]}"
"""
#: The functions of zsh's completion system that the script calls print what they would offer.
ZSH = """
_describe() { print -rl -- ${(P)2}; }
_files() { print -r -- FILES; }
words=("$@") CURRENT=$#
_forebay
"""


@pytest.fixture(scope="module")
def scripts():
    return {shell: script(levels(build(COMMANDS))) for shell, script in SHELLS.items()}


def ask(shell, script, *words):
    """What the shell offers after these words, without descriptions."""
    if shell == "fish":
        command = ["fish", "--no-config", "--command", f"{script}\ncomplete -C '{' '.join(words)}'"]
    elif shell == "bash":
        command = ["bash", "--norc", "-c", script + BASH, "bash", *words]
    else:
        command = ["zsh", "-f", "-c", "compdef() { :; }\n" + script + ZSH, "zsh", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert not done.stderr
    separator = "\t" if shell == "fish" else ":"
    return [line.split(separator)[0] for line in done.stdout.splitlines() if line]


each_shell = pytest.mark.parametrize(
    "shell", ["bash", pytest.param("zsh", marks=pytest.mark.shells), pytest.param("fish", marks=pytest.mark.shells)]
)


@each_shell
def test_a_command_is_completed(shell, scripts):
    assert "status" in ask(shell, scripts[shell], "forebay", "st")


@each_shell
def test_a_group_of_commands_offers_its_own_commands_and_no_others(shell, scripts):
    offered = ask(shell, scripts[shell], "forebay", "providers", "")
    assert "check" in offered
    assert "status" not in offered


@each_shell
def test_an_option_offers_the_values_it_takes(shell, scripts):
    assert {"text", "json"} <= set(ask(shell, scripts[shell], "forebay", "status", "--output", ""))
    assert {"debug", "info", "warning", "error"} <= set(
        ask(shell, scripts[shell], "forebay", "providers", "check", "--log-level", "")
    )


@each_shell
def test_settings_are_completed_as_options_are(shell, scripts):
    assert "--health-server-address" in ask(shell, scripts[shell], "forebay", "run", "--health")


def test_a_value_that_is_a_file_is_left_to_the_shell(scripts):
    assert ask("bash", scripts["bash"], "forebay", "plan", "--offers", "") == []


def test_no_command_is_missing():
    paths = {level.path for level in levels(build(COMMANDS))}
    assert {command.name for command in COMMANDS} <= paths
    assert {f"{group.name} {each.name}" for group in COMMANDS for each in group.commands} <= paths


@pytest.mark.kubectl
def test_kubectl_runs_forebay_as_its_plugin():
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("kubectl-forebay", path=path) is None:
        pytest.skip("the package is not installed beside this interpreter")
    done = subprocess.run(
        [str(kubectl()), "forebay", "version", "--client"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": path, "HOME": "/nonexistent"},
    )
    assert done.stdout.startswith("Forebay "), done.stderr
