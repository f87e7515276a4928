"""Validates JSON against the part of JSON Schema that published API specs use.

Every keyword is either checked or known to check nothing: a schema with any other raises, so that no rule of a spec is
ignored silently. Objects are closed: a property that a schema does not name is a problem, unless it says otherwise.
"""

import re
from datetime import datetime

_SAYS_NOTHING = {
    "$comment",
    "$schema",
    "default",
    "deprecated",
    "description",
    "discriminator",
    "example",
    "examples",
    "externalDocs",
    "nullable",
    "readOnly",
    "title",
    "writeOnly",
    "xml",
}
_CHECKED = {
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "format",
    "if",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "not",
    "oneOf",
    "pattern",
    "properties",
    "required",
    "then",
    "type",
    "unevaluatedProperties",
}
_TYPES = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": (int, float),
    "object": dict,
    "string": str,
}


def problems(value, schema, document=None, *, path="$", closed=True):
    """What is wrong with the value, as texts that begin with the path; none where it is valid.

    `document` is where references lead to.
    """
    document = schema if document is None else document
    unknown = {key for key in schema if not key.startswith("x-")} - _SAYS_NOTHING - _CHECKED
    assert not unknown, f"json_schema.py does not know {sorted(unknown)}"
    if "$ref" in schema:
        return problems(value, _referred(schema["$ref"], document), document, path=path, closed=closed)
    if value is None and schema.get("nullable"):
        return []
    found = [*_of_type(value, schema, path)]
    if found:
        return found
    found += _limits(value, schema, path)
    if isinstance(value, dict):
        found += _properties(value, schema, document, path, closed=closed)
    if isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            found += problems(each, schema["items"], document, path=f"{path}[{number}]", closed=closed)
    return [*found, *_combined(value, schema, document, path, closed=closed)]


def _referred(reference, document):
    found = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def _of_type(value, schema, path):
    named = schema.get("type", [])
    types = [named] if isinstance(named, str) else named
    if types and not any(_is(value, each) for each in types):
        yield f"{path}: {value!r:.60} is not of type {' or '.join(types)}"


def _is(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _limits(value, schema, path):
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r:.60} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r:.60} is not {schema['const']!r}"
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
            yield f"{path}: {len(value)} characters"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: {value!r:.60} does not match {schema['pattern']}"
        if schema.get("format") == "date-time":
            yield from _date_time(value, path)
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{path}: {len(value)} items"
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of bounds"


def _date_time(value, path):
    try:
        aware = datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        yield f"{path}: {value!r:.60} is no date-time"


def _properties(value, schema, document, path, *, closed):
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}: {name} is missing"
    others = schema.get("additionalProperties", not (closed and known))
    for name, each in value.items():
        if name in known:
            yield from problems(each, known[name], document, path=f"{path}.{name}", closed=closed)
        elif others is False:
            yield f"{path}: {name} is not known"
        elif isinstance(others, dict):
            yield from problems(each, others, document, path=f"{path}.{name}", closed=closed)


def _combined(value, schema, document, path, *, closed):
    for each in schema.get("allOf", ()):
        # Each part names some of the properties only.
        yield from problems(value, each, document, path=path, closed=False)
    if "if" in schema and not problems(value, schema["if"], document, closed=False):
        yield from problems(value, schema.get("then", {}), document, path=path, closed=False)
    if "not" in schema and not problems(value, schema["not"], document, closed=False):
        yield f"{path}: is what it must not be"
    if schema.get("unevaluatedProperties") is False and isinstance(value, dict):
        known = _named(schema, document)
        yield from (f"{path}: {name} is not known" for name in value if name not in known)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            failed = [problems(value, each, document, path=path, closed=closed) for each in schema[keyword]]
            valid = sum(not each for each in failed)
            if not valid:
                yield min(failed, key=len)[0]
            elif keyword == "oneOf" and valid > 1:
                yield f"{path}: {valid} of the alternatives are valid"


def _named(schema, document):
    """Properties that a schema and the parts it is composed of name."""
    while "$ref" in schema:
        schema = _referred(schema["$ref"], document)
    return set(schema.get("properties", ())).union(*(_named(each, document) for each in schema.get("allOf", ())))
