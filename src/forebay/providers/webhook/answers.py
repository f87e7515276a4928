"""What an endpoint's answer means to whoever asked.

| answer                 | error            | why                                          |
|------------------------|------------------|----------------------------------------------|
| 2xx                    | none: accepted   |                                              |
| 302, 303               | `OutcomeUnknown` | many servers send one after they have acted  |
| other 3xx              | `Rejected`       | no redirect is followed; it was not acted on |
| 401, 403               | `BadCredentials` | after a second look at the Secrets           |
| 408, 425               | `Unavailable`    | the server did not take it up                |
| 409                    | `OutcomeUnknown` | it may say that the machine is on already    |
| 429                    | `RateLimited`    |                                              |
| other 4xx              | `Rejected`       |                                              |
| 5xx, and anything else | `OutcomeUnknown` | it may have acted before it failed           |
| none, never sent       | `Unavailable`    |                                              |
| none, sent             | `OutcomeUnknown` | nothing may be left on that nobody knows of  |
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from forebay.api.machines import Machine
from forebay.net.redaction import MIN_SECRET
from forebay.net.server_hints import retry_after
from forebay.net.transport import Headers, Request
from forebay.providers.base import BadCredentials, OutcomeUnknown, ProviderError, RateLimited, Rejected, Unavailable
from forebay.providers.secrets import Secrets
from forebay.providers.webhook.credentials import named_secrets

NOT_AUTHORISED: Final = frozenset({401, 403})

_LONGEST_QUOTE: Final = 200
#: Nobody's rate limit lasts longer; a date far away is a mistake.
_LONGEST_WAIT: Final = 24 * 3600.0
#: Headers of a call that hold no secret.
_OPEN: Final = frozenset({"content-type", "idempotency-key", "webhook-id", "webhook-timestamp", "webhook-signature"})


class Asked(StrEnum):
    """The field of the machine whose URL is called."""

    ON = "scaleUpEndpoint"
    OFF = "scaleDownEndpoint"
    STATUS = "statusEndpoint"


class Answer(msgspec.Struct, frozen=True):
    call: Request
    status: int
    headers: Headers
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 (HTTP's own numbers)


def refusal(machine: Machine, asked: Asked, answer: Answer, secrets: Secrets, now: datetime) -> ProviderError:
    """The error for any answer but 2xx."""
    said = f"{machine.name}: {answer.call} answered {answer.status}{_quoted(answer, secrets)}"
    wait = retry_after(answer.headers, now)
    later = timedelta(seconds=min(wait, _LONGEST_WAIT)) if wait is not None else None
    match answer.status:
        case 302 | 303:
            return OutcomeUnknown(
                f"{said}, a redirect{_place(answer)}, which is not followed; it may have acted before. Let the "
                f"endpoint answer 2xx, or write the final URL into {asked}."
            )
        case 401 | 403:
            return BadCredentials(f"{said}. {_what_to_correct(machine, secrets)}")
        case 408 | 425:
            return Unavailable(f"{said}: the endpoint did not take it up. It is asked again.", retry_after=later)
        case 409:
            return OutcomeUnknown(
                f"{said}: the machine may be in that state already. Let the endpoint answer 2xx where it is."
            )
        case 429:
            return RateLimited(f"{said}: it wants fewer requests, and is asked again later.", retry_after=later)
        case status if 300 <= status < 400:  # noqa: PLR2004 (HTTP's own numbers)
            return Rejected(
                f"{said}, a redirect{_place(answer)}, which is not followed. Write the final URL into {asked}."
            )
        case status if 400 <= status < 500:  # noqa: PLR2004
            takes = "GET" if asked is Asked.STATUS else "POST"
            return Rejected(f"{said}. Correct {asked} of the machine, or make that endpoint take {takes}.")
        case _:
            return OutcomeUnknown(
                f"{said}. It may have acted before it failed: look at the logs of that endpoint.", retry_after=later
            )


def _what_to_correct(machine: Machine, secrets: Secrets) -> str:
    names = " and ".join(dict.fromkeys(secrets.where(ref) for ref in named_secrets(machine)))
    if names:
        return f"It does not accept what {names} holds, though that was read again just now. Correct it there."
    return "It wants to know who calls. Name a Secret in headersSecretRef or hmacSecretRef of the machine."


def _place(answer: Answer) -> str:
    location = answer.headers.get("Location", "")
    # As requests are shown: without the parts that may be secret.
    return f" to {str(Request(method='', url=location)).strip()}" if location else ""


def _quoted(answer: Answer, secrets: Secrets) -> str:
    """What the server said, as far as it may be shown: it may repeat what it was sent."""
    sent = [value for name, value in answer.call.headers.items() if name.lower() not in _OPEN]
    if any(len(word) < MIN_SECRET for value in sent for word in value.split()[-1:]):
        return ""  # a secret this short cannot be found again
    text = secrets.redactor.text(answer.body.decode("utf-8", "replace"))
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if not line:
        return ""
    return f' ("{line[:_LONGEST_QUOTE]}{"..." if len(line) > _LONGEST_QUOTE else ""}")'
