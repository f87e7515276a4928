"""A certificate for a socket on this machine, made when it is opened and trusted by its kubeconfig alone.

kubectl sends no token over plain HTTP.
"""

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: Longer than any process of this kind runs.
_VALID: Final = timedelta(days=365)
_CLOCKS_DIFFER: Final = timedelta(hours=1)


def loopback_context() -> tuple[ssl.SSLContext, str]:
    """A server's TLS context for 127.0.0.1 and localhost, and the certificate that clients must trust, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forebay-embedded")])
    # By the real clock: TLS knows nothing of simulated time.
    now = datetime.now(UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The ssl module reads keys from files only. Such a directory is readable by its owner alone.
    with tempfile.TemporaryDirectory(prefix="forebay-embedded-") as directory:
        path = Path(directory) / "server.pem"
        path.write_bytes(private + public)
        context.load_cert_chain(path)
    return context, public.decode()
