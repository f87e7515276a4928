"""All faults of a value: decoding stops at the first."""

from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import msgspec


class SchemaFault(NamedTuple):
    """Why a field is refused. The path is empty for the value as a whole."""

    path: str
    problem: str


class _Part(NamedTuple):
    """A value inside another one, and the type that it must have."""

    value: Any
    expected: Any
    path: str


def schema_faults(value: Any, expected: Any, path: str = "") -> Iterator[SchemaFault]:
    """Everything for which decoding refuses the value, as parsed from JSON."""
    refusal = _refusal(value, expected)
    if refusal is None:
        return
    plain, limits = _plain(expected)
    found = [SchemaFault(path, each) for each in _faults_of_the_whole(value, plain, limits)]
    found += [fault for part in _parts(value, plain, path) for fault in schema_faults(*part)]
    yield from found or [SchemaFault(path, refusal)]


def _refusal(value: Any, expected: Any) -> str | None:
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=expected)
    except msgspec.MsgspecError as error:
        return str(error).partition(" - at ")[0]
    return None


def _plain(expected: Any) -> tuple[Any, Sequence[msgspec.Meta]]:
    """The type without what restricts it, and that. An optional type counts as what it may be."""
    if get_origin(expected) is Annotated:
        inner, *limits = get_args(expected)
        plain, more = _plain(inner)
        return plain, [*limits, *more]
    if get_origin(expected) in (Union, UnionType):
        members = [each for each in get_args(expected) if each is not NoneType]
        return _plain(members[0]) if len(members) == 1 else (expected, [])
    return expected, []


def _faults_of_the_whole(value: Any, plain: Any, limits: Sequence[msgspec.Meta]) -> Iterator[str]:
    """Lengths of lists and maps, and fields that are missing."""
    if limits and isinstance(value, list | dict):
        refusal = _refusal(value, Annotated[(type(value), *limits)])
        yield from [refusal] if refusal else []
    if _is_struct(plain) and isinstance(value, dict):
        for each in msgspec.structs.fields(plain):
            if each.required and each.encode_name not in value:
                yield f"Object missing required field `{each.encode_name}`"


def _parts(value: Any, plain: Any, path: str) -> Iterator[_Part]:
    below = f"{path}." if path else ""
    if _is_struct(plain) and isinstance(value, dict):
        for each in msgspec.structs.fields(plain):
            if each.encode_name in value:
                yield _Part(value[each.encode_name], each.type, f"{below}{each.encode_name}")
    elif get_origin(plain) in (list, tuple) and isinstance(value, list):
        for number, item in enumerate(value):
            yield _Part(item, get_args(plain)[0], f"{path}[{number}]")
    elif get_origin(plain) is dict and isinstance(value, dict):
        for name, item in value.items():
            yield _Part(item, get_args(plain)[1], f"{below}{name}")


def _is_struct(plain: Any) -> bool:
    return isinstance(plain, type) and issubclass(plain, msgspec.Struct)
