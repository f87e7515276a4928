"""The rules of structural schemas, as the API server checks them when a CRD is created."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_KNOWN = {
    "description", "type", "format", "properties", "required", "additionalProperties", "items", "enum", "default",
    "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "minProperties", "maxProperties",
    "anyOf", "nullable", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations",
}  # fmt: skip
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def faults(schema: Schema, path: str = "") -> Iterator[str]:
    """Why the API server would not take the schema, or would report it as not structural."""
    for word in schema.keys() - _KNOWN:
        yield f"{path}: {word} is not allowed"
    if schema.get("x-kubernetes-int-or-string"):
        if "type" in schema or schema.get("anyOf") != _INT_OR_STRING:
            yield f"{path}: int-or-string has no type of its own and exactly the two branches"
    elif "type" not in schema:
        yield f"{path}: has no type"
    elif "anyOf" in schema:
        yield f"{path}: only int-or-string has branches"
    properties = schema.get("properties", {})
    if properties and "additionalProperties" in schema:
        yield f"{path}: properties and additionalProperties exclude each other"
    for name in schema.get("required", []):
        if name not in properties:
            yield f"{path}: requires {name}, which does not exist"
        elif "default" in properties[name]:
            yield f"{path}: {name} is required and has a default"
    yield from _list_faults(schema, path)
    for name, inner in properties.items():
        yield from faults(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from faults(schema[word], f"{path}[]")
    for rule in schema.get("x-kubernetes-validations", []):
        if not rule["message"] or "\n" in rule["message"]:
            yield f"{path}: a rule needs a message of one line"
        if "fieldPath" in rule and not _exists(schema, rule["fieldPath"]):
            yield f"{path}: a rule points at {rule['fieldPath']}, which does not exist"


def _list_faults(schema: Schema, path: str) -> Iterator[str]:
    if schema.get("type") == "array" and "items" not in schema:
        yield f"{path}: a list of nothing"
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if (schema.get("x-kubernetes-list-type") == "map") != bool(keys):
        yield f"{path}: a list is told apart by keys exactly when it is a map"
    for key in keys:
        entry = schema["items"]["properties"].get(key, {})
        if key not in schema["items"].get("required", []) and "default" not in entry:
            yield f"{path}: key {key} may be absent"
        if entry.get("type") not in {"string", "integer", "boolean"}:
            yield f"{path}: key {key} is not a plain value"


def _exists(schema: Schema, path: str) -> bool:
    for name in path.removeprefix(".").split("."):
        schema = schema.get("properties", {}).get(name)
        if schema is None:
            return False
    return True
