"""The pages say what the code does."""

import re
from pathlib import Path

from docs.generate import stale

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
