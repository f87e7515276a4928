"""Declaration of a kind besides its fields: names, scope, columns of `kubectl get`."""

from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from forebay.api.meta import Object
from forebay.api.names import API_VERSION, GROUP, VERSION

T = TypeVar("T", bound=Object)


class ColumnType(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    DATE = "date"


class PrinterColumn(msgspec.Struct, frozen=True):
    """One column of `kubectl get`; `wide` columns appear only with `-o wide`."""

    name: str
    path: str
    type: ColumnType = ColumnType.STRING
    wide: bool = False


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", ColumnType.DATE)


def condition_column(type: str, field: str = "status") -> str:  # noqa: A002 (a condition's own word)
    return f'.status.conditions[?(@.type=="{type}")].{field}'


class CustomKind(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One kind of `forebay.dev`: its names in the API and the type of its objects."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool
    type: type[T]
    columns: tuple[PrinterColumn, ...]
    #: JSON paths that field selectors may use.
    selectable: tuple[str, ...] = ()
    group: str = GROUP
    version: str = VERSION

    @property
    def api_version(self) -> str:
        return API_VERSION

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{self.group}"
