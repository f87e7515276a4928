"""One word for one thing: public types have one home, and replaced words stay replaced (docs/reference/glossary.md)."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import forebay

SOURCE = Path(forebay.__file__).parent
ROOT = SOURCE.parents[1]
#: What was said before the field's own words were used.
REPLACED = (
    "obtained", "given back", "gives back", "left alone", "in vain", "switched on", "switched off", "tenants", "errand",
    "bookkeeper", "hopeless", "was told", "is told why",
)  # fmt: skip
TEXTS = sorted(
    path
    for folder in ("src/forebay", "docs", "deploy")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".md", ".tpl", ".txt"}
)


def public_types():
    found = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SOURCE)))
    return found


def test_no_two_public_types_share_a_name():
    assert {name: homes for name, homes in public_types().items() if len(homes) > 1} == {}


@pytest.mark.parametrize("word", REPLACED)
def test_a_replaced_word_does_not_come_back(word):
    pattern = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    here = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        # The Philly trace calls its virtual clusters tenants, and the benchmark prints that.
        if pattern.search(line) and "philly" not in line
    ]
    assert here == []
