"""What the API server enforces besides types: CEL rules and how lists merge, written next to the fields.

Rules use only what the embedded API server can evaluate: CEL's own operators, macros and string functions, and
`quantity`, `isQuantity`, `isGreaterThan` of Kubernetes.
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Meta


class RefusalCause(StrEnum):
    """Cause of a refusal in the API server's Status."""

    INVALID = "FieldValueInvalid"
    FORBIDDEN = "FieldValueForbidden"
    REQUIRED = "FieldValueRequired"


class ValidationRule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One `x-kubernetes-validations` entry. The message tells the user what to write instead."""

    rule: str
    message: str
    reason: RefusalCause | None = None
    #: Path below the object of the rule, such as `.credentialsRef`.
    field_path: str | None = None


def checked(*rules: ValidationRule) -> Meta:
    """Annotation of a field whose value must satisfy the rules."""
    return _schema({"x-kubernetes-validations": [msgspec.to_builtins(rule) for rule in rules]})


def immutable(message: str) -> ValidationRule:
    return ValidationRule("self == oldSelf", message)


def keyed_by(*keys: str) -> Meta:
    """Annotation of a list whose entries are identified, and merged by server-side apply, by these keys."""
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
