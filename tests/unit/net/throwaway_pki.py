"""Certificates that live for one test run."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority of our own."""

    def __init__(self, name: str = "throwaway") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=30))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, *, starts_in_days: float = -1, ends_in_days: float = 1) -> tuple[bytes, bytes]:
        """A certificate for a host name, an address or a client, and its key, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            alternative: x509.GeneralName = x509.IPAddress(ip_address(name))
        except ValueError:
            alternative = x509.DNSName(name)
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=starts_in_days))
            .not_valid_after(now + timedelta(days=ends_in_days))
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return (
            certificate.public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )

    def server_context(
        self,
        folder: Path,
        name: str = "127.0.0.1",
        *,
        clients_of: "Authority | None" = None,
        starts_in_days: float = -1,
        ends_in_days: float = 1,
        version: ssl.TLSVersion | None = None,
    ) -> ssl.SSLContext:
        """A server that is `name`; `clients_of` demands a client certificate from that authority."""
        certificate, key = self.issue(name, starts_in_days=starts_in_days, ends_in_days=ends_in_days)
        pem = folder / f"server-{abs(hash(certificate))}.pem"
        pem.write_bytes(certificate + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if clients_of is not None:
            context.load_verify_locations(cadata=clients_of.pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context
