"""What a failed call or operation of Google's stands for, as a `ProviderError`.

Codes of operations come first: a machine that cannot be had is reported by the operation, seconds after its request was
accepted, and sometimes by the request itself.

| code or reason                                  | error                                                    |
|-------------------------------------------------|----------------------------------------------------------|
| ZONE_RESOURCE_POOL_EXHAUSTED                    | `NoCapacity` of the zone                                 |
| ... _WITH_DETAILS, which names the machine type | `NoCapacity` of the offer                                |
| QUOTA_EXCEEDED, quotaExceeded                   | `QuotaReached` of the offer; of the source: all regions  |
| RATE_LIMIT..., rateLimitExceeded, 429           | `RateLimited`                                            |
| 401, 403                                        | `BadCredentials`                                         |
| 404 of an instance or disk                      | `InstanceGone`                                           |
| 404 of a list                                   | `Rejected`: no such project, or another address          |
| 5xx, INTERNAL_ERROR                             | `OutcomeUnknown` where the call acts, else `Unavailable` |
| anything else                                   | `Rejected`                                               |
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.model.sources import FailureScope
from forebay.net.json_body import decode_body
from forebay.net.redaction import Redactor
from forebay.net.server_hints import retry_after
from forebay.net.transport import Headers
from forebay.providers.base import (
    BadCredentials,
    InstanceGone,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    RateLimited,
    Rejected,
    Unavailable,
)
from forebay.providers.gcp.wire import ErrorAnswer, ErrorItem, Operation

_LONGEST_QUOTE: Final = 300
_LONGEST_WAIT: Final = timedelta(days=1)
#: Google's rate quotas are refilled every minute.
_REFILL: Final = timedelta(minutes=1)
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500

_NO_CAPACITY_IN_ZONE: Final = frozenset({"ZONE_RESOURCE_POOL_EXHAUSTED", "RESOURCE_POOL_EXHAUSTED", "STOCKOUT"})
_NO_SUCH_MACHINE_LEFT: Final = frozenset({"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"})
_QUOTA: Final = frozenset({"QUOTA_EXCEEDED", "quotaExceeded"})
_RATE: Final = frozenset({"RATE_LIMIT_EXCEEDED", "rateLimitExceeded", "userRateLimitExceeded", "RESOURCE_EXHAUSTED"})
_TAKEN: Final = frozenset({"RESOURCE_ALREADY_EXISTS", "alreadyExists"})
_FORBIDDEN_CODES: Final = frozenset({"PERMISSIONS_ERROR", "PERMISSION_DENIED", "forbidden", "insufficientPermissions"})
_NOT_ENABLED: Final = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})
_BROKEN: Final = frozenset({"INTERNAL_ERROR", "internalError", "backendError", "INTERNAL"})


class NameTaken(Exception):
    """There is an instance of that name in the zone already."""


class GoogleErrors:
    """Turns what Google says into errors. `identity` says where the credentials are from, for sentences."""

    def __init__(self, redactor: Redactor, clock: Callable[[], datetime]) -> None:
        self._redactor = redactor
        self._clock = clock

    def of_response(
        self, status: int, headers: Headers, body: bytes, *, acts: bool, identity: str, lists: bool = False
    ) -> ProviderError | NameTaken:
        """`lists`: the call asked for all that there is, and not for one thing by its name."""
        answer = _answer(body)
        items = answer.error.errors
        codes = {code for item in items for code in (item.reason, item.code) if code} | {answer.error.status}
        codes |= {detail.reason for detail in answer.error.details}
        fact = f"Google answered {status}{self._quoted(answer.error.message or _message(items))}"
        if status == _CONFLICT and (codes & _TAKEN or not items):
            return NameTaken()
        stated = retry_after(headers, self._clock())
        known = self._of_codes(codes, fact, answer.error.message, stated)
        if known is not None:
            return known
        if status == _TOO_MANY:
            return self._rate_limited(fact, stated)
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            return BadCredentials(f"{fact}: the identity of {identity} may not do this. Correct it, or grant the role.")
        if status == _NOT_FOUND and lists:
            return Rejected(f"{fact}. Correct the project of {identity}, or endpoint of the provider.")
        if status == _NOT_FOUND:
            return InstanceGone(f"{fact}: there is nothing of that name any more.")
        if 300 <= status < _SERVER_ERROR:  # noqa: PLR2004 (HTTP's own numbers)
            return Rejected(f"{fact}. Correct what the class asks for.")
        if acts:
            return OutcomeUnknown(f"{fact}. Google may have acted before it failed.")
        return Unavailable(f"{fact}.")

    def of_operation(
        self, operation: Operation, *, what: str, correct: str = "Correct what the class asks for."
    ) -> ProviderError | NameTaken | None:
        """Why the operation failed; None where it did not."""
        items = operation.error.errors if operation.error is not None else ()
        status = operation.http_error_status_code
        if not items and (status is None or status < 400):  # noqa: PLR2004 (HTTP's own numbers)
            return None
        codes = {item.code or item.reason for item in items}
        text = _message(items) or operation.http_error_message
        fact = f"{what} failed{self._quoted(text)}"
        if codes & _TAKEN:
            return NameTaken()
        known = self._of_codes(codes, fact, text, None)
        if known is not None:
            return known
        if codes & _BROKEN or (status is not None and status >= _SERVER_ERROR):
            return OutcomeUnknown(f"{fact}. Google may have acted before it failed.")
        return Rejected(f"{fact}. {correct}")

    def _of_codes(self, codes: set[str], fact: str, text: str, wait: float | None) -> ProviderError | None:
        if codes & _NO_SUCH_MACHINE_LEFT:
            return NoCapacity(f"{fact}: the zone has no such machine left.")
        if codes & _NO_CAPACITY_IN_ZONE:
            return NoCapacity(f"{fact}: the zone has no capacity left.", scope=FailureScope.ZONE)
        if codes & _QUOTA:
            everywhere = "ALL_REGIONS" in text or "all regions" in text.lower()
            scope = FailureScope.SOURCE if everywhere else FailureScope.OFFER
            return QuotaReached(f"{fact}: a quota of the project is used up. Raise it.", scope=scope)
        if codes & _RATE:
            return self._rate_limited(fact, wait)
        if codes & _NOT_ENABLED:
            # Before what else such an answer says: that permission is denied, which no role would change.
            return BadCredentials(f"{fact}: an API is not enabled in the project. Enable it.")
        if codes & _FORBIDDEN_CODES:
            return BadCredentials(f"{fact}: the identity may not do this. Grant the role.")
        return None

    @staticmethod
    def _rate_limited(fact: str, wait: float | None) -> RateLimited:
        later = min(timedelta(seconds=wait), _LONGEST_WAIT) if wait is not None else _REFILL
        return RateLimited(f"{fact}: too many requests. Forebay retries later.", retry_after=later)

    def _quoted(self, text: str) -> str:
        first = self._redactor.text(text).partition("\n")[0][:_LONGEST_QUOTE].strip().rstrip(".")
        return f' ("{first}")' if first else ""


def _message(items: Iterable[ErrorItem]) -> str:
    return next((item.message for item in items if item.message), "")


def _answer(body: bytes) -> ErrorAnswer:
    try:
        return decode_body(body, ErrorAnswer)
    except msgspec.DecodeError:
        return ErrorAnswer()
