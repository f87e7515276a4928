"""Schemas of the built-in kinds: their fields, and how their lists merge.

`builtin_types.json` is written by tests/contract/kube/published_types.py from what a real API server publishes. Here it
becomes schemas of the same form as those in CRDs, so that the same code prunes, merges and applies both.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from forebay.embedded.api import failures
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json
from forebay.model.notation import InvalidQuantity, Quantity

GO_TYPE = "x-go-type"
#: Marks a field without omitempty: Go's encoder writes it even where it is empty.
NO_OMITEMPTY = "x-always"
_SIMPLE: dict[str, Json] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time", "nullable": True},
    "quantity": {"x-kubernetes-int-or-string": True, "format": "quantity"},
    "int-or-string": {"x-kubernetes-int-or-string": True},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
_GO_NAMES = {"string": "string", "integer": "int32", "number": "float64", "boolean": "bool"}
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@cache
def _published() -> tuple[dict[str, str], dict[str, Json]]:
    content = msgspec.json.decode((Path(__file__).parent / "builtin_types.json").read_bytes())
    kinds = {name: kind for name, kind in content.items() if isinstance(kind, str)}
    fields = {name: one for name, one in content.items() if isinstance(one, dict)}
    # All types exist before any gets its fields: they refer to each other, some to themselves.
    types: dict[str, Json] = {name: {"type": "object", "properties": {}, GO_TYPE: name} for name in fields}
    for name, one in fields.items():
        if one.pop("", "") == "atomic":
            types[name]["x-kubernetes-map-type"] = "atomic"
        types[name]["properties"].update({field: _field(types, text) for field, text in one.items()})
    return kinds, types


def _field(types: dict[str, Json], text: str) -> Json:
    base, *marks = text.split("|")
    schema = dict(_type(types, base.removesuffix("!")))
    if base.endswith("!"):
        schema[NO_OMITEMPTY] = True
    for mark in marks:
        name, _, value = mark.partition(":")
        if name == "patch":
            schema |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": value}
        elif name == "patch-replace":
            schema["x-kubernetes-patch-strategy"] = "replace"
        elif name == "keys":
            schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": value.split(",")}
        elif name == "set":
            schema["x-kubernetes-list-type"] = "set"
        else:
            schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _type(types: dict[str, Json], text: str) -> Json:
    if text.startswith("[]"):
        return {"type": "array", "items": _type(types, text[2:])}
    if text.startswith("{}"):
        return {"type": "object", "additionalProperties": _type(types, text[2:])}
    return _SIMPLE.get(text) or types[text]


def built_in_schema(kind: ApiKind) -> Json | None:
    kinds, types = _published()
    name = kinds.get(f"{kind.api_version}/{kind.kind}")
    return None if name is None else types[name]


def object_meta() -> Json:
    return _published()[1]["ObjectMeta"]


def decode_unstored(name: str, obj: Json) -> Json:
    """Decodes an object of a type that is sent but never stored, such as DeleteOptions."""
    for _ in decode_built_in(ApiKind(plural="", kind=name), _published()[1][name], obj):
        pass
    return obj


def json_schema() -> Json:
    return _published()[1]["JSONSchemaProps"]


def decode_built_in(kind: ApiKind, schema: Json, obj: Json, path: str = "") -> Iterator[str]:
    """Changes the object in place to what Go's decoder would have read, and yields the unknown fields it dropped.

    Raises a 400 for a value of the wrong type.
    """
    properties, rest = schema.get("properties"), schema.get("additionalProperties")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for key in tuple(obj):
        inner = properties.get(key) if properties is not None else rest
        where = f"{path}.{key}" if path else key
        if inner is None:
            del obj[key]
            yield where
        elif obj[key] is None:
            if not inner.get("nullable"):
                del obj[key]
        else:
            yield from _decode_value(kind, inner, obj[key], where, schema.get(GO_TYPE, ""))
    for key, inner in (properties or {}).items():
        if inner.get(NO_OMITEMPTY) and key not in obj:
            obj[key] = _zero(inner)


def _decode_value(kind: ApiKind, schema: Json, value: Any, path: str, struct: str) -> Iterator[str]:
    wanted = schema.get("type", "")
    if schema.get("format") in {"quantity", "date-time"}:
        _check_format(kind, schema["format"], value)
    elif not wanted:
        if schema.get("x-kubernetes-int-or-string") and type(value) not in {int, str}:
            raise failures.undecodable(kind, value, _go_path(struct, path), "intstr.IntOrString")
    elif isinstance(value, bool) != (wanted == "boolean") or not isinstance(value, _JSON_TYPES[wanted]):
        names = {"object": f"v1.{schema.get(GO_TYPE)}" if GO_TYPE in schema else "map[string]string", "array": "[]"}
        raise failures.undecodable(kind, value, _go_path(struct, path), {**_GO_NAMES, **names}[wanted])
    else:
        yield from _decode_inner(kind, schema, value, path, struct)


def _decode_inner(kind: ApiKind, schema: Json, value: Any, path: str, struct: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from decode_built_in(kind, schema, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _decode_value(kind, schema["items"], item, f"{path}[{index}]", struct)


def _go_path(struct: str, path: str) -> str:
    """The path as Go's decoder writes it: the struct, then all fields, without indexes."""
    return f"{struct}." + ".".join(step.partition("[")[0] for step in path.split("."))


def _check_format(kind: ApiKind, form: str, value: Any) -> None:
    try:
        if form == "quantity":
            Quantity.parse(str(value) if isinstance(value, float) else value)
        else:
            datetime.fromisoformat(value)
    except InvalidQuantity as error:
        raise failures.cannot_handle(kind, error.reason) from None
    except ValueError:
        why = f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'
        raise failures.cannot_handle(kind, why) from None
    except TypeError:
        raise failures.cannot_handle(kind, f"{failures.shown(value)} is not a {form}") from None


def _zero(schema: Json) -> Any:
    if schema.get("type") == "object":
        return {key: _zero(inner) for key, inner in schema.get("properties", {}).items() if inner.get(NO_OMITEMPTY)}
    return {"string": "", "integer": 0, "boolean": False}.get(schema.get("type", ""), "")
