"""What the API server may answer instead of the object, as a tree that says what the caller must do.

    KubeError
    ├── ConfigError             kubeconfig or credentials: the user must change something; one sentence, no traceback
    ├── Unreadable              a success whose body is not what the kind promises: name and path of the fault
    └── ApiError                the server answered with an error status
        ├── BadRequest          400  the request makes no sense; sending it again will not help
        ├── Unauthorized        401  credentials are missing, wrong or expired
        ├── Forbidden           403  known, but not allowed (RBAC, admission)
        ├── NotFound            404  no such object, or the server does not serve this resource
        ├── Unsupported         405, 406, 415  the server does not have this verb, format or patch type
        ├── Conflict            409  someone else wrote first: read again, decide again
        ├── AlreadyExists       409  the name is taken
        ├── Expired             410  that resourceVersion or continue token is gone: list again
        ├── Invalid             422  `causes` name the fields
        ├── TooManyRequests     429  wait `retry_after`, or, with causes, a disruption budget said no
        └── ServerUnavailable   5xx  answered, but by a server in trouble: may pass. A write may still have happened:
                                     the server answers so as well when it lost sight of its own store

No answer at all is not here: `forebay.net.transport.TransportError` passes through unchanged and says whether the
request was never sent, of unknown outcome, or cut while answering.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import msgspec

from forebay.net.server_hints import retry_after
from forebay.net.transport import Headers


class KubeError(Exception):
    """The base of everything this room raises by itself."""


class ConfigError(KubeError):
    """The way to the cluster is not described well. The message is one sentence for the user."""


class Unreadable(KubeError):
    """The server answered with success, but the body does not decode into the kind that was asked for."""


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
        said = self.message.rstrip(".")
        if len(said) > _LONGEST_SENTENCE:
            # A patch that does not fit is answered with the whole object, and what is wrong with it at the end.
            said = f"{said[: _LONGEST_SENTENCE // 2]} [...] {said[-_LONGEST_SENTENCE // 2 :]}"
        sentence = f"{said} ({self.status} {self.reason})"
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
        """A PodDisruptionBudget refused an eviction. That is the cluster's state, not the server's load."""
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
_SERVER_TROUBLE = 500
_LONGEST_QUOTE = 200
_LONGEST_SENTENCE = 600

_status_decoder = msgspec.json.Decoder(Status)


def from_response(status: int, headers: Headers, body: bytes, *, call: str = "") -> ApiError:
    """The error an answer means. A body that is no `Status` (a proxy's page, plain text) is quoted, shortened."""
    answer = _decode_status(body)
    wait = _retry_after(headers)
    if answer is None:
        quoted = _quote(headers, body)
        sentence = f"the answer is not from a Kubernetes API server, or was cut short by a proxy: {quoted}"
        if status == HTTPStatus.TOO_MANY_REQUESTS:  # priority and fairness refuses in plain text
            sentence = quoted
        return _kind(status, "")(sentence, status=status, retry_after=wait, call=call)
    return from_status(answer, status=status, retry_after=wait, call=call)


def from_status(answer: Status, *, status: int = 0, retry_after: float | None = None, call: str = "") -> ApiError:
    """The error a `Status` means, wherever it came from: a response, or an ERROR event inside a watch."""
    code = status or answer.code or _SERVER_TROUBLE
    if retry_after is None and answer.details is not None and answer.details.retry_after_seconds:
        retry_after = float(answer.details.retry_after_seconds)
    message = answer.message or _phrase(code)
    if code == HTTPStatus.UNAUTHORIZED and message == _phrase(code):  # all that the server ever says
        message = "the server does not accept our credentials: they are missing, wrong, or no longer valid"
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
    if status >= _SERVER_TROUBLE:
        return ServerUnavailable
    return _BY_STATUS.get(status, ApiError)


def _decode_status(body: bytes) -> Status | None:
    try:
        answer = _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return answer if answer.kind == "Status" else None


def _retry_after(headers: Headers) -> float | None:
    # A date is on the server's clock, so it is compared with the server's own idea of now.
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
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"
