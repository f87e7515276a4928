"""The certificate of the virtual node's port: signed by the cluster where somebody signs it, else by itself."""

import base64
import json
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from forebay.engine.virtual_node.serving_certificate import serving_certificate
from forebay.kube.client import Client
from forebay.net.clock import now
from forebay.net.in_process import InProcess
from forebay.net.transport import Response

ADDRESS = "10.0.0.7"
KEY = ec.generate_private_key(ec.SECP256R1())
SIGNER = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])


def signed(request, days=30):
    """The certificate that a cluster's signer makes of a request, PEM."""
    asked = x509.load_pem_x509_csr(request)
    made = x509.CertificateBuilder(SIGNER, asked.subject, asked.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now()).not_valid_after(now() + timedelta(days=days))
    return made.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Cluster:
    """Signs an approved request when it is looked at for so many times."""

    def __init__(self, *, looks=0, refuses=False, status=200):
        self.looks, self.refuses, self.status, self.made, self.calls = looks, refuses, status, None, []
        self.client = Client(InProcess(self._answer), "http://server")

    async def _answer(self, request):
        self.calls.append(f"{request.method} {request.url.partition('?')[0].rpartition('/')[2]}")
        if self.status != 200:
            failed = {"kind": "Status", "code": self.status, "reason": "Forbidden", "message": "Not allowed."}
            return Response(self.status, body=json.dumps(failed).encode())
        if request.method == "POST":
            self.made = json.loads(request.body)
            self.made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
            self.made["status"] = {}
            return Response(201, body=json.dumps(self.made).encode())
        if request.method == "PATCH":
            change = json.loads(request.body)
            assert change["metadata"]["uid"] == "u"
            self.made["status"] = change["status"]
        elif self.refuses:
            self.made["status"]["conditions"].append({"type": "Failed", "status": "True"})
        if not self.refuses and self.looks == len([each for each in self.calls if each.startswith("GET")]):
            pem = signed(base64.b64decode(self.made["spec"]["request"]))
            self.made["status"]["certificate"] = base64.b64encode(pem).decode()
        return Response(200, body=json.dumps(self.made).encode())


def names(certificate):
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert not found.critical
    return [str(each) for each in found.value.get_values_for_type(x509.IPAddress)]


@pytest.mark.parametrize("looks", [0, 1, 3])
async def test_the_cluster_signs_what_a_kubelet_would_ask_for(looks):
    cluster, began = Cluster(looks=looks), now()
    made = await serving_certificate(cluster.client, ADDRESS, now())
    assert made.self_signed is None
    found = x509.load_pem_x509_certificate(made.certificate)
    assert found.issuer == SIGNER
    assert found.subject.rfc4514_string() == "CN=system:node:runpod-virtual-node,O=system:nodes"
    spec = cluster.made["spec"]
    assert (spec["signerName"], spec["usages"]) == (
        "kubernetes.io/kubelet-serving",
        ["digital signature", "server auth"],
    )
    assert names(x509.load_pem_x509_csr(base64.b64decode(spec["request"]))) == [ADDRESS]
    assert [each["type"] for each in cluster.made["status"]["conditions"]] == ["Approved"]
    life = found.not_valid_after_utc - began
    assert 0.5 * life < made.renew_at - began < 0.95 * life
    key = serialization.load_pem_private_key(made.key, None)
    assert key.public_key() == found.public_key()
    assert made.certificate.decode() not in repr(made)


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (Cluster(refuses=True), "the signer of the cluster has refused the request"),
        (Cluster(looks=10_000), "the request was approved and nobody has signed it"),
        (Cluster(status=403), "Not allowed"),
    ],
    ids=["refused", "nobody signs", "not allowed"],
)
async def test_where_nobody_signs_it_signs_itself_and_says_why(cluster, why, capsys):
    began = now()
    made = await serving_certificate(cluster.client, ADDRESS, began)
    assert why in made.self_signed
    assert "serving certificate not signed by the cluster" in capsys.readouterr().out
    found = x509.load_pem_x509_certificate(made.certificate)
    found.verify_directly_issued_by(found)
    assert names(found) == [ADDRESS]
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert ([each._name for each in usage.value], usage.critical) == (["serverAuth"], False)
    assert found.not_valid_before_utc < began < made.renew_at < found.not_valid_after_utc
    assert (now() - began).total_seconds() < 120
