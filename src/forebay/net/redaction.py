"""Keeps secrets out of what people read: logs, errors, recordings.

Two nets. Values: every secret that the program has read is registered, and is found again in plain text and as base64,
percent-encoding, JSON and hex would write it. Names: what stands behind a well-known name (authorization, api_key,
userData ...) is hidden though nobody registered it.
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

#: Shorter values would also blank out ordinary words and numbers.
SHORTEST_SECRET = 6

# Words of a name may be joined by `-`, `_` or a capital, and others may stand before it (VAST_API_KEY, dbPassword).
_NAME = (
    r"(?:(?<![A-Za-z0-9])|(?-i:(?<=[a-z0-9])(?=[A-Z])))(?=[abcijkprstuwx])"
    r"(?:x[-_]?)?(?:proxy[-_]?)?(?:authorization|(?:set[-_]?)?cookie|api[-_]?key|"
    r"(?:(?:access|refresh|id|auth|bearer|session|join|bootstrap|registration)[-_]?)?token|"
    r"(?:(?:client|shared|webhook)[-_]?)?secret(?:[-_]?access)?(?:[-_]?key)?|password|passwd|passphrase|"
    r"private[-_]?key|client[-_]?key[-_]?data|(?:pre)?auth[-_]?key|signing[-_]?key|credentials?|kubeconfig|"
    r"user[-_]?data|startup[-_]?script|cloud[-_]?init|signature)"
)
_SECRET_NAME = re.compile(rf"{_NAME}\Z", re.IGNORECASE)

# What may stand behind such a name, and hold the secret.
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

# Whatever is in the text, the time taken grows with its length only: no part can match the same characters in two
# ways, and none that fails has looked far ahead.
_IN_TEXT = re.compile(
    "|".join(
        [
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
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
    """One for the whole program: whoever reads a secret registers it here, whoever writes text passes it through."""

    def __init__(self, secrets: Iterable[str | bytes] = ()) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.register(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"

    def register(self, secret: str | bytes) -> bool:
        """From now on this value is hidden wherever it appears. False if it is too short to be looked for."""
        raw = secret.encode() if isinstance(secret, str) else secret
        forms = {form for part in _parts(raw) for form in _written(part)}
        if not forms:
            return False
        if not forms <= self._forms:
            self._forms |= forms
            self._pattern = None
        return True

    def text(self, text: str) -> str:
        """The text without its secrets."""
        return _IN_TEXT.sub(_hide_value, self._without_registered(text))

    def body(self, data: bytes) -> bytes:
        """The same for a body, text or not."""
        try:
            return self.text(data.decode()).encode()
        except UnicodeDecodeError:
            return self.text(data.decode("latin-1")).encode("latin-1")

    def data(self, value: Any) -> Any:
        """The same for decoded JSON or a log event: also by the names of fields."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.body(value)
        if isinstance(value, Mapping):
            return {
                self.data(key): HIDDEN if _is_secret_name(key) and _holds_something(item) else self.data(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.data(item) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        # Whatever else a log may be given (an exception, a struct): it is going to be written as text.
        return self.text(str(value) if isinstance(value, BaseException) else repr(value))

    def headers(self, headers: Headers) -> Headers:
        return Headers(
            [(name, HIDDEN if _is_secret_name(name) else self.text(value)) for name, value in headers.items()]
        )

    def request(self, request: Request) -> Request:
        """The request as it may be shown or kept."""
        body = None if request.body is None else self.body(request.body)
        return msgspec.structs.replace(
            request, url=self.text(request.url), headers=self.headers(request.headers), body=body
        )

    def error(self, error: TransportError) -> TransportError:
        """The same failure, fit to be logged."""
        return error.retold(self.text(str(error)), self.request(error.request))

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """A structlog processor. Put it after those that format exceptions, just before the renderer."""
        return {str(key): value for key, value in self.data(event).items()}

    def _without_registered(self, text: str) -> str:
        if not self._forms:
            return text
        if self._pattern is None:
            # The longest first: a form may be contained in another.
            self._pattern = re.compile("|".join(map(re.escape, sorted(self._forms, key=len, reverse=True))))
        return self._pattern.sub(HIDDEN, text)


class Redacting:
    """A transport whose errors hold no secret, neither in their words nor in the request they carry."""

    def __init__(self, inner: Transport, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def request(self, request: Request) -> Response:
        try:
            answer = await self._inner.request(request)
        except TransportError as error:
            shown = self._redactor.error(error)
        else:
            if answer.buffered is not None:
                return answer
            return Response(answer.status, answer.headers, self._chunks(answer), on_close=answer.close)
        # Out here, where the first error is neither its cause nor its context: those are printed, secrets and all.
        raise shown

    async def close(self) -> None:
        await self._inner.close()

    async def _chunks(self, answer: Response) -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.chunks():
                yield chunk
        except TransportError as error:
            shown = self._redactor.error(error)
        else:
            return
        raise shown


def _is_secret_name(name: object) -> bool:
    return isinstance(name, str) and _SECRET_NAME.search(name) is not None


def _holds_something(value: object) -> bool:
    # `{"token": {"expires": ...}}` is looked into; `{"token": ""}` shows that there is none, which helps.
    return isinstance(value, str | bytes | int) and not isinstance(value, bool) and value not in {"", b""}


def _hide_value(match: re.Match[str]) -> str:
    found = match.groupdict("")
    shown = found["line"] or found["flag"] or found["scheme"] or found["userinfo"] or found["name"]
    shown += found["quoted"] or found["inner"] or found["number"] or found["pair"] or found["header"]
    around = found["quote"] or (f'{found["escape"]}"' if found["escape"] else '"' if found["number"] else "")
    return f"{shown}{around}{HIDDEN}{around}{'@' if found['userinfo'] else ''}"


def _parts(secret: bytes) -> Iterator[bytes]:
    """The secret itself, and the lines of a long one (a key, a script), which may be shown one by one."""
    if len(secret.strip()) >= SHORTEST_SECRET:
        yield secret.strip()
    lines = secret.split(b"\n")
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE and b"-----" not in line)


_SHORTEST_LINE = 16


def _written(secret: bytes) -> Iterator[str]:
    """Every way in which the secret may be written down."""
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
    # Inside a longer text (`user:secret`) its base64 depends on where it begins modulo 3; the letters at both ends also
    # hold bits of their neighbours and are left out.
    for before in range(3):
        encoded_bytes = base64.b64encode(b"\0" * before + secret)
        first = -(-before * 8 // 6)
        last = (before + len(secret)) * 8 // 6
        middle = encoded_bytes[first:last].decode()
        if len(middle) >= SHORTEST_SECRET:
            yield middle
            yield middle.translate(_URL_SAFE)
            yield quote(middle, safe="")


_URL_SAFE = str.maketrans("+/", "-_")
