"""A throwaway certificate authority for tests: EC keys, valid around now unless told otherwise."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Pair(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return certificate, key


def in_days(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


class Authority:
    """`terse`: its certificate says only that it is an authority, as those of many clusters do."""

    def __init__(self, name: str = "throwaway-ca", *, terse: bool = False) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        self._terse = terse
        builder = _builder(
            self._name, self._name, self._key, now - timedelta(hours=1), now + timedelta(days=1)
        ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        if not terse:
            builder = builder.add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            ).add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *names: str, not_before: datetime | None = None, not_after: datetime | None = None) -> Pair:
        """A server certificate for these DNS names or addresses."""
        return self._issue(
            names[0], ExtendedKeyUsageOID.SERVER_AUTH, names=names, not_before=not_before, not_after=not_after
        )

    def server_context(
        self,
        folder: Path,
        name: str = "127.0.0.1",
        *,
        clients_of: "Authority | None" = None,
        version: ssl.TLSVersion | None = None,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> ssl.SSLContext:
        """For a server that is `name`; `clients_of` demands a client certificate from that authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.server(name, not_before=not_before, not_after=not_after).write(folder, "server"))
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if clients_of is not None:
            context.load_verify_locations(cadata=clients_of.certificate.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(
        self,
        name: str,
        *,
        groups: tuple[str, ...] = (),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Pair:
        return self._issue(
            name, ExtendedKeyUsageOID.CLIENT_AUTH, groups=groups, not_before=not_before, not_after=not_after
        )

    def _issue(
        self,
        name: str,
        usage: x509.ObjectIdentifier,
        *,
        names: tuple[str, ...] = (),
        groups: tuple[str, ...] = (),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        now = datetime.now(UTC)
        builder = _builder(
            subject, self._name, key, not_before or now - timedelta(hours=1), not_after or now + timedelta(hours=12)
        ).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if not self._terse:
            builder = builder.add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False
            )
        return Pair(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )


def _builder(subject, issuer, key, not_before, not_after) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
