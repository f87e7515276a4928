"""CertificateSigningRequests of kubelets: decoding, and approval."""

import base64
import binascii
from datetime import datetime
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from forebay.kube.client import Client
from forebay.kube.decoders import ObjectDecoder
from forebay.kube.resources import Resource
from forebay.kube.writes import merge_patch
from forebay.model.signing_requests import SigningRequest

_NODE_USER: Final = "system:node:"
_NODES_GROUP: Final = "system:nodes"
#: Usages of a kubelet's client certificate; RSA keys may also ask for key encipherment.
_USAGES: Final = frozenset({"digital signature", "client auth"})
_OPTIONAL_USAGES: Final = frozenset({"key encipherment"})


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str
    uid: str
    resource_version: str
    creation_timestamp: datetime


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    request: str
    username: str = ""
    usages: tuple[str, ...] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str
    status: str = "True"
    reason: str = ""


class _Status(msgspec.Struct, gc=False):
    conditions: tuple[_Condition, ...] | None = None


class _RequestOnWire(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


def _build(wire: _RequestOnWire) -> SigningRequest:
    subject = _subject(wire.spec)
    conditions = {each.type: each for each in wire.status.conditions or () if each.status == "True"}
    approved = conditions.get("Approved")
    return SigningRequest(
        name=wire.metadata.name,
        uid=wire.metadata.uid,
        resource_version=int(wire.metadata.resource_version),
        created=wire.metadata.creation_timestamp,
        username=wire.spec.username,
        node_name=subject.node_name,
        malformed=subject.malformed,
        public_key=subject.public_key,
        approved=approved is not None,
        approval_reason=approved.reason if approved is not None else None,
        closed="Denied" in conditions or "Failed" in conditions,
    )


class SigningRequestDecoder(ObjectDecoder[_RequestOnWire, SigningRequest]):
    """Decodes requests. One whose PKCS#10 part cannot be read is malformed, never an error."""

    def __init__(self) -> None:
        super().__init__(_RequestOnWire, _build)


SIGNING_REQUESTS = Resource(
    group="certificates.k8s.io",
    version="v1",
    plural="certificatesigningrequests",
    kind="CertificateSigningRequest",
    namespaced=False,
    type=SigningRequest,
    make_decoder=SigningRequestDecoder,
)


class _Subject(msgspec.Struct, frozen=True, kw_only=True):
    node_name: str | None = None
    malformed: str | None = None
    public_key: str = ""


def _subject(spec: _Spec) -> _Subject:
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(spec.request, validate=True))
        key = request.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        common_names = _values(request.subject, NameOID.COMMON_NAME)
        organizations = _values(request.subject, NameOID.ORGANIZATION_NAME)
        others = [each for each in request.extensions if each.oid != x509.OID_KEY_USAGE]
        signed = request.is_signature_valid
    except (ValueError, TypeError, binascii.Error, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        return _Subject(malformed=f"its PKCS#10 request cannot be read ({type(error).__name__})")
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key)
    node_name = (
        common_names[0].removeprefix(_NODE_USER)
        if len(common_names) == 1 and common_names[0].startswith(_NODE_USER)
        else None
    )
    usages = frozenset(spec.usages or ())
    malformed = (
        "its signature does not match its key"
        if not signed
        else f"its common name is not {_NODE_USER}<node>"
        if not node_name
        else f"its organization is not {_NODES_GROUP}"
        if organizations != [_NODES_GROUP]
        else f"it asks for extensions, such as {others[0].oid.dotted_string}"
        if others
        else f"its usages are {', '.join(sorted(usages)) or 'empty'}"
        if not _USAGES <= usages <= _USAGES | _OPTIONAL_USAGES
        else None
    )
    return _Subject(node_name=node_name, malformed=malformed, public_key=digest.finalize().hex())


def _values(name: x509.Name, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in name.get_attributes_for_oid(oid)]


async def approve(client: Client, request: SigningRequest, reason: str, sentence: str) -> SigningRequest:
    """Approves the request as it was read. Raises `Conflict` where it has changed since."""
    approval = {"type": "Approved", "status": "True", "reason": reason, "message": sentence}
    patch = merge_patch(
        {
            "metadata": {"uid": request.uid, "resourceVersion": str(request.resource_version)},
            "status": {"conditions": [approval]},
        }
    )
    return await client.patch(SIGNING_REQUESTS, request.name, patch, subresource="approval")
