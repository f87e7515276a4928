"""PEM certificates and keys of a kubeconfig, validated on load: errors of a TLS library come late and say little."""

import base64
import binascii
from datetime import datetime
from pathlib import Path

import msgspec

from forebay.kube.errors import ConfigError


class ClientCertificate(msgspec.Struct, frozen=True):
    """A certificate chain and its key, both PEM."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        return "ClientCertificate(...)"


def pem(*, data: str, file: str, field: str, where: str, beside: Path) -> bytes | None:
    """The content of `<field>-data`, or else of the file that `<field>` names, as kubectl does it."""
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"{where} has a {field}-data that is not base64; paste it again, on one line") from None
    if not file:
        return None
    path = beside / file
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{where} names {field} {path}, which does not exist") from None
    except OSError as error:
        raise ConfigError(f"{where} names {field} {path}, which cannot be read: {error.strerror or error}") from None


def check_authority(content: bytes, where: str) -> None:
    """Raises `ConfigError` if there is no PEM certificate in `content`."""
    from cryptography import x509  # noqa: PLC0415 (a slow import that in-process clusters never need)

    try:
        x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ConfigError(
            f"{where} holds no PEM certificate; it should hold the cluster's certificate authority"
        ) from None


def client_certificate(chain: bytes, key: bytes, *, where: str, now: datetime) -> ClientCertificate:
    """The certificate and key, after checking that they match and that the certificate is valid at `now`."""
    from cryptography import x509  # noqa: PLC0415 (as above)
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        leaf = x509.load_pem_x509_certificates(chain)[0]
    except ValueError:
        raise ConfigError(f"{where} has a client certificate that is not PEM") from None
    if now > leaf.not_valid_after_utc:
        raise ConfigError(
            f"{where} has a client certificate that expired on {leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; "
            f"fetch a new kubeconfig from the cluster's administrator or tool"
        )
    if now < leaf.not_valid_before_utc:
        raise ConfigError(
            f"{where} has a client certificate that is valid only from {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; "
            "check this machine's clock"
        )
    try:
        private = load_pem_private_key(key, password=None)
    except TypeError:
        raise ConfigError(
            f"{where} has an encrypted client key; Kubernetes clients need it without a password"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{where} has a client key that is not a PEM private key") from None
    if private.public_key() != leaf.public_key():
        raise ConfigError(f"{where} has a client key that does not belong to its client certificate")
    return ClientCertificate(chain, key)
