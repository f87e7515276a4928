"""Server-side apply: each manager owns the fields it applied; a field that its manager no longer applies is removed.

Ownership is tracked from the first apply on. Until then an object has no `managedFields`, and its fields belong to the
manager `before-first-apply`, as on a real server for objects older than server-side apply.
"""

import json
from collections.abc import Iterator
from typing import Any

from forebay.embedded.api import failures
from forebay.embedded.api.failures import ApiFailure, bad_request
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json

#: Path to a field in the notation of `fieldsV1`: `("f:spec", "f:containers", 'k:{"name":"c"}', "f:image")`.
Path = tuple[str, ...]
Fields = set[Path]

_APPLY, _UPDATE = "Apply", "Update"
_OWNED_METADATA = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})
_BEFORE_FIRST_APPLY = "before-first-apply"


def fields_of(schema: Json, obj: Json) -> Fields:
    """Paths of all fields that an object sets, down to those that have one owner each."""
    content = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key in _OWNED_METADATA}
    return set(_paths(schema, {**content, **({"metadata": meta} if meta else {})}, ()))


def _paths(schema: Json, value: Any, path: Path) -> Iterator[Path]:
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    if isinstance(value, dict) and value and schema.get("x-kubernetes-map-type") != "atomic":
        for key, item in value.items():
            inner = properties.get(key) or (rest if isinstance(rest, dict) else {})
            yield from _paths(inner, item, (*path, f"f:{key}"))
    elif isinstance(value, list) and value and schema.get("x-kubernetes-list-type") == "map":
        for item in value:
            here = (*path, _key_step(schema, item))
            yield here
            yield from _paths(schema.get("items") or {}, item, here)
    elif isinstance(value, list) and value and schema.get("x-kubernetes-list-type") == "set":
        for item in value:
            yield (*path, f"v:{json.dumps(item)}")
    elif path:
        yield path


def _key_step(schema: Json, item: Json) -> str:
    inner = (schema.get("items") or {}).get("properties") or {}
    keys = {}
    if not isinstance(item, dict):
        raise bad_request("associative list has an element that is not an object")
    for key in sorted(schema["x-kubernetes-list-map-keys"]):
        if key in item:
            keys[key] = item[key]
        elif key == "protocol":
            keys[key] = "TCP"
        elif "default" in inner.get(key, {}):
            keys[key] = inner[key]["default"]
        else:
            raise bad_request(f'associative list with keys has an element that omits key field "{key}"')
    return f"k:{json.dumps(keys, separators=(',', ':'))}"


def _encode(fields: Fields) -> Json:
    tree: Json = {}
    for path in fields:
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    for path in fields:
        node = tree
        for step in path:
            node = node[step]
        if node:
            node["."] = {}
    return tree


def _decode(tree: Json, path: Path = ()) -> Iterator[Path]:
    for step, inner in tree.items():
        if step == ".":
            yield path
        elif inner:
            yield from _decode(inner, (*path, step))
        else:
            yield (*path, step)


class Managers:
    """Field ownership of one object, by (manager, operation, subresource)."""

    def __init__(self, kind: ApiKind, schema: Json, obj: Json | None) -> None:
        self._kind = kind
        self._schema = schema
        self._entries: dict[tuple[str, str, str], Json] = {}
        self._fields: dict[tuple[str, str, str], Fields] = {}
        for entry in (obj or {}).get("metadata", {}).get("managedFields") or ():
            who = (entry.get("manager", ""), entry.get("operation", _UPDATE), entry.get("subresource", ""))
            self._entries[who] = entry
            self._fields[who] = set(_decode(entry.get("fieldsV1") or {}))
        if obj is not None and not self._entries:
            self._fields[_BEFORE_FIRST_APPLY, _UPDATE, ""] = fields_of(schema, obj)

    def apply(self, live: Json | None, applied: Json, who: tuple[str, str], *, force: bool) -> Json:
        """The object after `who` (manager, subresource) applied its fields; 409 where it changes a field of another."""
        key = (who[0], _APPLY, who[1])
        wanted = fields_of(self._schema, applied)
        base = live or {}
        conflicts = {
            other: sorted(path for path in wanted & owned if _at(base, path) != _at(applied, path))
            for other, owned in self._fields.items()
            if other != key
        }
        conflicts = {other: paths for other, paths in conflicts.items() if paths}
        if conflicts and not force:
            raise self._conflict(conflicts)
        for other, paths in conflicts.items():
            self._fields[other] -= set(paths)
        others: Fields = set().union(*(owned for other, owned in self._fields.items() if other != key))
        merged: Json = _merge(self._schema, base, applied)
        no_longer_applied = self._fields.get(key, set()) - wanted - others
        # List entries before their fields: an entry without its key field would not be found any more.
        for path in sorted(no_longer_applied, key=len):
            if not any(other[: len(path)] == path for other in others | wanted):
                merged = _without(merged, path)
        self._fields[key] = wanted
        return merged

    def update(self, old: Json, new: Json, who: tuple[str, str]) -> None:
        """Records an update or patch: the fields it changed now belong to its manager alone."""
        before, after = fields_of(self._schema, old), fields_of(self._schema, new)
        changed = {path for path in after if path not in before or _at(old, path) != _at(new, path)}
        key = (who[0], _UPDATE, who[1])
        for other in self._fields:
            self._fields[other] = {path for path in self._fields[other] if path in after and path not in changed}
        self._fields[key] = self._fields.get(key, set()) | changed

    def entries(self, now: str) -> list[Json]:
        found = []
        for who, fields in self._fields.items():
            if not fields:
                continue
            tree, old = _encode(fields), self._entries.get(who)
            if old is not None and old.get("fieldsV1") == tree:
                found.append(old)
                continue
            entry: Json = {"manager": who[0], "operation": who[1], "apiVersion": self._kind.api_version, "time": now}
            entry |= {"fieldsType": "FieldsV1", "fieldsV1": tree}
            found.append({**entry, **({"subresource": who[2]} if who[2] else {})})
        return found

    def _conflict(self, conflicts: dict[tuple[str, str, str], list[Path]]) -> ApiFailure:
        causes, lines = [], []
        for (manager, operation, subresource), paths in conflicts.items():
            name = f'conflict with "{manager}"' + (f' with subresource "{subresource}"' if subresource else "")
            name += f" using {self._kind.api_version}" if operation == _UPDATE else ""
            texts = ["".join(_field_text(step) for step in path) for path in paths]
            causes += [{"reason": "FieldManagerConflict", "message": name, "field": one} for one in texts]
            lines.append(f"{name}: {texts[0]}" if len(texts) == 1 else f"{name}:\n- " + "\n- ".join(texts))
        count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
        message = f"Apply failed with {count}: " + (
            lines[0] if len(lines) == 1 else "conflicts with:\n" + "\n".join(lines)
        )
        return ApiFailure(409, "Conflict", message, details={"causes": causes})


def _field_text(step: str) -> str:
    if step.startswith("f:"):
        return f".{step[2:]}"
    if step.startswith("v:"):
        return f"[={step[2:]}]"
    return "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(step[2:]).items()) + "]"


def _is_entry(item: Any, step: str) -> bool:
    wanted = json.loads(step[2:])
    if step.startswith("v:"):
        return bool(item == wanted)
    defaults = {"protocol": "TCP"}
    return isinstance(item, dict) and all(item.get(key, defaults.get(key)) == value for key, value in wanted.items())


def _at(value: Any, path: Path) -> Any:
    for step in path:
        if step.startswith("f:"):
            value = value.get(step[2:]) if isinstance(value, dict) else None
        else:
            value = next((item for item in value or () if _is_entry(item, step)), None)
    # A list entry counts as present or absent; its fields have paths of their own.
    return value if not path or path[-1].startswith("f:") else value is not None


def _without(value: Any, path: Path) -> Any:
    step, rest = path[0], path[1:]
    if step.startswith("f:") and isinstance(value, dict) and step[2:] in value:
        kept = {key: item for key, item in value.items() if key != step[2:]}
        if rest:
            inner = _without(value[step[2:]], rest)
            return {key: inner if key == step[2:] else item for key, item in value.items()} if inner else kept
        return kept
    if isinstance(value, list):
        changed = [_without(item, rest) if rest and _is_entry(item, step) else item for item in value]
        return [item for item in changed if rest or not _is_entry(item, step)]
    return value


def _merge(schema: Json, live: Any, applied: Any) -> Any:
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    if isinstance(applied, dict) and isinstance(live, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        merged = dict(live)
        for key, item in applied.items():
            inner = properties.get(key) or (rest if isinstance(rest, dict) else {})
            merged[key] = _merge(inner, live[key], item) if key in live else item
        return merged
    if isinstance(applied, list) and isinstance(live, list):
        kind = schema.get("x-kubernetes-list-type")
        if kind == "set":
            return [*live, *(item for item in applied if item not in live)]
        if kind == "map":
            inner = schema.get("items") or {}
            steps = {_key_step(schema, item): item for item in live}
            for item in applied:
                step = _key_step(schema, item)
                steps[step] = _merge(inner, steps[step], item) if step in steps else item
            return list(steps.values())
    return applied


def check_applied(sent: Any, manager: str) -> Json:
    if not isinstance(sent, dict) or not sent.get("apiVersion") or not sent.get("kind"):
        raise bad_request("error decoding YAML: Object 'Kind' or 'apiVersion' is missing in the applied object")
    if not manager:
        cause = failures.required("fieldManager", "is required for apply patch")
        raise failures.invalid(ApiKind(group="meta.k8s.io", plural="", kind="PatchOptions"), "", [cause])
    meta = sent.get("metadata", {})
    if not isinstance(meta, dict) or meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil, and metadata an object")
    return sent
