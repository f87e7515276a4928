"""Redaction: removes secrets from logs, errors and recordings.

Two rules. Values: every secret that the program reads is registered, and is found in plain text and in base64, percent,
JSON and hex encoding. Names: the value of a well-known name (authorization, api_key, userData ...) is redacted even if
it is not registered.
"""

import base64
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from forebay.net.transport import Headers, Request, Response, Transport, TransportError

HIDDEN = "[redacted]"

#: Shorter values are not registered: redacting them would also remove ordinary words and numbers.
MIN_SECRET = 6

# Parts of a name may be joined by `-`, `_` or a capital letter, and may have a prefix (VAST_API_KEY, dbPassword).
_NAME = (
    r"(?:(?<![A-Za-z0-9])|(?-i:(?<=[a-z0-9])(?=[A-Z])))(?=[abcijkprstuwx])"
    r"(?:x[-_]?)?(?:proxy[-_]?)?(?:authorization|(?:set[-_]?)?cookie|api[-_]?key|"
    r"(?:(?:access|refresh|id|auth|bearer|session|join|bootstrap|registration)[-_]?)?token|"
    r"(?:(?:client|shared|webhook)[-_]?)?secret(?:[-_]?access)?(?:[-_]?key)?|password|passwd|passphrase|"
    r"private[-_]?key|client[-_]?key[-_]?data|(?:pre)?auth[-_]?key|signing[-_]?key|credentials?|kubeconfig|"
    r"user[-_]?data|startup[-_]?script|cloud[-_]?init|signature)"
)
_SECRET_NAME = re.compile(rf"{_NAME}\Z", re.IGNORECASE)

# The forms of a value after such a name.
_VALUES = [
    # "api_key": "...", password='...', token: b"...": to the closing quote, or to where the text was cut off
    r"""(?P<quoted>["']?\s*[=:]\s*b?)(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\])*(?:(?P=quote)|\\?\Z)""",
    # the same inside another string, its quotes escaped
    r"""(?P<inner>(?P<escape>\\+)["']\s*:\s*)(?P=escape)["'].*?(?:(?<!\\)(?P=escape)["']|\Z)""",
    r"""(?P<number>["']\s*:\s*)-?[0-9][0-9.]*""",
    # ?token=..., password = ...
    r"(?P<pair>[ \t]*=[ \t]*)[^&\s\"'<>;,]+",
    # X-Api-Key: ...
    r"(?P<header>:[ \t]*(?:(?:Bearer|Basic|Token)[ \t]+)?)(?![\s\"'])[^\s\"',;]+",
]

# A host, or a part of a path, in which nothing is named.
_PART = r"[^\s?#\"'<>@=;&,:/\\]*"

# Linear in the length of the text, whatever it holds: no part can match the same characters in two ways, and none
# that fails has looked far ahead.
_IN_TEXT = re.compile(
    "|".join(
        [
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            # GET https://host/oauth/token: what went wrong
            rf"(?P<address>https?://{_PART}(?::[0-9]+)?(?:/{_PART})*/{_NAME})(?=:[ \t])",
            # Authorization: Anything ..., Cookie: a=b; c=d
            r"(?P<line>(?<![A-Za-z0-9])(?:proxy-)?(?:authorization|(?:set-)?cookie):[ \t]*)[^\r\n\"'\\]+",
            rf"(?P<name>{_NAME})(?:{'|'.join(_VALUES)})",
            # --token ..., also as a list of arguments
            rf"""(?P<flag>--[a-z0-9-]{{0,40}}?{_NAME}(?:[ \t]+|["'],[ \t]*["']))[^\s"'-][^\s"']*""",
            r"(?P<scheme>\b(?:Bearer|Basic)[ \t]+)[A-Za-z0-9._~+/=-]{8,}",
            # https://user:password@host
            r"(?P<userinfo>://)[^/\s\"'<>?#@]*@(?:[^/\s\"'<>?#@]*@)*",
            # a JSON web token
            r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        ]
    ),
    re.IGNORECASE | re.DOTALL,
)


class Redactor:
    """Redacts text. One per program: code that reads a secret registers it, code that writes text calls it."""

    def __init__(self, secrets: Iterable[str | bytes] = ()) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.register(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"

    def register(self, secret: str | bytes) -> bool:
        """Redacts this value from now on. False if the value is too short."""
        raw = secret.encode() if isinstance(secret, str) else secret
        forms = {form for part in _parts(raw) for form in _encodings(part)}
        if not forms:
            return False
        if not forms <= self._forms:
            self._forms |= forms
            self._pattern = None
        return True

    def text(self, text: str) -> str:
        """The redacted text."""
        return _IN_TEXT.sub(_redact_value, self._without_registered(text))

    def body(self, data: bytes) -> bytes:
        """The redacted body, which may be binary."""
        try:
            return self.text(data.decode()).encode()
        except UnicodeDecodeError:
            return self.text(data.decode("latin-1")).encode("latin-1")

    def data(self, value: Any) -> Any:
        """Redacted JSON data or a redacted log event, also by field names."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.body(value)
        if isinstance(value, Mapping):
            return {
                self.data(key): HIDDEN if _is_secret_name(key) and _is_value(item) else self.data(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.data(item) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        # Anything else (an exception, a struct) will be logged as text.
        return self.text(str(value) if isinstance(value, BaseException) else repr(value))

    def headers(self, headers: Headers) -> Headers:
        return Headers(
            [(name, HIDDEN if _is_secret_name(name) else self.text(value)) for name, value in headers.items()]
        )

    def request(self, request: Request) -> Request:
        """The redacted request."""
        body = None if request.body is None else self.body(request.body)
        return msgspec.structs.replace(
            request, url=self.text(request.url), headers=self.headers(request.headers), body=body
        )

    def error(self, error: TransportError) -> TransportError:
        """The redacted error."""
        return error.with_message(self.text(str(error)), self.request(error.request))

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Structlog processor. Must come after the formatting of exceptions, just before the renderer."""
        return {str(key): value for key, value in self.data(event).items()}

    def _without_registered(self, text: str) -> str:
        if not self._forms:
            return text
        if self._pattern is None:
            # Longest first: one form may contain another.
            self._pattern = re.compile("|".join(map(re.escape, sorted(self._forms, key=len, reverse=True))))
        return self._pattern.sub(HIDDEN, text)


class Redacting:
    """A transport that redacts its errors: the message and the request."""

    def __init__(self, inner: Transport, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def request(self, request: Request) -> Response:
        try:
            response = await self._inner.request(request)
        except TransportError as error:
            shown = self._redactor.error(error)
        else:
            if response.buffered is not None:
                return response
            return Response(response.status, response.headers, self._chunks(response), on_close=response.close)
        # Raised outside of `except`, so that the original error is neither cause nor context, which would be printed.
        raise shown

    async def close(self) -> None:
        await self._inner.close()

    async def _chunks(self, response: Response) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.chunks():
                yield chunk
        except TransportError as error:
            shown = self._redactor.error(error)
        else:
            return
        raise shown


def _is_secret_name(name: object) -> bool:
    return isinstance(name, str) and _SECRET_NAME.search(name) is not None


def _is_value(value: object) -> bool:
    # An object is searched field by field, and an empty value is shown: it helps to see that a token is missing.
    return isinstance(value, str | bytes | int) and not isinstance(value, bool) and value not in {"", b""}


def _redact_value(match: re.Match[str]) -> str:
    found = match.groupdict("")
    if found["address"]:
        return found["address"]
    shown = found["line"] or found["flag"] or found["scheme"] or found["userinfo"] or found["name"]
    shown += found["quoted"] or found["inner"] or found["number"] or found["pair"] or found["header"]
    around = found["quote"] or (f'{found["escape"]}"' if found["escape"] else '"' if found["number"] else "")
    return f"{shown}{around}{HIDDEN}{around}{'@' if found['userinfo'] else ''}"


def _parts(secret: bytes) -> Iterator[bytes]:
    """The secret, and its lines if it has several (a key, a script), which may be printed one by one."""
    if len(secret.strip()) >= MIN_SECRET:
        yield secret.strip()
    lines = secret.split(b"\n")
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _MIN_LINE and b"-----" not in line)


_MIN_LINE = 16


def _encodings(secret: bytes) -> Iterator[str]:
    """The secret in every encoding in which it may appear."""
    text = secret.decode("utf-8", "backslashreplace")
    yield text
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield repr(secret)[2:-1]
    for encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), encoded)
    yield secret.hex()
    yield secret.hex().upper()
    # Inside a longer text (`user:secret`) the base64 of the secret depends on its offset modulo 3. The characters at
    # both ends also encode bits of their neighbours and are left out.
    for before in range(3):
        encoded_bytes = base64.b64encode(b"\0" * before + secret)
        first = -(-before * 8 // 6)
        last = (before + len(secret)) * 8 // 6
        middle = encoded_bytes[first:last].decode()
        yield middle
        yield middle.translate(_URL_SAFE)
        yield quote(middle, safe="")


_URL_SAFE = str.maketrans("+/", "-_")
