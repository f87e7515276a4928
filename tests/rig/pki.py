"""A certificate authority that lives as long as one control plane."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=7)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


class Authority:
    """Signs server and client certificates. Kept in a directory, so that another process can go on signing."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, directory: Path) -> None:
        self._certificate = certificate
        self._key = key
        self.directory = directory

    @property
    def certificate_file(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def key_file(self) -> Path:
        return self.directory / "ca.key"

    @classmethod
    def create(cls, directory: Path) -> "Authority":
        directory.mkdir(mode=0o700, parents=True)
        key = new_key()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forebay-rig")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        authority = cls(certificate, key, directory)
        authority.certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        authority.key_file.write_bytes(key_pem(key))
        return authority

    @classmethod
    def load(cls, directory: Path) -> "Authority":
        certificate = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
        key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(certificate, key, directory)

    def issue(
        self, user: str, groups: Sequence[str] = (), names: Sequence[str] = (), lifetime: timedelta = LIFETIME
    ) -> tuple[bytes, bytes]:
        """Certificate and key in PEM: for a client, or with `names` (DNS names, addresses) for a server as well."""
        key = new_key()
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
        builder = (
            _builder(subject, self._certificate.subject, key, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), key_pem(key)

    def write(self, stem: str, user: str, groups: Sequence[str] = (), names: Sequence[str] = ()) -> tuple[Path, Path]:
        """The same, as files `<stem>.crt` and `<stem>.key`."""
        certificate, key = self.issue(user, groups, names)
        paths = (self.directory / f"{stem}.crt", self.directory / f"{stem}.key")
        paths[0].write_bytes(certificate)
        paths[1].write_bytes(key)
        return paths


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta = LIFETIME
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + lifetime)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
