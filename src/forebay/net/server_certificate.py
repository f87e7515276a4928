"""Certificates of our own ports: from files that somebody else renews, or made here and signed by themselves."""

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: Longer than any process of ours runs.
_VALID: Final = timedelta(days=365)
_CLOCKS_DIFFER: Final = timedelta(hours=1)


class NoCertificate(ValueError):
    """The files do not hold a certificate and its key. The message says which, and why."""


class SelfSigned(NamedTuple):
    context: ssl.SSLContext
    #: PEM; what clients must trust.
    certificate: str


def self_signed(common_name: str, names: Iterable[str]) -> SelfSigned:
    """A server's TLS context for these host names and addresses, with a new key that exists in memory only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    # By the real clock: TLS knows nothing of simulated time.
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = _context()
    # The ssl module reads keys from files only. Such a directory is readable by its owner alone.
    with tempfile.TemporaryDirectory(prefix="forebay-tls-") as directory:
        path = Path(directory) / "server.pem"
        path.write_bytes(private + public)
        context.load_cert_chain(path)
    return SelfSigned(context, public.decode())


class CertificateFiles:
    """A certificate and its key in files, such as a mounted Secret of cert-manager, read again when they change."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self.context = _context()
        self._read = self._state()
        self._load()

    def reload(self) -> bool:
        """Use what the files hold now, for connections from now on. Returns whether they have changed."""
        state = self._state()
        if state == self._read:
            return False
        self._load()
        self._read = state
        return True

    def _load(self) -> None:
        try:
            self.context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            why = error.strerror or str(error)
            raise NoCertificate(f"{self._certificate} and {self._key} are no certificate with its key: {why}") from None

    def _state(self) -> tuple[tuple[int, int], ...]:
        try:
            found = [os.stat(path) for path in (self._certificate, self._key)]  # noqa: PTH116 (both in one line)
        except OSError as error:
            raise NoCertificate(f"{error.filename} cannot be read: {error.strerror}") from None
        return tuple((each.st_mtime_ns, each.st_ino) for each in found)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
