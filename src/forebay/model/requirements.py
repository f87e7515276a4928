"""Which labels something asks for, and which taints it bears."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True):
    """`match_labels` and `match_expressions` must all hold; the empty selector picks everything."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True):
    """All expressions (on labels) and fields (on metadata.name) must hold; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class PreferredTerm(msgspec.Struct, frozen=True):
    weight: int
    term: NodeSelectorTerm


class Taint(msgspec.Struct, frozen=True):
    key: str
    value: str = ""
    effect: str = ""


class Toleration(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None
