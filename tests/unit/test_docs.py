"""The pages say what the code does."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from docs.generate import stale
from forebay.api.codec import all_faults, unknown_fields
from forebay.api.names import API_VERSION
from forebay.cli import main
from forebay.cli.commands import COMMANDS
from forebay.cli.parser import build
from forebay.embedded.api.schema import default, validate
from forebay.install.crds import custom_resource_definitions

ROOT = Path(__file__).parents[2]


def test_generated_files_are_up_to_date():
    assert stale(ROOT) == {}


def test_every_annotation_of_the_embedded_cluster_is_on_its_page():
    sources = "".join(path.read_text() for path in (ROOT / "src/forebay/embedded").rglob("*.py"))
    used = set(re.findall(r'"(embedded\.forebay\.dev/[a-z-]+)"', sources))

    page = (ROOT / "docs/embedded.md").read_text()

    assert used
    assert used == set(re.findall(r"`(embedded\.forebay\.dev/[a-z-]+)`", page))


def test_links_between_pages_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []


def pages():
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def anchors(page):
    """Those that a forge gives to the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_into_a_page_lead_to_a_heading():
    broken = [
        f"{page.relative_to(ROOT)}: {target}#{anchor}"
        for page in pages()
        for target, anchor in re.findall(r"\]\(([^)#:]*\.md)?#([^)]+)\)", page.read_text())
        if anchor not in anchors(page.parent / target if target else page)
    ]
    assert broken == []


def test_tests_that_pages_name_exist():
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        for name in re.findall(r"`(tests/[\w./-]+)`", page.read_text())
        if not (ROOT / name).exists()
    ]
    assert missing == []


def test_every_page_is_found_from_the_index():
    index = ROOT / "docs/README.md"
    linked = set(re.findall(r"\]\(([^)#:]+)", index.read_text()))
    sections = {"decisions", "providers", "reference", "runbooks", "tutorials"}
    unlisted = [
        str(page.relative_to(index.parent))
        for page in index.parent.rglob("*.md")
        if page != index
        and str(page.relative_to(index.parent)) not in linked
        and page.relative_to(index.parent).parts[0] not in sections
    ]
    assert unlisted == []


def test_every_decision_is_listed():
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert [record.name for record in (ROOT / "docs/decisions").glob("0*.md") if record.name not in index] == []


def commands(page):
    """Commands of ours in the page's code, without comments, pipes and redirections."""
    text = page.read_text()
    code = [line for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    code += [line for line in text.splitlines() if line.startswith("    ")]
    for line in code:
        for part in re.split(r"\|(?!\|)|&&|;|&|[12]?>\s*\S+", re.sub(r"\s#.*", "", line)):
            found = re.fullmatch(r"(?:[A-Z_]+=\S+ |kubectl |\$ )*forebay ([a-z].*)", part.strip())
            if found:
                yield found[1]


def test_commands_that_pages_show_exist_with_their_options():
    parser = build(COMMANDS)
    shown = [(page, command) for page in pages() for command in commands(page)]
    assert len(shown) > 90
    for page, command in shown:
        try:
            parser.parse_args(shlex.split(command))
        except SystemExit as error:
            if error.code:
                pytest.fail(f"{page.relative_to(ROOT)}: forebay {command}")


def test_what_pages_show_of_examples_is_what_the_commands_print(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = [
        block
        for page in pages()
        for block in re.findall(r"```console\n\$ forebay ([^\n]* docs/examples/.*?)```", page.read_text(), re.DOTALL)
    ]
    assert shown
    for command, _, printed in (each.partition("\n") for each in shown):
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out == printed


def test_commands_about_examples_work(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = {command for page in pages() for command in commands(page) if " docs/examples/" in command}
    assert {each.split()[0] for each in found} >= {"plan", "simulate"}
    for command in sorted(found):
        assert main(shlex.split(command)) == 0, command
    assert "hindsight bound" in capsys.readouterr().out


def test_objects_that_pages_and_examples_show_are_accepted_by_the_api_server():
    schemas = {
        each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for each in custom_resource_definitions()
    }
    texts = [block for page in pages() for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)]
    texts += [path.read_text() for path in (ROOT / "docs").rglob("*.yaml")]
    shown = [each for text in texts for each in yaml.safe_load_all(text) if isinstance(each, dict)]
    ours = [each for each in shown if each.get("apiVersion") == API_VERSION]
    assert {each["kind"] for each in ours} == set(schemas)
    for each in ours:
        assert (list(all_faults(each)), list(unknown_fields(each))) == ([], []), each
        default(schemas[each["kind"]], each)
        assert list(validate(schemas[each["kind"]], each)) == [], each
