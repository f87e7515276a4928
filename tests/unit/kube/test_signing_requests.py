"""Requests for kubelets' certificates, as they are on the wire."""

import msgspec
import pytest

from forebay.kube.signing_requests import SigningRequestDecoder
from tests.kubelets import new_key, pkcs10, signing_request

KEY = new_key()


def decoded(request, *, username="system:bootstrap:abc123", conditions=None, **fields):
    manifest = signing_request("csr-1", request, **fields)
    manifest["metadata"] |= {"uid": "u", "resourceVersion": "7", "creationTimestamp": "2030-01-01T12:00:00Z"}
    manifest["spec"]["username"] = username
    manifest["status"] = {"conditions": conditions} if conditions else {}
    return SigningRequestDecoder().object(msgspec.json.encode(manifest))


def test_a_kubelets_request_is_well_formed():
    request = decoded(pkcs10("gpu-1", KEY))

    assert (request.node_name, request.malformed, request.token_id) == ("gpu-1", None, "abc123")
    assert request.public_key == decoded(pkcs10("gpu-2", KEY)).public_key
    assert request.public_key != decoded(pkcs10("gpu-1", new_key())).public_key
    assert (
        decoded(pkcs10("gpu-1", KEY), usages=("digital signature", "client auth", "key encipherment")).malformed is None
    )
    assert decoded(pkcs10("gpu-1", KEY), username="system:node:gpu-1").token_id is None


@pytest.mark.parametrize(
    ("request_", "fields", "why"),
    [
        (pkcs10("n", KEY, user="system:admin"), {}, "common name"),
        (pkcs10("", KEY), {}, "common name"),
        (pkcs10("n", KEY, organizations=("system:masters",)), {}, "organization"),
        (pkcs10("n", KEY, organizations=("system:nodes", "system:masters")), {}, "organization"),
        (pkcs10("n", KEY, organizations=()), {}, "organization"),
        (pkcs10("n", KEY, names=("kubernetes.default",)), {}, "extensions"),
        (pkcs10("n", KEY), {"usages": ("server auth", "digital signature")}, "usages"),
        (pkcs10("n", KEY), {"usages": ("client auth",)}, "usages"),
        (pkcs10("n", KEY), {"usages": ()}, "usages"),
        (b"not PEM at all", {}, "cannot be read"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", {}, "cannot be read"),
    ],
)
def test_anything_else_is_malformed(request_, fields, why):
    assert why in decoded(request_, **fields).malformed


def test_the_state_of_a_request():
    approved = decoded(pkcs10("n", KEY), conditions=[{"type": "Approved", "status": "True", "reason": "AutoApproved"}])
    assert (approved.approved, approved.approval_reason, approved.closed) == (True, "AutoApproved", False)
    for end in ("Denied", "Failed"):
        assert decoded(pkcs10("n", KEY), conditions=[{"type": end, "status": "True"}]).closed
