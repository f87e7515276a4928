"""The example manifests of the documentation, and changed copies of them."""

import copy
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def example(name: str) -> Json:
    return yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())


def changed(name: str, change: Json) -> Json:
    """The example after a JSON merge patch: null removes."""
    return _merged(example(name), change)


def _merged(target: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
