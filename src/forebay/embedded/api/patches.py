"""Patches: JSON merge (RFC 7396), JSON (RFC 6902) and strategic merge.

All of them return a new document and leave the original unchanged.
"""

from collections.abc import Sequence
from typing import Any

from forebay.embedded.api.failures import UNPROCESSABLE, ApiFailure, bad_request
from forebay.embedded.api.objects import Json


class _Rejected(Exception):
    """An operation of a JSON patch that does not apply."""


def apply_merge_patch(original: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


def apply_json_patch(original: Json, operations: Sequence[Json]) -> Json:
    """JSON patch, RFC 6902: all operations or none."""
    document: Any = original
    try:
        for operation in operations:
            document = _apply_operation(document, operation)
    except (_Rejected, KeyError):
        # A real API server says no more than this.
        message = "the server rejected our request due to an error in our request"
        raise ApiFailure(UNPROCESSABLE, "Invalid", message, details={}) from None
    if not isinstance(document, dict):
        raise bad_request("the patched document is not an object")
    return document


def _apply_operation(document: Any, operation: Json) -> Any:
    path = _steps(operation["path"])
    match operation["op"]:
        case "add":
            return _put(document, path, operation["value"], add=True)
        case "replace":
            _at(document, path)
            return _put(document, path, operation["value"], add=False)
        case "remove":
            return _without(document, path)
        case "copy":
            return _put(document, path, _at(document, _steps(operation["from"])), add=True)
        case "move":
            source = _steps(operation["from"])
            return _put(_without(document, source), path, _at(document, source), add=True)
        case "test":
            if _at(document, path, missing_is_null=True) != operation["value"]:
                raise _Rejected
            return document
        case _:
            raise _Rejected


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise _Rejected
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _index(items: Sequence[Any], step: str, *, end: bool = False) -> int:
    if end and step == "-":
        return len(items)
    if not step.isdigit() or int(step) >= len(items) + end:
        raise _Rejected
    return int(step)


def _at(document: Any, path: Sequence[str], *, missing_is_null: bool = False) -> Any:
    """`missing_is_null`: a field that its object does not have is null, as a real API server's `test` has it."""
    for number, step in enumerate(path, 1):
        if isinstance(document, list):
            document = document[_index(document, step)]
        elif isinstance(document, dict) and (step in document or (missing_is_null and number == len(path))):
            document = document.get(step)
        else:
            raise _Rejected
    return document


def _put(document: Any, path: Sequence[str], value: Any, *, add: bool) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(document, list):
        if not rest and add:
            index = _index(document, step, end=True)
            return [*document[:index], value, *document[index:]]
        index = _index(document, step)
        return [*document[:index], _put(document[index], rest, value, add=add), *document[index + 1 :]]
    if not isinstance(document, dict) or (rest and step not in document):
        raise _Rejected
    return {**document, step: _put(document.get(step), rest, value, add=add)}


def _without(document: Any, path: Sequence[str]) -> Any:
    if not path:
        raise _Rejected
    step, rest = path[0], path[1:]
    inner = _at(document, [step])
    kept = [_without(inner, rest)] if rest else []
    if isinstance(document, list):
        index = _index(document, step)
        return [*document[:index], *kept, *document[index + 1 :]]
    others = {key: value for key, value in document.items() if key != step}
    return {key: kept[0] if key == step else value for key, value in document.items()} if rest else others


def apply_strategic_patch(original: Any, patch: Json, schema: Json) -> Json:
    """Strategic merge patch with its directives; the schema says how each list merges."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(original) if isinstance(original, dict) else {}
    if "$retainKeys" in patch:
        merged = {key: value for key, value in merged.items() if key in patch["$retainKeys"]}
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, value in patch.items():
        name = key.partition("/")[2]
        if key.startswith("$deleteFromPrimitiveList/"):
            merged[name] = [one for one in merged.get(name) or () if one not in value]
        elif key.startswith("$setElementOrder/"):
            if name in merged and name not in patch:
                merged[name] = _ordered(merged[name], value, _merge_key(properties.get(name) or {}))
        elif key.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            merged.pop(key, None)
        else:
            inner = properties.get(key) or (rest if isinstance(rest, dict) else {})
            merged[key] = _merge_value(key, merged.get(key), value, inner)
            if f"$setElementOrder/{key}" in patch and isinstance(value, list):
                merged[key] = _ordered(merged[key], patch[f"$setElementOrder/{key}"], _merge_key(inner))
    return merged


def _merge_value(name: str, original: Any, value: Any, schema: Json) -> Any:
    if isinstance(value, dict) and schema.get("x-kubernetes-patch-strategy") != "replace":
        return apply_strategic_patch(original, value, schema)
    if not isinstance(value, list) or schema.get("x-kubernetes-patch-strategy") != "merge":
        return value
    if original is not None and not isinstance(original, list):
        raise bad_request(f"cannot merge the list {name}: the existing value is not a list")
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in value):
        return [item for item in value if item.get("$patch") != "replace"]
    key = _merge_key(schema)
    if key is not None and not all(isinstance(item, dict) for item in value):
        raise bad_request(f"the entries of {name} must be objects")
    if key is None:
        return [*(original or ()), *(item for item in value if item not in (original or ()))]
    return _merge_entries(key, original or [], value, schema.get("items") or {})


def _merge_key(schema: Json) -> str | None:
    """The field that identifies a list entry; None for a list of plain values."""
    return schema.get("x-kubernetes-patch-merge-key") or None


def _merge_entries(key: str, original: list[Json], patch: list[Json], schema: Json) -> list[Json]:
    for item in patch:
        if not isinstance(item.get(key), str | int):
            raise ApiFailure(500, "", f"map: {item} does not contain declared merge key: {key}")
    deleted = {item[key] for item in patch if item.get("$patch") == "delete"}
    changes = {item[key]: item for item in patch if item.get("$patch") != "delete"}
    known = {item.get(key): item for item in original}
    new = [apply_strategic_patch({}, item, schema) for name, item in changes.items() if name not in known]
    kept = [
        apply_strategic_patch(item, changes[name], schema) if name in changes else item
        for name, item in known.items()
        if name not in deleted
    ]
    # New entries go first, as on a real server, unless the patch gives an order.
    return [*new, *kept]


def _ordered(items: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """The items in the given order; an item that the order does not name stays behind the item it followed."""

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    ranks = {identity(item): rank for rank, item in enumerate(order)}
    ranked, rank = [], -1
    for item in items:
        rank = ranks.get(identity(item), rank)
        ranked.append((rank, item))
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]
