"""Asks the database of known vulnerabilities (osv.dev) about every dependency that is locked: `make audit`.

Exit codes: 0 none is known, or the database could not be reached, which one line says; 1 some are known.
"""

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

DATABASE: Final = "https://api.osv.dev/v1/querybatch"
_REQUIREMENTS: Final = Path(__file__).parents[1] / "requirements"
_PINNED: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)", re.MULTILINE)
_TIMEOUT: Final = 10.0

Package = tuple[str, str]


def packages(texts: Iterable[str]) -> list[Package]:
    """Names and versions that requirement files pin."""
    return sorted({(name.lower(), version) for text in texts for name, version in _PINNED.findall(text)})


def known(found: Sequence[Package], answer: Mapping[str, Any]) -> dict[Package, list[str]]:
    """Ids of known vulnerabilities by package, of an answer to `question`."""
    results = answer["results"]
    if len(results) != len(found):
        raise ValueError(f"the database answered about {len(results)} of {len(found)} packages")
    ids = {
        package: [each["id"] for each in result.get("vulns", ())]
        for package, result in zip(found, results, strict=True)
    }
    return {package: each for package, each in ids.items() if each}


def question(found: Sequence[Package]) -> bytes:
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in found]
    return json.dumps({"queries": queries}).encode()


def audit(found: Sequence[Package], database: str = DATABASE) -> tuple[int, list[str]]:
    """Exit code, and the lines to print."""
    request = urllib.request.Request(database, question(found), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            answer = json.load(response)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        return 0, [f"dependency audit SKIPPED: {len(found)} packages not checked, {database} cannot be read ({why})"]
    vulnerable = known(found, answer)
    if not vulnerable:
        return 0, [f"dependency audit: nothing is known against {len(found)} packages"]
    return 1, [f"{name} {version}: {', '.join(ids)}" for (name, version), ids in vulnerable.items()]


def main() -> int:
    code, lines = audit(packages(path.read_text() for path in sorted(_REQUIREMENTS.glob("*.txt"))))
    for line in lines:
        sys.stderr.write(f"{line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
