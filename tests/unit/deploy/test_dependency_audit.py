"""The audit of dependencies: what it asks, what it finds, and that a skipped one says so."""

import json
from pathlib import Path

import pytest

from tests.dependency_audit import audit, known, packages, question

LOCKED = "aiohttp==3.14.5 \\\n    --hash=sha256:01 \\\n    # via forebay\nPyYAML==6.0.3 ; python_version > '3' \\\n"
FOUND = [("aiohttp", "3.14.5"), ("pyyaml", "6.0.3")]


def test_all_pinned_packages_are_asked_about():
    assert packages([LOCKED, LOCKED]) == FOUND
    asked = json.loads(question(FOUND))["queries"]
    assert asked[1] == {"package": {"name": "pyyaml", "ecosystem": "PyPI"}, "version": "6.0.3"}
    own = packages(each.read_text() for each in Path("requirements").glob("*.txt"))
    assert {"aiohttp", "msgspec", "highspy"} <= {name for name, _ in own}


def test_what_is_known_is_said_by_package():
    answer = {"results": [{}, {"vulns": [{"id": "GHSA-1"}, {"id": "CVE-2"}]}]}
    assert known(FOUND, answer) == {("pyyaml", "6.0.3"): ["GHSA-1", "CVE-2"]}
    with pytest.raises(ValueError, match="1 of 2"):
        known(FOUND, {"results": [{}]})


def test_an_audit_without_a_database_says_in_one_line_that_it_was_skipped():
    code, (line,) = audit(FOUND, "http://127.0.0.1:9/v1/querybatch")
    assert code == 0
    assert line.startswith("dependency audit SKIPPED: 2 packages not checked")
