"""The certificate of the virtual node's port: signed by the cluster where it signs such, else by its own key.

API servers that check the certificates of kubelets (`--kubelet-certificate-authority`) need the first; to others any
certificate will do. The key exists in memory only: every leader has its own.
"""

import asyncio
import base64
import ipaddress
import secrets
import ssl
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from forebay.api.meta import Object
from forebay.api.names import SERVING_REQUEST_PREFIX, VIRTUAL_NODE
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.kube.resources import Resource
from forebay.model.signing_requests import KUBELET_SERVING_SIGNER
from forebay.net.tls import TlsOptions, server_context
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

_REASON: Final = "VirtualNodeCertificate"
_POLL: Final = 0.2
#: Seconds that the signer gets. It takes milliseconds where there is one.
_PATIENCE: Final = 10.0
#: Validity of a certificate of our own.
_VALIDITY: Final = timedelta(days=365)
#: Part of the life of a certificate after which it is replaced.
_RENEWED_AFTER: Final = 0.8
_SKEW: Final = timedelta(minutes=5)


class ServingRequest(Object, frozen=True):
    """A CertificateSigningRequest, as the one who makes it sees it."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


_REQUESTS: Final = Resource(
    group="certificates.k8s.io",
    version="v1",
    plural="certificatesigningrequests",
    kind="CertificateSigningRequest",
    namespaced=False,
    type=ServingRequest,
)


class ServingCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate with its key, both PEM."""

    certificate: bytes
    key: bytes
    #: When a new one is needed: after most of its life, however short that is.
    renew_at: datetime
    #: Why the cluster has not signed it; None: it has.
    self_signed: str | None = None

    def __repr__(self) -> str:
        return f"ServingCertificate(renew_at={self.renew_at})"

    def context(self, client_authority: bytes) -> ssl.SSLContext:
        """The SSL context of a server whose clients show certificates of that authority, or none."""
        return server_context(
            TlsOptions(authority_data=client_authority, certificate_data=self.certificate, key_data=self.key)
        )


async def serving_certificate(client: Client, address: str, now: datetime) -> ServingCertificate:
    """A certificate for the address, signed by the cluster where that is possible."""
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        signed = await _signed_by_cluster(client, key, address)
        return _certificate(signed, key, now)
    except (KubeError, TransportError, TimeoutError, ValueError) as error:
        why = str(error) or "the request was approved and nobody has signed it"
        log.info("serving certificate not signed by the cluster", node=VIRTUAL_NODE, error=why)
        return _certificate(_signed_by_itself(key, address, now), key, now, why)


async def _signed_by_cluster(client: Client, key: ec.EllipticCurvePrivateKey, address: str) -> bytes:
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject())
        .add_extension(_names(address), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    name = f"{SERVING_REQUEST_PREFIX}-{secrets.token_hex(5)}"
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": KUBELET_SERVING_SIGNER,
        "usages": ["digital signature", "server auth"],
    }
    made = await client.create(_REQUESTS, {"metadata": {"name": name}, "spec": spec})
    sentence = f"Forebay serves the logs of pods on {VIRTUAL_NODE}."
    approval = {"type": "Approved", "status": "True", "reason": _REASON, "message": sentence}
    patch = writes.merge_patch({"metadata": {"uid": made.uid}, "status": {"conditions": [approval]}})
    made = await client.patch(_REQUESTS, name, patch, subresource="approval")
    async with asyncio.timeout(_PATIENCE):
        while not made.status.get("certificate"):
            if any(each.get("type") == "Failed" for each in made.status.get("conditions", ())):
                raise ValueError("the signer of the cluster has refused the request")
            await asyncio.sleep(_POLL)
            made = await client.get(_REQUESTS, name)
    return base64.b64decode(made.status["certificate"])


def _signed_by_itself(key: ec.EllipticCurvePrivateKey, address: str, now: datetime) -> bytes:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject())
        .issuer_name(_subject())
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALIDITY)
        .add_extension(_names(address), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def _certificate(
    signed: bytes, key: ec.EllipticCurvePrivateKey, now: datetime, self_signed: str | None = None
) -> ServingCertificate:
    left = x509.load_pem_x509_certificate(signed).not_valid_after_utc - now
    return ServingCertificate(
        certificate=signed,
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        renew_at=now + left * _RENEWED_AFTER,
        self_signed=self_signed,
    )


def _subject() -> x509.Name:
    # As of any kubelet: the signer insists on it.
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{VIRTUAL_NODE}"),
        ]
    )


def _names(address: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
