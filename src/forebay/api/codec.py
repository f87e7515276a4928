"""Decoding and encoding of Forebay's kinds.

Fields this version does not know are dropped on decoding, as the API server prunes what the CRD does not name. During
an upgrade the CRD may know more than the running Forebay: Forebay therefore changes objects by patches of single
fields, and writes whole objects only when it creates them. For users' files, `unknown_fields` finds the typos that
decoding ignores.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

import msgspec

from forebay.api.declaration import CustomKind
from forebay.api.kinds import KINDS
from forebay.api.meta import Object
from forebay.api.names import API_VERSION
from forebay.api.schema import Schema, object_schema
from forebay.api.schema_faults import SchemaFault, schema_faults

T = TypeVar("T", bound=Object)


class Undecodable(ValueError):
    """JSON that is not an object of the kind. `path` is the invalid field, empty for the whole object."""

    def __init__(self, kind: str, path: str, problem: str) -> None:
        super().__init__(f"{kind}{f' {path}' if path else ''}: {problem}")
        self.kind = kind
        self.path = path
        self.problem = problem


class _Header(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


def decode(kind: CustomKind[T], data: bytes) -> T:
    """Decodes an object of the given kind. Items of a list need not repeat apiVersion and kind."""
    try:
        header = msgspec.json.decode(data, type=_Header)
        if (header.kind or kind.kind, header.api_version or API_VERSION) != (kind.kind, API_VERSION):
            raise Undecodable(kind.kind, "", f"is a {header.kind} of {header.api_version}, not of {API_VERSION}")
        return msgspec.json.decode(data, type=kind.type)
    except msgspec.MsgspecError as error:
        raise _undecodable(kind.kind, error) from None


def decode_any(data: bytes) -> Object:
    """Decodes an object of any of Forebay's kinds, by its apiVersion and kind."""
    try:
        header = msgspec.json.decode(data, type=_Header)
    except msgspec.MsgspecError as error:
        raise _undecodable("object", error) from None
    found: Object = decode(_kind_of(header), data)
    return found


def encode(obj: Object) -> bytes:
    """JSON of the object with apiVersion and kind. Default values are omitted: the API server fills them in."""
    (kind,) = (kind for kind in KINDS if kind.type is type(obj))
    document = {"apiVersion": kind.api_version, "kind": kind.kind} | msgspec.to_builtins(obj)
    return msgspec.json.encode(document)


def all_faults(document: dict[str, Any]) -> list[SchemaFault]:
    """Everything for which a manifest of one of Forebay's kinds cannot be decoded. Raises for other kinds."""
    return list(schema_faults(document, _kind_of(msgspec.convert(document, _Header)).type))


def unknown_fields(document: dict[str, Any]) -> dict[str, str]:
    """Paths in a manifest of one of Forebay's kinds that are not fields of the kind, each with the field there that is
    written almost like it; empty where none is.
    """
    kind = _kind_of(msgspec.convert(document, _Header))
    return dict(_unknown(document, _schema(kind.kind), ""))


@cache
def _schema(name: str) -> Schema:
    return next(object_schema(kind.type) for kind in KINDS if kind.kind == name)


def _unknown(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if schema.get("x-kubernetes-preserve-unknown-fields") or path == "metadata":
        return
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name, below in value.items():
            inner = known.get(name, schema.get("additionalProperties"))
            where = f"{path}.{name}" if path else name
            if inner is None:
                near = get_close_matches(name, known.keys() - value.keys(), 1)
                yield where, near[0] if near else ""
            else:
                yield from _unknown(below, inner, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, schema.get("items", {}), f"{path}[{index}]")


def _kind_of(header: _Header) -> CustomKind[Any]:
    for kind in KINDS:
        if (kind.kind, kind.api_version) == (header.kind, header.api_version):
            return kind
    known = ", ".join(kind.kind for kind in KINDS)
    found = f"{header.kind or 'no kind'} of {header.api_version or 'no apiVersion'}"
    raise Undecodable(header.kind or "object", "", f"{found} is not a kind of {API_VERSION}; those are {known}")


def _undecodable(kind: str, error: msgspec.MsgspecError) -> Undecodable:
    """The error with its path, which ends msgspec's message: `Expected ... - at `$.spec.quota``."""
    problem, _, place = str(error).partition(" - at ")
    found = re.match(r"`\$\.?(.*)`", place)
    return Undecodable(kind, found[1] if found else "", problem)
