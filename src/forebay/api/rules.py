"""What the API server enforces beyond types: CEL rules and how lists merge, written next to the fields they guard.

Rules use only what the embedded server evaluates too: CEL's own operators, macros and string functions, and
`quantity`, `isQuantity`, `isGreaterThan` of Kubernetes.
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Meta


class RefusalCause(StrEnum):
    """How the API server words a refusal."""

    INVALID = "FieldValueInvalid"
    FORBIDDEN = "FieldValueForbidden"
    REQUIRED = "FieldValueRequired"


class ValidationRule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One `x-kubernetes-validations` entry. The message tells the user what to write instead."""

    rule: str
    message: str
    reason: RefusalCause | None = None
    #: Below the place the rule stands at, such as `.credentialsRef`.
    field_path: str | None = None


def checked(*rules: ValidationRule) -> Meta:
    """Annotate a field: its value must satisfy the rules."""
    return _schema({"x-kubernetes-validations": [msgspec.to_builtins(rule) for rule in rules]})


def immutable(message: str) -> ValidationRule:
    return ValidationRule("self == oldSelf", message)


def keyed_by(*keys: str) -> Meta:
    """Annotate a list: its entries are told apart by these keys, and merged by them under server-side apply."""
    return _schema({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


def _schema(extra: dict[str, Any]) -> Meta:
    return Meta(extra_json_schema=extra)


#: A list whose entries are unique values.
AS_SET = _schema({"x-kubernetes-list-type": "set"})
#: A list or object that has one owner as a whole.
ATOMIC_LIST = _schema({"x-kubernetes-list-type": "atomic"})
ATOMIC_MAP = _schema({"x-kubernetes-map-type": "atomic"})
INT32 = _schema({"format": "int32"})
CIDR = _schema({"format": "cidr"})
