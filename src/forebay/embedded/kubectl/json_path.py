"""JSONPath as printer columns of CRDs use it: fields, indexes, wildcards and filters by equality."""

import re
from collections.abc import Callable, Iterator
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\]\\])+)
      | \[(?P<index>-?\d+)\]
      | \[(?P<all>\*)\]
      | \[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
      | \[\?\(\s*@(?P<key>(?:\.[\w/-]+)+)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.-]+)\s*\)\]""",
    re.VERBOSE,
)

PathStep = Callable[[Any], Iterator[Any]]


class JsonPath:
    """A parsed path. Raises `ValueError` for syntax that is not supported."""

    def __init__(self, text: str) -> None:
        path = text.strip().removeprefix("{").removesuffix("}")
        path = path if path.startswith((".", "[")) else f".{path}"
        self._steps: list[PathStep] = []
        position = 0
        while position < len(path):
            found = _STEP.match(path, position)
            if found is None:
                raise ValueError(f"cannot read {path[position:]!r} of the JSON path {text!r}")
            self._steps.append(_step(found))
            position = found.end()

    def find(self, document: Any) -> list[Any]:
        found = [document]
        for step in self._steps:
            found = [inner for one in found for inner in step(one)]
        return found


def _step(found: re.Match[str]) -> PathStep:
    if found["index"] is not None:
        return _indexed(int(found["index"]))
    if found["all"]:
        return lambda one: iter(one if isinstance(one, list) else one.values() if isinstance(one, dict) else ())
    if found["key"]:
        return _filtered(found["key"][1:].split("."), found["value"].strip("\"'"), found["operator"] == "==")
    return _field(re.sub(r"\\(.)", r"\1", found["field"]) if found["field"] else found["quoted"])


def _field(name: str) -> PathStep:
    def step(one: Any) -> Iterator[Any]:
        if isinstance(one, dict) and one.get(name) is not None:
            yield one[name]

    return step


def _indexed(index: int) -> PathStep:
    def step(one: Any) -> Iterator[Any]:
        if isinstance(one, list) and -len(one) <= index < len(one):
            yield one[index]

    return step


def _filtered(keys: list[str], value: str, equal: bool) -> PathStep:  # noqa: FBT001 (private, one caller)
    def step(one: Any) -> Iterator[Any]:
        for item in one if isinstance(one, list) else ():
            inner = item
            for key in keys:
                inner = inner.get(key) if isinstance(inner, dict) else None
            shown = str(inner).lower() if isinstance(inner, bool) else str(inner)
            if inner is not None and (shown == value) is equal:
                yield item

    return step
