"""What a call to a machine's endpoints is made with, from the Secrets that the machine names."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from forebay.api.machines import Machine, MachineTLS
from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.net.tls import TlsOptions
from forebay.providers.base import BadCredentials, Unavailable
from forebay.providers.secrets import NoSecret, Secrets, SecretsUnavailable
from forebay.providers.webhook.signing import BadSigningKey, signing_keys

#: Set by the call itself, or what they would change is the call's framing.
_NOT_FOR_USERS: Final = frozenset(
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
    #: None: the system's authorities, and no certificate of ours.
    tls: TlsOptions | None

    def __repr__(self) -> str:
        # Not the fields: they are secrets.
        return f"Credentials(headers {', '.join(self.headers)})"


def named_secrets(machine: Machine) -> tuple[SecretKeyRef | SecretRef, ...]:
    tls = machine.tls or MachineTLS()
    refs = (machine.headers_secret_ref, machine.hmac_secret_ref, tls.ca_secret_ref, tls.client_certificate_secret_ref)
    return tuple(ref for ref in refs if ref is not None)


async def read_credentials(machine: Machine, secrets: Secrets) -> WebhookCredentials:
    """Raises `BadCredentials` where a person must correct a Secret, `Unavailable` where none can be read now."""
    try:
        return WebhookCredentials(
            await _headers(machine.headers_secret_ref, secrets),
            await _signing_keys(machine.hmac_secret_ref, secrets),
            await _tls(machine.tls, secrets),
        )
    except NoSecret as error:
        raise BadCredentials(f"{machine.name}: {error}.") from None
    except SecretsUnavailable as error:
        raise Unavailable(f"{machine.name}: its Secrets cannot be read now: {error}. This is tried again.") from None


async def _headers(ref: SecretRef | None, secrets: Secrets) -> dict[str, str]:
    if ref is None:
        return {}
    headers = {}
    for name, value in (await secrets.whole(ref)).items():
        if name.lower() in _NOT_FOR_USERS:
            raise NoSecret(f"{secrets.where(ref)} has the key {name}, a header that Forebay sets itself: remove it")
        # A file made by an editor ends with a newline, which no header can hold.
        text = value.decode("latin-1").strip()
        if not text.isprintable() or not text.isascii():
            raise NoSecret(
                f"key {name} of {secrets.where(ref)} cannot be a header: write it in one line of plain ASCII"
            )
        for part in _told_apart(text):
            secrets.redactor.register(part)
        headers[name] = text
    return headers


def _told_apart(header: str) -> Iterator[str]:
    """What of a header a server may repeat alone: the token without `Bearer`, the password behind `Basic`."""
    for word in header.split()[1:]:
        yield word
        if header.lower().startswith("basic "):
            with suppress(ValueError):
                plain = base64.b64decode(word, validate=True).decode("latin-1")
                yield plain
                yield plain.partition(":")[2]


async def _signing_keys(ref: SecretKeyRef | None, secrets: Secrets) -> tuple[bytes, ...]:
    if ref is None:
        return ()
    try:
        return signing_keys(await secrets.value(ref))
    except BadSigningKey as error:
        raise NoSecret(f"key {ref.key} of {secrets.where(ref)} cannot sign: {error}; write whsec_ and base64") from None


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
