"""The commands and values in docs/install.md work."""

import re
import shlex

import pytest
import yaml

from forebay.cli.commands import COMMANDS
from forebay.cli.parser import parse
from forebay.install.manifests import METRICS_PORT, POD_SECURITY, PORT
from forebay.providers.webhook.groups import read_groups
from tests.unit.deploy.helm import KUBE_VERSION, ROOT, environment, helm, rendered

PAGE = (ROOT / "docs/install.md").read_text()


def commands(program: str) -> list[list[str]]:
    """Command lines of the page, each as words up to a pipe."""
    lines = re.findall(rf"^    ({program} .*)$", PAGE, re.MULTILINE)
    return [shlex.split(line.partition(" | ")[0])[1:] for line in lines]


@pytest.mark.helm
@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_values_on_the_page_render(block):
    manifests = rendered(yaml.safe_load(block))
    assert read_groups(environment(manifests)).problems == ()


@pytest.mark.helm
@pytest.mark.parametrize("words", commands("helm"), ids=" ".join)
def test_helm_commands_on_the_page_are_valid(words, tmp_path):
    assert words[0] in {"install", "show", "template"}
    if words[0] == "install":
        # Only rendered here; tests/cluster/test_install.py installs it.
        words = ["template", *(word for word in words[1:] if word not in {"--values", "values.yaml"}), *KUBE_VERSION]
    answer = helm(*(str(ROOT / word) if word.startswith("deploy/") else word for word in words))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout


@pytest.mark.parametrize("words", commands("forebay"), ids=" ".join)
def test_forebay_commands_on_the_page_are_valid(words):
    command, _, _ = parse(COMMANDS, words, {})
    assert command.name in words


def test_numbers_on_the_page_are_those_in_the_code():
    assert f"user {POD_SECURITY['runAsUser']}," in PAGE
    assert f"on port {PORT}." in PAGE
    assert f"on port {METRICS_PORT}," in PAGE


def test_variables_on_the_page_define_a_machine():
    (words,) = (words for words in commands("kubectl") if "set" in words)
    groups = read_groups(dict(word.split("=", 1) for word in words if "=" in word))
    assert groups.problems == ()
    assert [machine.name for machine in groups.machines] == ["gpu-worker-1"]
