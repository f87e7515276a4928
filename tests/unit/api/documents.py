"""Random documents that a schema allows. CEL rules are ignored."""

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

_TIMES = st.datetimes().map(lambda time: f"{time.replace(microsecond=0).isoformat()}Z")
_LETTERS = st.characters(codec="utf-8", exclude_categories=["Cs"])


def documents(schema: Schema) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(-(2**63), 2**63 - 1) | st.text(_LETTERS, max_size=schema["maxLength"])
    match schema["type"]:
        case "object" if "additionalProperties" in schema:
            keys = st.text("abc/.-", min_size=1, max_size=8)
            return st.dictionaries(keys, documents(schema["additionalProperties"]), max_size=2)
        case "object":
            return _object(schema)
        case "array":
            least = schema.get("minItems", 0)
            return st.lists(documents(schema["items"]), min_size=least, max_size=least + 1)
        case "string" if schema.get("format") == "date-time":
            return _TIMES
        case "string" if "pattern" in schema:
            return st.from_regex(schema["pattern"], fullmatch=True).filter(lambda text: _fits(schema, text))
        case "string":
            return st.text(_LETTERS, min_size=schema.get("minLength", 0), max_size=20)
        case "integer":
            return st.integers(schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1))
        case _:
            return st.booleans()


def _object(schema: Schema) -> st.SearchStrategy[Any]:
    required = schema.get("required", [])
    fields = {name: documents(inner) for name, inner in schema["properties"].items()}
    needed = {name: fields.pop(name) for name in required}
    return st.fixed_dictionaries(needed, optional=fields)


def _fits(schema: Schema, text: str) -> bool:
    return schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 1000)
