"""Versions of Kubernetes that Forebay supports: those that `make matrix` and `make test` run against, and between."""

import re
from typing import Final

#: 1.33 refuses the CustomResourceDefinitions: their validation rules exceed its cost limit.
OLDEST_SUPPORTED: Final = (1, 34)
NEWEST_TESTED: Final = (1, 36)

_VERSION: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:[^0-9].*)?", re.ASCII | re.DOTALL)


def minor_version(text: str) -> tuple[int, int] | None:
    """Major and minor of a version such as `1.36`, `v1.36.4` or `v1.34.1-gke.10`; None if the text is no version."""
    found = _VERSION.fullmatch(text)
    return (int(found[1]), int(found[2])) if found is not None else None


def unsupported_text(version: str) -> str | None:
    """What to know about a cluster of a version that is not tested, in a sentence; None for a supported version."""
    found = minor_version(version)
    tested = f"Kubernetes {_dotted(OLDEST_SUPPORTED)} to {_dotted(NEWEST_TESTED)}"
    if found is None:
        return f"The API server reports no version that can be read ({version!r}); Forebay is tested with {tested}."
    if found < OLDEST_SUPPORTED:
        return (
            f"Kubernetes {version} is too old: Forebay needs {_dotted(OLDEST_SUPPORTED)} or later. Upgrade the cluster."
        )
    if found > NEWEST_TESTED:
        return (
            f"Kubernetes {version} is newer than what this Forebay is tested with ({tested}): look for a newer Forebay."
        )
    return None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
