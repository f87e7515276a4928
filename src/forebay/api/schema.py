"""Structural OpenAPI schemas of the types: one source for what Forebay decodes and what the API server accepts."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as types

from forebay.api.meta import ObjectMeta
from forebay.api.rules import ValidationRule

Schema = dict[str, Any]
#: Rules of types besides those that they state themselves.
MoreRules = Mapping[type, tuple[ValidationRule, ...]]
_NO_RULES: Final[MoreRules] = MappingProxyType({})


class NoSchema(TypeError):
    """A type that a structural schema cannot express."""


def object_schema(kind: type[msgspec.Struct], more_rules: MoreRules = _NO_RULES) -> Schema:
    """The `openAPIV3Schema` of a kind. The API server itself validates apiVersion, kind and metadata.

    `more_rules` are added to those that the types state themselves.
    """
    schema = _Schemas(more_rules).of(types.type_info(kind))
    return {
        **schema,
        "required": [name for name in schema["required"] if name != "metadata"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this representation of the object."},
            "kind": {"type": "string", "description": "Kind of the object."},
            **schema["properties"],
        },
    }


class _Schemas:
    """Schemas of types, with rules besides their own."""

    def __init__(self, more_rules: MoreRules) -> None:
        self._more_rules = more_rules

    def of(self, info: types.Type) -> Schema:
        match info:
            case types.Metadata(type=inner, extra_json_schema=extra):
                return self.of(inner) | (extra or {})
            case types.UnionType(types=members):
                return self._union([member for member in members if not isinstance(member, types.NoneType)])
            case types.StructType(cls=cls) if cls is ObjectMeta:
                return {"type": "object"}
            case types.StructType():
                return self._struct(info)
            case types.BoolType():
                return {"type": "boolean"}
            case types.IntType():
                bounds = {"minimum": info.ge, "maximum": info.le}
                return {"type": "integer", "format": "int64"} | _set(bounds)
            case types.StrType():
                return {"type": "string"} | _set(_lengths(info, "Length") | {"pattern": info.pattern})
            case types.DateTimeType():
                return {"type": "string", "format": "date-time"}
            case types.EnumType(cls=enum):
                return {"type": "string", "enum": [str(member.value) for member in enum]}
            case types.ListType() | types.VarTupleType():
                return {"type": "array"} | _set(_lengths(info, "Items")) | {"items": self.of(info.item_type)}
            case types.DictType():
                values = {"additionalProperties": self.of(info.value_type)}
                return {"type": "object"} | _set(_lengths(info, "Properties")) | values
            case types.RawType():
                return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            case _:
                raise NoSchema(f"{info} has no structural schema; numbers with fractions are written as int or str")

    def _union(self, members: list[types.Type]) -> Schema:
        """Schema of a union. Kubernetes has two: an optional type, and an integer that may be written as a string."""
        match members:
            case [single]:
                return self.of(single)
            case [types.IntType(), types.StrType() as text]:
                branches = [{"type": "integer"}, {"type": "string"}]
                return {"x-kubernetes-int-or-string": True, "anyOf": branches} | _set(_lengths(text, "Length"))
            case _:
                raise NoSchema(f"{members} is a union Kubernetes does not have")

    def _struct(self, info: types.StructType) -> Schema:
        documented = field_docs(info.cls)
        schema: Schema = {"description": _prose(info.cls.__doc__), "type": "object"}
        if required := [field.encode_name for field in info.fields if field.required]:
            schema["required"] = required
        schema["properties"] = {
            field.encode_name: self._field(field, documented.get(field.name)) for field in info.fields
        }
        if rules := (*getattr(info.cls, "rules", ()), *self._more_rules.get(info.cls, ())):
            schema["x-kubernetes-validations"] = [msgspec.to_builtins(rule) for rule in rules]
        return schema

    def _field(self, field: types.Field, description: str | None) -> Schema:
        schema = self.of(field.type)
        if description:
            schema = {"description": description} | schema | {"description": description}
        default = _default(field)
        # An empty default is omitted, unless the API server must store it to fill in the defaults inside.
        if default in ([], {}, "", None) and not (default == {} and _has_defaults(schema)):
            return schema
        return schema | {"default": default}


def _default(field: types.Field) -> Any:
    if field.default is NODEFAULT and field.default_factory is NODEFAULT:
        return None
    value = field.default if field.default_factory is NODEFAULT else field.default_factory()
    return msgspec.json.decode(msgspec.json.encode(value))


def _has_defaults(schema: Schema) -> bool:
    below = schema.get("properties", {}).values()
    return any("default" in part or _has_defaults(part) for part in below)


def _lengths(info: Any, of: str) -> dict[str, int | None]:
    return {f"min{of}": info.min_length, f"max{of}": info.max_length}


def _set(values: dict[str, Any]) -> Schema:
    return {key: value for key, value in values.items() if value is not None}


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Docstrings of the fields of a class, including inherited ones; read from the source, as Python drops them."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("forebay."):
            found.update(_own_field_docs(base))
    return found


def _own_field_docs(cls: type) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    for statement, after in zip(definition.body, definition.body[1:], strict=False):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, _prose(text)
            case _:
                continue


def _prose(text: str | None) -> str:
    return " ".join((text or "").split())
