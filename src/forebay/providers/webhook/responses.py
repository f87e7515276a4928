"""The `ProviderError` that a response of an endpoint stands for.

| response               | error            | why                                          |
|------------------------|------------------|----------------------------------------------|
| 2xx                    | none: accepted   |                                              |
| 302, 303               | `OutcomeUnknown` | many servers send it after they have acted   |
| other 3xx              | `Rejected`       | no redirect is followed; it was not acted on |
| 401, 403               | `BadCredentials` | after the Secrets were read again            |
| 408, 425               | `Unavailable`    | the server did not process the request       |
| 409                    | `OutcomeUnknown` | the machine may be in that state already     |
| 429                    | `RateLimited`    |                                              |
| other 4xx              | `Rejected`       |                                              |
| 5xx, and anything else | `OutcomeUnknown` | the server may have acted before it failed   |
| none, never sent       | `Unavailable`    |                                              |
| none, sent             | `OutcomeUnknown` | the machine may have been powered on         |
"""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

import msgspec

from forebay.api.machines import Machine
from forebay.net.redaction import HIDDEN, MIN_SECRET
from forebay.net.server_hints import retry_after
from forebay.net.transport import Headers, Request
from forebay.providers.base import BadCredentials, OutcomeUnknown, ProviderError, RateLimited, Rejected, Unavailable
from forebay.providers.secrets import Secrets
from forebay.providers.webhook.credentials import named_secrets

UNAUTHORIZED: Final = frozenset({401, 403})

_LONGEST_QUOTE: Final = 200
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?=[/?#]|\Z)")
#: Seconds. No real rate limit lasts longer; a `Retry-After` further away is a mistake.
_LONGEST_WAIT: Final = 24 * 3600.0
#: Request headers that hold no secret.
_PUBLIC_HEADERS: Final = frozenset(
    {"content-type", "idempotency-key", "webhook-id", "webhook-timestamp", "webhook-signature"}
)


class Endpoint(StrEnum):
    """An endpoint of a machine, by the field that holds its URL."""

    POWER_ON = "scaleUpEndpoint"
    POWER_OFF = "scaleDownEndpoint"
    STATUS = "statusEndpoint"


class EndpointResponse(msgspec.Struct, frozen=True):
    request: Request
    status: int
    headers: Headers
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 (HTTP's own numbers)


def error_of(
    machine: Machine, endpoint: Endpoint, response: EndpointResponse, secrets: Secrets, now: datetime
) -> ProviderError:
    """The error for any response but 2xx."""
    call = f"{response.request.method} {origin(response.request.url)}"
    fact = secrets.redactor.text(f"{machine.name}: {call} answered {response.status}{_quoted(response, secrets)}")
    wait = retry_after(response.headers, now)
    later = timedelta(seconds=min(wait, _LONGEST_WAIT)) if wait is not None else None
    match response.status:
        case 302 | 303:
            return OutcomeUnknown(
                f"{fact}, a redirect{_redirect_target(response)}, which Forebay does not follow; the endpoint may have "
                f"acted before. Let the endpoint answer 2xx, or write the final URL into {endpoint}."
            )
        case 401 | 403:
            return BadCredentials(f"{fact}. {_credentials_advice(machine, secrets)}")
        case 408 | 425:
            return Unavailable(
                f"{fact}: the endpoint did not process the request. Forebay retries it.", retry_after=later
            )
        case 409:
            return OutcomeUnknown(
                f"{fact}: the machine may be in that state already. Let the endpoint answer 2xx in that case."
            )
        case 429:
            return RateLimited(f"{fact}: too many requests. Forebay retries later.", retry_after=later)
        case status if 300 <= status < 400:  # noqa: PLR2004 (HTTP's own numbers)
            return Rejected(
                f"{fact}, a redirect{_redirect_target(response)}, which Forebay does not follow. "
                f"Write the final URL into {endpoint}."
            )
        case status if 400 <= status < 500:  # noqa: PLR2004
            method = "GET" if endpoint is Endpoint.STATUS else "POST"
            return Rejected(f"{fact}. Correct {endpoint} of the machine, or make that endpoint accept {method}.")
        case _:
            return OutcomeUnknown(
                f"{fact}. The endpoint may have acted before it failed: look at its logs.", retry_after=later
            )


def _credentials_advice(machine: Machine, secrets: Secrets) -> str:
    names = " and ".join(dict.fromkeys(secrets.describe(ref) for ref in named_secrets(machine)))
    if names:
        return (
            f"The endpoint does not accept the credentials in {names}, which Forebay has just read again. Correct them."
        )
    return "The endpoint requires credentials. Name a Secret in headersSecretRef or hmacSecretRef of the machine."


def _redirect_target(response: EndpointResponse) -> str:
    location = response.headers.get("Location", "")
    return f" to {origin(location)}" if location else ""


def origin(url: str) -> str:
    """Scheme and host of a URL: the rest may be secret, and every user of the cluster can read our sentences.

    Nothing but the scheme where there is an `@`: a password with a slash makes the rest look like a host.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in {"http", "https"}:
        return HIDDEN
    host = _HOST.match(rest)
    if host is None or "@" in url:
        return f"{scheme}://{HIDDEN}"
    return f"{scheme}://{host[0]}"


def _quoted(response: EndpointResponse, secrets: Secrets) -> str:
    """The body in one line, without secrets: a server may repeat the headers it was sent."""
    sent = [value for name, value in response.request.headers.items() if name.lower() not in _PUBLIC_HEADERS]
    if any(len(word) < MIN_SECRET for value in sent for word in value.split()[-1:]):
        return ""  # a secret this short cannot be redacted
    text = secrets.redactor.text(_without_target(response.body.decode("utf-8", "replace"), response.request.url))
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if not line:
        return ""
    return f' ("{line[:_LONGEST_QUOTE]}{"..." if len(line) > _LONGEST_QUOTE else ""}")'


def _without_target(text: str, url: str) -> str:
    """The text without path and query of the URL, which servers repeat ("Cannot POST /hooks/...") and may be secret."""
    target = "/" + url.partition("://")[2].rpartition("@")[2].partition("#")[0].partition("/")[2]
    path = target.partition("?")[0].rstrip("/")
    for each in (target, unquote(target), path, unquote(path)):
        if len(each) >= MIN_SECRET:
            text = text.replace(each, HIDDEN)
    return text
