"""Structural schemas of custom resources: pruning, defaulting and validation."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from forebay.embedded.api import cel
from forebay.embedded.api.failures import FieldCause, bad_value, duplicate, not_allowed, required, shown, unsupported
from forebay.embedded.api.objects import Json

_ENVELOPE = ("apiVersion", "kind", "metadata")
#: After one of these errors CEL rules are not evaluated, since they could fail for the same mistake.
_BLOCKING = frozenset(
    {"FieldValueRequired", "FieldValueTypeInvalid", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueTooMany"}
)
_RULES_SKIPPED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_NO_FIELD = "<nil>"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_DURATION = r"-?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d|w)(\s*(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d|w))*|0"
_FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "duration": _DURATION,
    "byte": r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    "uuid": r"(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})",
    "ipv4": r"(\d{1,3}\.){3}\d{1,3}",
    "cidr": r"[0-9a-fA-F.:]+/\d{1,3}",
    "email": r"[^@\s]+@[^@\s]+",
    "hostname": r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*",
    "uri": r"[A-Za-z][-+.A-Za-z0-9]*:[^\s]*|/[^\s]*",
}


def prune(schema: Json, value: Any, path: str = "") -> Iterator[str]:
    """Removes fields that the schema does not have, in place; yields their paths."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from prune(schema.get("items") or {}, item, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or rest is True
    envelope = _ENVELOPE if not path or schema.get("x-kubernetes-embedded-resource") else ()
    for key in tuple(value):
        where = f"{path}.{key}" if path else key
        if key in properties and key not in envelope:
            yield from prune(properties[key], value[key], where)
        elif isinstance(rest, dict):
            yield from prune(rest, value[key], where)
        elif not keeps and key not in envelope:
            del value[key]
            yield where


def default(schema: Json, value: Any) -> None:
    """Sets defaults in place. A null in a field that is not nullable counts as absent."""
    if isinstance(value, list):
        for item in value:
            default(schema.get("items") or {}, item)
    if not isinstance(value, dict):
        return
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, inner in properties.items():
        if key in value and value[key] is None and not inner.get("nullable"):
            del value[key]
        if key not in value and "default" in inner:
            value[key] = _copy(inner["default"])
        if key in value:
            default(inner, value[key])
    if isinstance(rest, dict):
        for item in value.values():
            default(rest, item)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def validate(schema: Json, value: Json, old: Json | None = None) -> list[FieldCause]:
    """All errors. Values that an update leaves unchanged are not validated again, even if the schema has changed."""
    causes = list(_causes(schema, value, "", old))
    if any(cause.reason in _BLOCKING for cause in causes):
        return [*causes, bad_value(_NO_FIELD, None, _RULES_SKIPPED)]
    return [*causes, *_rule_causes(schema, value, "", old, known=old is not None)]


def _causes(schema: Json, value: Any, path: str, old: Any) -> Iterator[FieldCause]:
    if value is None and schema.get("nullable"):
        return
    if old is not None and value == old:
        return
    wanted = schema.get("type")
    either = bool(schema.get("x-kubernetes-int-or-string"))
    types = ("integer", "string") if either else (wanted,) if wanted else ()
    if types and not any(_is(value, one) for one in types):
        actual, names = shown(_type_of(value)), ",".join(types)
        message = f"Invalid value: {actual}: {path} in body must be of type {names}: {actual}"
        yield FieldCause(path, "FieldValueTypeInvalid", message)
    elif isinstance(value, dict):
        yield from _object_causes(schema, value, path, old)
    elif isinstance(value, list):
        yield from _list_causes(schema, value, path, old)
    elif isinstance(value, str):
        yield from _string_causes(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_causes(schema, value, path)
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, schema["enum"])
    yield from _logical_causes(schema, value, path)


def _logical_causes(schema: Json, value: Any, path: str) -> Iterator[FieldCause]:
    for inner in schema.get("allOf") or ():
        yield from _causes(inner, value, path, None)
    if "not" in schema and not any(_causes(schema["not"], value, path, None)):
        yield FieldCause(
            _NO_FIELD, "FieldValueInvalid", f'Invalid value: "": "{path}" must not validate the schema (not)'
        )
    fits = {
        keyword: sum(not any(_causes(inner, value, path, None)) for inner in schema[keyword])
        for keyword in ("anyOf", "oneOf")
        if keyword in schema
    }
    if fits.get("anyOf") == 0:
        message = f'Invalid value: "": "{path}" must validate at least one schema (anyOf)'
        yield FieldCause(_NO_FIELD, "FieldValueInvalid", message)
    if fits.get("oneOf", 1) != 1:
        found = f"{fits['oneOf']} valid alternatives" if fits["oneOf"] else "none valid"
        message = f'Invalid value: "": "{path}" must validate one and only one schema (oneOf). Found {found}'
        yield FieldCause(_NO_FIELD, "FieldValueInvalid", message)


def _object_causes(schema: Json, value: Json, path: str, old: Any) -> Iterator[FieldCause]:
    for key in schema.get("required") or ():
        if key not in value:
            yield required(_below(path, key))
    least, most = schema.get("minProperties", 0), schema.get("maxProperties")
    if len(value) < least:
        yield bad_value(path, len(value), f"{path} in body should have at least {least} properties")
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for key, item in value.items():
        if not path and key == "metadata":
            continue
        inner = properties.get(key, rest)
        if isinstance(inner, dict):
            yield from _causes(inner, item, _below(path, key), before.get(key))


def _list_causes(schema: Json, value: list[Any], path: str, old: Any) -> Iterator[FieldCause]:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if len(value) < least:
        yield bad_value(path, len(value), f"{path} in body should have at least {least} items")
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
    for index, item in enumerate(value):
        yield from _causes(schema.get("items") or {}, item, f"{path}[{index}]", _counterpart(schema, item, old))
    kind = schema.get("x-kubernetes-list-type")
    if kind not in {"set", "map"} and not schema.get("uniqueItems"):
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = _identity(schema, item)
        if identity in seen:
            yield duplicate(f"{path}[{index}]", identity)
        seen.append(identity)


def _string_causes(schema: Json, value: str, path: str) -> Iterator[FieldCause]:
    least, most, pattern = schema.get("minLength", 0), schema.get("maxLength"), schema.get("pattern")
    if most is not None and len(value) > most:
        yield FieldCause(path, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")
    elif len(value) < least:
        yield bad_value(path, value, f"{path} in body should be at least {least} chars long")
    elif pattern and not re.search(pattern, value):
        yield bad_value(path, value, f"{path} in body should match '{pattern}'")
    form = schema.get("format", "")
    if not _has_format(form, value):
        message = f"Invalid value: {shown(value)}: {path} in body must be of type {form}: {shown(value)}"
        yield FieldCause(path, "FieldValueTypeInvalid", message)


@lru_cache(maxsize=4096)
def _has_format(form: str, value: str) -> bool:
    if form == "date-time":
        try:
            return datetime.fromisoformat(value).tzinfo is not None
        except ValueError:
            return False
    return form not in _FORMATS or re.fullmatch(_FORMATS[form], value) is not None


def _number_causes(schema: Json, value: float, path: str) -> Iterator[FieldCause]:
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        message = f'Invalid value: "": Checked value must be of type integer with format int{bits + 1} in {path}'
        yield FieldCause(_NO_FIELD, "FieldValueInvalid", message)
    least, most, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        bound = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield bad_value(path, value, f"{path} in body should be {bound} {least}")
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        bound = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield bad_value(path, value, f"{path} in body should be {bound} {most}")
    if step and (value / step) % 1:
        yield bad_value(path, value, f"{path} in body should be a multiple of {step}")


def _rule_causes(schema: Json, value: Any, path: str, old: Any, *, known: bool) -> Iterator[FieldCause]:
    """Violated CEL rules. `known`: `old` is the value before; otherwise the value before is not known."""
    if value is None or (known and value == old and not _has_transitions(schema)):
        return
    for rule in cel.compiled_rules(schema):
        if rule.is_transition and not known:
            continue
        if known and value == old and not rule.is_transition:
            continue
        problem = rule.violation(schema, value, old)
        if problem is not None:
            yield _rule_cause(rule, path, value, problem)
    if isinstance(value, dict):
        properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
        before = old if known and isinstance(old, dict) else {}
        for key, item in value.items():
            inner = properties.get(key, rest)
            if isinstance(inner, dict):
                yield from _rule_causes(inner, item, _below(path, key), before.get(key), known=key in before)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            was = _counterpart(schema, item, old) if known else None
            where = f"{path}[{index}]"
            yield from _rule_causes(schema.get("items") or {}, item, where, was, known=was is not None)


def _has_transitions(schema: Json) -> bool:
    return any(rule.is_transition for rule in cel.compiled_rules(schema))


def _rule_cause(rule: cel.CompiledRule, path: str, value: Any, problem: str) -> FieldCause:
    where = (path + rule.field_path).removeprefix(".")
    if rule.reason == "FieldValueRequired":
        return required(where, problem)
    if rule.reason == "FieldValueForbidden":
        return not_allowed(where, problem)
    label = "Duplicate value" if rule.reason == "FieldValueDuplicate" else "Invalid value"
    # An object or list is left out, since it would bury the message.
    short = "" if isinstance(value, dict | list) else f"{shown(value)}: "
    return FieldCause(where, rule.reason, f"{label}: {short}{problem}")


def _counterpart(schema: Json, item: Any, old: Any) -> Any:
    """The entry of the old list with the same map keys; None for lists without map keys."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return None
    identity = _identity(schema, item)
    return next((one for one in old if _identity(schema, one) == identity), None)


def _identity(schema: Json, item: Any) -> Any:
    if schema.get("x-kubernetes-list-type") == "map" and isinstance(item, dict):
        return {key: item[key] for key in schema.get("x-kubernetes-list-map-keys", ()) if key in item}
    return item


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _is(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    order = ("boolean", "object", "array", "string", "integer", "number")
    return next(name for name in order if isinstance(value, _TYPES[name]))


def _too_many(path: str, count: int, most: int) -> FieldCause:
    return FieldCause(path, "FieldValueTooMany", f"Too many: {count}: must have at most {most} items")
