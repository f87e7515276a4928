"""Credentials of calls to a machine's endpoints, from the Secrets that the machine names."""

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, unquote_plus

import msgspec

from forebay.api.machines import Machine, MachineTLS
from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.net.tls import TlsOptions
from forebay.providers.base import BadCredentials, Unavailable
from forebay.providers.secrets import Secrets, SecretsUnavailable, UnusableSecret
from forebay.providers.webhook.signing import BadSigningKey, signing_keys

#: Characters of a key in the path of a URL, at least.
_SHORTEST_KEY: Final = 16
#: Headers that users cannot set: Forebay sets them itself, or they control the framing of the request.
_RESERVED_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "idempotency-key",
        "transfer-encoding",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)


class WebhookCredentials(msgspec.Struct, frozen=True):
    headers: Mapping[str, str]
    signing_keys: tuple[bytes, ...]
    #: None: the system's authorities and no client certificate.
    tls: TlsOptions | None

    def __repr__(self) -> str:
        # Without values: they are secrets.
        return f"WebhookCredentials(headers {', '.join(self.headers)})"


def named_secrets(machine: Machine) -> tuple[SecretKeyRef | SecretRef, ...]:
    """References to every Secret that the machine names."""
    tls = machine.tls or MachineTLS()
    refs = (machine.headers_secret_ref, machine.hmac_secret_ref, tls.ca_secret_ref, tls.client_certificate_secret_ref)
    return tuple(ref for ref in refs if ref is not None)


async def read_credentials(machine: Machine, secrets: Secrets) -> WebhookCredentials:
    """Credentials of a machine. Raises `BadCredentials` where a person must correct a Secret, else `Unavailable`."""
    try:
        return WebhookCredentials(
            await _headers(machine.headers_secret_ref, secrets),
            await _signing_keys(machine.hmac_secret_ref, secrets),
            await _tls(machine.tls, secrets),
        )
    except UnusableSecret as error:
        raise BadCredentials(f"{machine.name}: {error}.") from None
    except SecretsUnavailable as error:
        raise Unavailable(f"{machine.name}: its Secrets cannot be read: {error}. Forebay retries.") from None


async def _headers(ref: SecretRef | None, secrets: Secrets) -> dict[str, str]:
    if ref is None:
        return {}
    headers = {}
    for name, value in (await secrets.read(ref)).items():
        if name.lower() in _RESERVED_HEADERS:
            raise UnusableSecret(
                f"{secrets.describe(ref)} has the key {name}, a header that Forebay sets itself: remove it"
            )
        # Editors end files with a newline, which a header cannot hold.
        text = value.decode("latin-1").strip()
        if not text.isprintable() or not text.isascii():
            raise UnusableSecret(
                f"key {name} of {secrets.describe(ref)} cannot be a header: write it in one line of plain ASCII"
            )
        for part in _secret_parts(text):
            secrets.redactor.register(part)
        headers[name] = text
    return headers


def _secret_parts(header: str) -> Iterator[str]:
    """Parts of a header that a server may repeat on their own: the token after `Bearer`, the password in `Basic`, the
    values of a cookie or of parameters (`Token token="..."`).
    """
    for pair in re.split("[;,\\s]+", header):
        yield pair.partition("=")[2].strip("\"'")
    for word in header.split()[1:]:
        yield word
        if header.lower().startswith("basic "):
            with suppress(ValueError):
                plain = base64.b64decode(word, validate=True).decode("latin-1")
                yield plain
                yield plain.partition(":")[2]


def secret_parts_of(machine: Machine, url: str) -> Iterator[str]:
    """Parts of an endpoint's URL that may be secret and that a server may repeat: user name and password, the query and
    its values, the fragment, and segments of the path that look like keys rather than words. As they are written, and
    as a server reads them.
    """
    for part in _raw_parts(machine, url):
        yield part
        yield unquote(part)
        yield unquote_plus(part)


def _raw_parts(machine: Machine, url: str) -> Iterator[str]:
    userinfo, rest = _split_userinfo(url.partition("://")[2])
    user, _, password = userinfo.partition(":")
    yield from (userinfo, user, password, *re.split("[/?#]", password))
    path, _, fragment = rest.partition("#")
    path, _, query = path.partition("?")
    yield from (fragment, query)
    for pair in re.split("[&;]", query):
        name, _, value = pair.partition("=")
        yield value or name
    for segment in path.split("/")[1:]:
        if len(segment) >= _SHORTEST_KEY and _is_no_word(segment) and machine.name not in segment:
            yield segment


def _split_userinfo(rest: str) -> tuple[str, str]:
    """User name and password, and what comes after them, of a URL without its scheme."""
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in host:
        userinfo = host.rpartition("@")[0]
        return userinfo, rest[len(userinfo) + 1 :]
    if re.fullmatch(r"(\[.*\]|[^:]*)(:[0-9]*)?", host):
        return "", rest
    # A port that is no number is the beginning of a password with a delimiter in it.
    userinfo, _, rest = rest.rpartition("@")
    return userinfo, rest


def _is_no_word(segment: str) -> bool:
    """Whether a segment of a path looks like a key: digits among letters, or capital letters."""
    has_letters = any(char.isalpha() for char in segment)
    return has_letters and (any(char.isdigit() for char in segment) or segment != segment.lower())


async def _signing_keys(ref: SecretKeyRef | None, secrets: Secrets) -> tuple[bytes, ...]:
    if ref is None:
        return ()
    value = await secrets.value(ref)
    try:
        keys = signing_keys(value)
    except BadSigningKey as error:
        raise UnusableSecret(
            f"key {ref.key} of {secrets.describe(ref)} cannot sign: {error}; write whsec_ and base64"
        ) from None
    # A server may repeat a key in any of its forms.
    for part in (*keys, *(word.removeprefix(b"whsec_") for word in value.split())):
        secrets.redactor.register(part)
    return keys


async def _tls(tls: MachineTLS | None, secrets: Secrets) -> TlsOptions | None:
    if tls is None:
        return None
    certificate = key = None
    if (ref := tls.client_certificate_secret_ref) is not None:
        certificate = await secrets.value(SecretKeyRef(name=ref.name, namespace=ref.namespace, key="tls.crt"))
        key = await secrets.value(SecretKeyRef(name=ref.name, namespace=ref.namespace, key="tls.key"))
    return TlsOptions(
        authority_data=await secrets.value(tls.ca_secret_ref) if tls.ca_secret_ref is not None else None,
        certificate_data=certificate,
        key_data=key,
        server_name=tls.server_name,
        insecure=tls.insecure_skip_verify,
    )
