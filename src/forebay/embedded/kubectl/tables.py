"""Server-side printing: the tables that `kubectl get` shows, with the columns of a real API server."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from forebay.embedded.api.custom_resources import CustomVersion, custom_version
from forebay.embedded.api.forms import Form, partial_metadata
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store
from forebay.embedded.kubectl.ages import between
from forebay.embedded.kubectl.columns import AGE_COLUMN, BUILT_IN_COLUMNS, NAME_COLUMN, TableColumn
from forebay.embedded.kubectl.json_path import JsonPath

_COMPLETED = {
    "Succeeded": {"reason": "Succeeded", "message": "The pod has completed successfully."},
    "Failed": {"reason": "Failed", "message": "The pod failed."},
}


class TableForm(Form):
    """Rows of a `Table`. `include` is the query's includeObject: how much of each object goes with its row."""

    def __init__(self, store: Store, kind: ApiKind, include: str) -> None:
        super().__init__(kind)
        self._columns = columns_of(kind, custom_version(store, kind))
        self._store = store
        self._include = include
        self._columns_sent = False

    def event(self, obj: Json) -> Json:
        """One row; only the first event of a watch defines the columns."""
        event = self.one(obj)
        if self._columns_sent:
            event["columnDefinitions"] = None
        self._columns_sent = True
        return event

    def bookmark(self, meta: Json) -> Json:
        return self.many([], meta)

    def one(self, obj: Json) -> Json:
        if obj.get("kind") == "Status":
            return obj
        return self.many([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})

    def many(self, objects: Sequence[Json], meta: Json) -> Json:
        return table(objects, self._columns, meta, self._store.clock(), self._include)


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
    completed = _COMPLETED.get((obj.get("status") or {}).get("phase", "")) if obj.get("kind") == "Pod" else None
    if completed is not None:
        row["conditions"] = [{"type": "Completed", "status": "True", **completed}]
    row["object"] = obj if include == "Object" else None if include == "None" else partial_metadata(obj)
    return row


def columns_of(kind: ApiKind, custom: CustomVersion | None) -> Sequence[TableColumn]:
    if custom is None:
        return BUILT_IN_COLUMNS.get(kind.storage, (NAME_COLUMN, AGE_COLUMN))
    if not custom.columns:
        return (NAME_COLUMN, AGE_COLUMN)
    return (NAME_COLUMN, *(_printer_column(column) for column in custom.columns))


def _printer_column(column: Json) -> TableColumn:
    """A column from a CRD's additionalPrinterColumns."""
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
