"""Errors of the API server: each becomes the `Status` that a real one sends, with the same reason and message."""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json

#: http.HTTPStatus names this code differently in different versions of Python.
UNPROCESSABLE = 422


class FieldCause(msgspec.Struct, frozen=True):
    """One entry of a Status' details.causes: a field, and what is wrong with it."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class ApiFailure(Exception):
    """An error answer; nothing was written."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        metadata: Json | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}
        self.retry_after = retry_after

    def status(self) -> Json:
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if details or self.details is not None:
            status["details"] = details
        status["code"] = self.code
        return status


def _details(kind: ApiKind, name: str) -> Json:
    return {**({"name": name} if name else {}), **({"group": kind.group} if kind.group else {}), "kind": kind.plural}


def not_found(kind: ApiKind, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f'{kind.resource} "{name}" not found', details=_details(kind, name))


def already_exists(kind: ApiKind, name: str) -> ApiFailure:
    return ApiFailure(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details=_details(kind, name))


def conflict(kind: ApiKind, name: str, why: str) -> ApiFailure:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiFailure(409, "Conflict", message, details=_details(kind, name))


def modified(kind: ApiKind, name: str) -> ApiFailure:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def uid_mismatch(kind: ApiKind, meta: Json, wanted: str) -> ApiFailure:
    why = f"the UID in the precondition ({wanted}) does not match the UID in record ({meta['uid']})"
    message = f'Operation cannot be fulfilled on {kind.kind} "{meta["name"]}": {why}'
    details = {**_details(kind, meta["name"]), "kind": kind.kind}
    suffix = ". The object might have been deleted and then recreated"
    return ApiFailure(409, "Conflict", message + suffix, details=details)


def forbidden(kind: ApiKind, name: str, why: str, causes: Sequence[Json] = ()) -> ApiFailure:
    quoted = f' "{name}"' if name else ""
    details = {**_details(kind, name), **({"causes": list(causes)} if causes else {})}
    return ApiFailure(403, "Forbidden", f"{kind.resource}{quoted} is forbidden: {why}", details=details)


def invalid(kind: ApiKind, name: str, causes: Sequence[FieldCause]) -> ApiFailure:
    listed = str(causes[0]) if len(causes) == 1 else "[" + ", ".join(map(str, causes)) + "]"
    what = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {
        **_details(kind, name),
        "kind": kind.kind,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    return ApiFailure(UNPROCESSABLE, "Invalid", f'{what} "{name}" is invalid: {listed}', details=details)


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def undecodable(kind: ApiKind, value: object, field: str, wanted: str) -> ApiFailure:
    """400 for a value whose JSON type is not that of its field, in the words of Go's decoder."""
    names = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
    why = f"json: cannot unmarshal {names.get(type(value), 'null')} into Go struct field {field} of type {wanted}"
    return cannot_handle(kind, why)


def cannot_handle(kind: ApiKind, why: str) -> ApiFailure:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def gone(message: str) -> ApiFailure:
    return ApiFailure(HTTPStatus.GONE, "Expired", message)


def too_old(asked: int, oldest: int) -> ApiFailure:
    return gone(f"too old resource version: {asked} ({oldest})")


def required(field: str, detail: str = "") -> FieldCause:
    return FieldCause(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def not_allowed(field: str, detail: str) -> FieldCause:
    return FieldCause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def bad_value(field: str, value: object, detail: str) -> FieldCause:
    return FieldCause(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def unsupported(field: str, value: object, supported: Sequence[object]) -> FieldCause:
    choices = ", ".join(f'"{choice}"' if isinstance(choice, str) else shown(choice) for choice in supported)
    return FieldCause(
        field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {choices}"
    )


def duplicate(field: str, value: object) -> FieldCause:
    return FieldCause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def shown(value: object) -> str:
    """A value as Kubernetes prints it in an error message."""
    return msgspec.json.encode(value).decode()
