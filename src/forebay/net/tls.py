"""TLS options, and messages for TLS errors that users can act on."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import msgspec


class BadTlsOptions(ValueError):
    """Unusable TLS options. The message is one sentence that says which and why."""


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Certificate authority, client certificate and key, all PEM, and how to verify the server."""

    #: Trusted instead of the authorities of the system.
    authority_data: bytes | None = None
    certificate_data: bytes | None = None
    key_data: bytes | None = None
    #: Name that the server's certificate must have, if not the host of the URL.
    server_name: str | None = None
    #: Accept any certificate. Anybody on the network path can then read and change the traffic.
    insecure: bool = False

    def __repr__(self) -> str:
        # Names of the fields only: one of them holds a private key.
        given = [name for name in self.__struct_fields__ if getattr(self, name) not in {None, False}]
        return f"TlsOptions({', '.join(given)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("given", repr(self))]

    def client_context(self) -> ssl.SSLContext:
        """The SSL context of a client. Raises `BadTlsOptions`."""
        context = self._with_authority()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Python 3.13 requires extensions that the authorities of many clusters lack. No other client requires them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self.load_certificate(context)
        return context

    def _with_authority(self) -> ssl.SSLContext:
        if self.authority_data is None:
            return ssl.create_default_context()
        try:
            return ssl.create_default_context(cadata=self.authority_data.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError):
            raise BadTlsOptions("the CA data holds no PEM certificate") from None

    def load_certificate(self, context: ssl.SSLContext) -> None:
        """Makes the context use the certificate, if there is one. Raises `BadTlsOptions`."""
        certificate, key = self.certificate_data, self.key_data
        if certificate is None and key is None:
            return
        if certificate is None or key is None:
            missing, given = ("certificate", "key") if certificate is None else ("key", "certificate")
            raise BadTlsOptions(f"there is a client {given} but no client {missing}")
        with _as_file(certificate + b"\n" + key) as path:
            try:
                # Without a password callback, OpenSSL would ask for the password of an encrypted key on the terminal.
                context.load_cert_chain(path, password=lambda: "")
            except ssl.SSLError as error:
                raise BadTlsOptions(_why_unusable(error, key)) from None


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """The SSL context of a server with the certificate of the options, whose clients show one of their authority, or
    none. Raises `BadTlsOptions`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    try:
        context.load_verify_locations(cadata=(options.authority_data or b"").decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise BadTlsOptions("the CA data holds no PEM certificate") from None
    options.load_certificate(context)
    return context


def _why_unusable(error: ssl.SSLError, key: bytes) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the client key does not belong to the client certificate"
    if b"ENCRYPTED" in key:
        return "the client key is encrypted: remove its password"
    return "the client certificate or key is not PEM"


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Path of a temporary file: OpenSSL reads keys from files only. In memory if possible: disks may be read-only."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("pem"), "wb", buffering=0) as file:  # noqa: PTH123 (a descriptor, not a path)
            file.write(content)
            yield f"/proc/self/fd/{file.fileno()}"
        return
    temporary: IO[bytes]
    with tempfile.NamedTemporaryFile(buffering=0) as temporary:
        temporary.write(content)
        yield temporary.name


# OpenSSL's X509_V_ERR_* numbers.
_NOT_YET_VALID = 9
_EXPIRED = 10
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
_WRONG_NAME = frozenset({62, 64})

_CLIENT_CERTIFICATE_ALERTS = frozenset(
    {
        "CERTIFICATE_REQUIRED",
        "BAD_CERTIFICATE",
        "UNSUPPORTED_CERTIFICATE",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_UNKNOWN",
        "UNKNOWN_CA",
        "ACCESS_DENIED",
        "HANDSHAKE_FAILURE",
    }
)
_NO_COMMON_VERSION = frozenset({"UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION"})
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


def alert_against_our_certificate(error: BaseException | None) -> str | None:
    """The TLS alert with which the server rejected our client certificate, or the lack of one; None for other errors.

    With TLS 1.3 the alert arrives after the first request was sent; the server has read nothing of that request.
    """
    reason = getattr(error, "reason", None) or ""
    for prefix in ("TLSV13_ALERT_", "TLSV1_ALERT_", "SSLV3_ALERT_"):
        if (
            isinstance(reason, str)
            and reason.startswith(prefix)
            and reason.removeprefix(prefix) in _CLIENT_CERTIFICATE_ALERTS
        ):
            return reason.removeprefix(prefix).replace("_", " ").lower()
    return None


def tls_failure(error: BaseException, where: str, name: str) -> str:
    """One sentence on why TLS with `where` failed, and what to do. `name` is the expected name of the certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code == _EXPIRED:
            return (
                f"the certificate of {where} has expired: renew the certificate, or correct the clock of this machine"
            )
        if code == _NOT_YET_VALID:
            return f"the certificate of {where} is not valid yet: correct the clock of this machine or of the server"
        if code in _UNKNOWN_AUTHORITY:
            return f"the certificate of {where} is signed by an unknown authority: configure its CA certificate"
        if code in _WRONG_NAME:
            return (
                f"the certificate of {where} is not valid for {name}: "
                "use a name of the certificate, or set the TLS server name"
            )
        return f"the certificate of {where} is not valid: {error.verify_message}"
    if alert := alert_against_our_certificate(error):
        return f"{where} rejected our client certificate, or requires one ({alert})"
    reason = getattr(error, "reason", None)
    if reason in _NO_COMMON_VERSION:
        return f"{where} supports only TLS versions older than 1.2"
    if reason in _NOT_TLS:
        return f"{where} does not support TLS: perhaps the URL should begin with http://"
    return f"TLS with {where} failed: {(reason or type(error).__name__).replace('_', ' ').lower()}"
