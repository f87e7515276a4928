"""Manifests in files and on standard input, read within limits: a hostile file costs a sentence, not the process."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from forebay.cli.parser import UserError

STDIN: Final = "-"
_ENDINGS: Final = (".yaml", ".yml", ".json")
#: Levels of a document. Manifests have fewer than 30.
_DEEPEST: Final = 200
TOO_DEEP: Final = "is nested too deeply to be a manifest"
#: Values of a document whose aliases are written out.
_MOST_VALUES: Final = 20_000_000
_CSafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def named_files(name: str) -> list[str]:
    """The files that a name stands for: of a folder, those that end as manifests do."""
    if name == STDIN or not Path(name).is_dir():
        return [name]
    found = sorted(str(each) for each in Path(name).iterdir() if each.suffix in _ENDINGS and each.is_file())
    if not found:
        raise UserError(f"{name} has no files that end in {', '.join(_ENDINGS)}")
    return found


def read_data(name: str) -> bytes:
    """The bytes of a file, or of standard input. Raises `UserError`."""
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}") from error


def documents_in(name: str, data: bytes) -> Iterator[tuple[str, Any]]:
    """The documents of a YAML or JSON file, each with where it is. Raises `UserError`."""
    origin = "standard input" if name == STDIN else name
    if data.lstrip().startswith(b"{"):
        # Reading thousands of pods (kubectl get pods -o json) with the YAML parser would take minutes.
        try:
            document = msgspec.json.decode(data)
        except msgspec.DecodeError:
            pass
        except RecursionError:
            raise UserError(f"{origin} {TOO_DEEP}") from None
        else:
            if _is_too_deep(document):
                raise UserError(f"{origin} {TOO_DEEP}")
            yield origin, document
            return
    try:
        _check_depth(data, origin)
        for number, document in enumerate(yaml.load_all(data, Loader=_CSafeLoader)):
            where = f"{origin}, document {number + 1}"
            if b"&" in data and _values(document, {}) > _MOST_VALUES:
                raise UserError(f"{where} has too many values once its aliases are written out")
            yield where, document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise UserError(f"{origin} is not YAML: {line}{error.problem}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{origin} is not YAML: {' '.join(str(error).split())}") from error
    except (ValueError, RecursionError) as error:
        # A date such as 2026-13-45, or brackets without end.
        raise UserError(f"{origin} is not YAML: {error}") from error


def _is_too_deep(document: Any) -> bool:
    """Whether JSON is nested more deeply than YAML may be. How deep the decoder itself reads depends on the stack."""
    level = [document]
    for _ in range(_DEEPEST + 1):
        parts = (each.values() if isinstance(each, dict) else each for each in level)
        level = [part for each in parts for part in each if isinstance(part, dict | list)]
        if not level:
            return False
    return True


def _check_depth(data: bytes, origin: str) -> None:
    """Raise `UserError` for YAML so deep that libyaml's loader, which recurses in C, would end the process.

    Each level takes a bracket, or a column of its line: most files need no second look.
    """
    brackets = data.count(b"[") + data.count(b"{")
    if brackets <= _DEEPEST and max(map(len, data.splitlines()), default=0) <= _DEEPEST:
        return
    depth = 0
    for event in yaml.parse(data, Loader=_CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise UserError(f"{origin} {TOO_DEEP}")


def _values(value: Any, known: dict[int, int]) -> int:
    """How many values the document has with its aliases written out. An alias within its own anchor has no end."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = _MOST_VALUES + 1
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values(each, known) for each in parts)
    return known[id(value)]
