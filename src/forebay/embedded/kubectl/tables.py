"""Server-side printing: what `kubectl get` shows, in the columns of a real API server."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from forebay.embedded.api.ages import between
from forebay.embedded.api.definitions import CustomVersion
from forebay.embedded.api.json_path import JsonPath
from forebay.embedded.api.kinds import Kind
from forebay.embedded.kubectl.columns import AGE, BUILT_IN, NAME, TableColumn

Json = dict[str, Any]


def table(
    rows: Iterable[Json], columns: Sequence[TableColumn], meta: Json, now: datetime, include: str = "Metadata"
) -> Json:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [column.definition() for column in columns],
        "rows": [_row(obj, columns, now, include) for obj in rows],
    }


def _row(obj: Json, columns: Sequence[TableColumn], now: datetime, include: str) -> Json:
    row: Json = {"cells": [column.cell(obj, now) for column in columns]}
    ended = _ENDED.get((obj.get("status") or {}).get("phase", "")) if obj.get("kind") == "Pod" else None
    if ended is not None:
        row["conditions"] = [{"type": "Completed", "status": "True", **ended}]
    row["object"] = obj if include == "Object" else None if include == "None" else partial(obj)
    return row


_ENDED = {
    "Succeeded": {"reason": "Succeeded", "message": "The pod has completed successfully."},
    "Failed": {"reason": "Failed", "message": "The pod failed."},
}


def partial(obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def columns_of(kind: Kind, custom: CustomVersion | None) -> Sequence[TableColumn]:
    if custom is None:
        return BUILT_IN.get(kind.storage, (NAME, AGE))
    if not custom.columns:
        return (NAME, AGE)
    return (NAME, *(_custom(column) for column in custom.columns))


def _custom(column: Json) -> TableColumn:
    path, kind = JsonPath(column["jsonPath"]), column["type"]

    def cell(obj: Json, now: datetime) -> Any:
        found = path.find(obj)
        if not found:
            return None
        value = found[0]
        if kind == "date":
            return between(value, now) if isinstance(value, str) else None
        if kind == "string":
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return value

    return TableColumn(column["name"], cell, kind, column.get("priority", 0), column.get("format", ""))
