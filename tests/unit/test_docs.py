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
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_decision_is_listed():
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert [record.name for record in (ROOT / "docs/decisions").glob("0*.md") if record.name not in index] == []
