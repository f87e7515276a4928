"""What a kubelet asks for when it joins: a key, and a request for the client certificate of its node."""

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

USAGES = ("digital signature", "client auth")


def new_key():
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def pkcs10(node, key, *, user=None, organizations=("system:nodes",), names=()):
    """The PEM of a request; `user` replaces the common name, `names` are alternative names."""
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user or f"system:node:{node}")]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False
        )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def signing_request(name, request, *, usages=USAGES, expiration=3600):
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": list(usages),
            "expirationSeconds": expiration,
        },
    }
