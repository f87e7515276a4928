"""Errors of the API server, as a tree that says what the caller must do.

    KubeError
    ├── ConfigError             kubeconfig or credentials are wrong: the user must change them
    ├── Unreadable              a success whose body does not decode into the kind
    ├── NotListed               an informer did not list its objects in time, or may not
    └── ApiError                the server answered with an error status
        ├── BadRequest          400  the request is malformed; retrying will not help
        ├── Unauthorized        401  credentials are missing, wrong or expired
        ├── Forbidden           403  not allowed (RBAC, admission)
        ├── NotFound            404  no such object, or the server does not serve this resource
        ├── Unsupported         405, 406, 415  the server does not have this verb, format or patch type
        ├── Conflict            409  the object has changed since it was read: read it again
        ├── AlreadyExists       409  the name is taken
        ├── Expired             410  that resourceVersion or continue token is gone: list again
        ├── Invalid             422  `causes` name the fields
        ├── TooManyRequests     429  wait `retry_after`; with causes, a PodDisruptionBudget refused an eviction
        └── ServerUnavailable   5xx  the server failed: retry later. A write may still have happened, for the server
                                     also answers like this when it lost its connection to etcd

A request without a response raises `forebay.net.transport.TransportError`, which passes through unchanged.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import msgspec

from forebay.net.server_hints import retry_after
from forebay.net.transport import Headers


class KubeError(Exception):
    """Base of all errors raised by `forebay.kube`."""


class ConfigError(KubeError):
    """The kubeconfig or the credentials are wrong. The message is one sentence for the user."""


class Unreadable(KubeError):
    """The response has a success status, but its body does not decode into the requested kind."""


class NotListed(KubeError):
    """An informer has not listed its objects in the time that a command waits. The message is one sentence."""

    def __init__(self, message: str, *, forbidden: bool) -> None:
        #: Whether that is for lack of permissions.
        self.forbidden = forbidden
        super().__init__(message)


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    field: str = ""
    reason: str = ""
    message: str = ""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = msgspec.field(default=0, name="retryAfterSeconds")


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A `v1.Status`, which the server sends instead of an object, or inside an ERROR event of a watch."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


class ApiError(KubeError):
    """The server responded with an error status."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        details: Details | None = None,
        retry_after: float | None = None,
        call: str = "",
    ) -> None:
        self.message = message
        self.status = status
        self.reason = reason or _phrase(status).title().replace(" ", "")
        self.details = details or Details()
        self.retry_after = retry_after
        #: Which request it was, such as `PATCH https://host:6443/api/v1/nodes/n1`.
        self.call = call
        super().__init__(message)

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        return self.details.causes

    def __str__(self) -> str:
        text = self.message.rstrip(".")
        if len(text) > _MAX_MESSAGE:
            # The server quotes the whole object that a patch does not fit, and says at the end what is wrong.
            text = f"{text[: _MAX_MESSAGE // 2]} [...] {text[-_MAX_MESSAGE // 2 :]}"
        sentence = f"{text} ({self.status} {self.reason})"
        return f"{self.call}: {sentence}" if self.call else sentence


class BadRequest(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Unsupported(ApiError):
    pass


class Conflict(ApiError):
    pass


class AlreadyExists(ApiError):
    pass


class Expired(ApiError):
    pass


class Invalid(ApiError):
    pass


class TooManyRequests(ApiError):
    @property
    def by_disruption_budget(self) -> bool:
        """Whether a PodDisruptionBudget refused an eviction, as opposed to an overloaded server."""
        return any(cause.reason == "DisruptionBudget" for cause in self.causes)


class ServerUnavailable(ApiError):
    pass


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Unsupported,
    406: Unsupported,
    409: Conflict,
    410: Expired,
    415: Unsupported,
    422: Invalid,
    429: TooManyRequests,
}
_SERVER_ERROR = 500
#: What an API server answers to a path of a group, version or kind that it does not know.
_NO_SUCH_PATH = b"404 page not found"
_MAX_QUOTE = 200
_MAX_MESSAGE = 600

_status_decoder = msgspec.json.Decoder(Status)


def from_response(status: int, headers: Headers, body: bytes, *, call: str = "") -> ApiError:
    """The error for a response. A body that is no `Status` (a proxy's page, plain text) is quoted, shortened."""
    decoded = _decode_status(body)
    wait = _retry_after(headers)
    if decoded is None:
        quoted = _quote(headers, body)
        sentence = f"the response is not from a Kubernetes API server, or a proxy cut it short: {quoted}"
        if status == HTTPStatus.NOT_FOUND and body.strip() == _NO_SUCH_PATH:
            sentence = "the API server does not serve this kind: its CustomResourceDefinition is not installed"
        if status == HTTPStatus.TOO_MANY_REQUESTS:  # API Priority and Fairness responds in plain text
            sentence = quoted
        return _kind(status, "")(sentence, status=status, retry_after=wait, call=call)
    return from_status(decoded, status=status, retry_after=wait, call=call)


def from_status(answer: Status, *, status: int = 0, retry_after: float | None = None, call: str = "") -> ApiError:
    """The error for a `Status`, from a response or from an ERROR event of a watch."""
    code = status or answer.code or _SERVER_ERROR
    if retry_after is None and answer.details is not None and answer.details.retry_after_seconds:
        retry_after = float(answer.details.retry_after_seconds)
    message = answer.message or _phrase(code)
    if code == HTTPStatus.UNAUTHORIZED and message == _phrase(code):  # the server gives no detail
        message = "the server does not accept our credentials, which are missing, wrong or expired"
    return _kind(code, answer.reason)(
        message,
        status=code,
        reason=answer.reason,
        details=answer.details,
        retry_after=retry_after,
        call=call,
    )


def _kind(status: int, reason: str) -> type[ApiError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    if reason == "Expired":
        return Expired
    if status >= _SERVER_ERROR:
        return ServerUnavailable
    return _BY_STATUS.get(status, ApiError)


def _decode_status(body: bytes) -> Status | None:
    try:
        answer = _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return answer if answer.kind == "Status" else None


def _retry_after(headers: Headers) -> float | None:
    # A date in Retry-After is on the server's clock, so it is compared with the server's Date header.
    try:
        now = parsedate_to_datetime(headers.get("Date", ""))
    except ValueError:
        now = datetime.now(UTC)
    return retry_after(headers, now)


def _quote(headers: Headers, body: bytes) -> str:
    text = " ".join(body.decode("utf-8", "replace").split())
    if not text:
        return "the body is empty"
    if "html" in headers.get("Content-Type", "").lower() or text[:1] == "<":
        return f"an HTML page of {len(body)} bytes"
    return text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]} [...]"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"
