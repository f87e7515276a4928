"""Certificates of nodes: only the machine that was launched for a node gets its certificate."""

from msgspec.structs import replace

from forebay.api.gpu_instance import ResourceLifetime, SecondaryResource
from forebay.lifecycle.node_certificates import ApproveCertificate, ReportMisuse, certificate_decisions
from forebay.model.signing_requests import SigningRequest
from tests.unit.lifecycle.builders import NOW, R, S, node, record, seconds

TOKEN = SecondaryResource(kind="BootstrapToken", name="abc123", until=ResourceLifetime.JOINED, attempt=1)


def launched(state=S.LAUNCHED, **fields):
    return record(state, secondary_resources=(TOKEN,), **fields)


def request(name="csr-1", *, token="abc123", of="pool-abc", key="key-1", after=0, **fields):
    return SigningRequest(
        name=name,
        uid=f"uid-{name}",
        resource_version=5,
        created=NOW + seconds(after),
        username=f"system:bootstrap:{token}",
        node_name=of,
        public_key=key,
        **fields,
    )


def decided(of, *requests, nodes=()):
    return certificate_decisions([of], requests, {each.name: each for each in nodes}, NOW)


def with_status(of, status):
    return type(of)(metadata=of.metadata, spec=of.spec, status=status)


def test_the_expected_node_gets_its_certificate():
    for state in (S.LAUNCHED, S.LAUNCHING):
        (approval,) = decided(launched(state), request())
        assert isinstance(approval, ApproveCertificate)
        assert approval.request.name == "csr-1"
        assert approval.reason is R.NODE_CERTIFICATE_APPROVED


def test_requests_with_other_credentials_are_not_ours_to_judge():
    strangers = (
        request(token="zzz999"),
        replace(request(), username="system:node:pool-abc"),
        replace(request(), username="system:serviceaccount:team:abc123"),
    )
    assert decided(launched(), *strangers) == []


def test_another_name_is_never_approved_and_is_reported_once():
    of = launched()

    (report,) = decided(of, request(of="control-plane-1"))

    assert isinstance(report, ReportMisuse)
    assert report.reason is R.NODE_IDENTITY_MISMATCH
    assert "csr-1 is for the certificate of node control-plane-1, not pool-abc. Forebay did not approve it." in (
        report.sentence
    )
    assert decided(with_status(of, report.status), request(of="control-plane-1")) == []


def test_a_misuse_does_not_keep_the_right_machine_out():
    wrong, right = request(of="other"), request("csr-2", after=1)

    report, approval = decided(launched(), wrong, right)

    assert isinstance(report, ReportMisuse)
    assert isinstance(approval, ApproveCertificate)
    assert approval.request.name == "csr-2"


def test_a_request_for_more_than_a_kubelet_needs_is_reported():
    (report,) = decided(launched(), request(malformed="its organization is not system:nodes"))
    assert isinstance(report, ReportMisuse)
    assert "its organization is not system:nodes" in report.sentence


def test_two_machines_cannot_both_have_the_name():
    first = request(approved=True, approval_reason="NodeCertificateApproved")
    second = request("csr-2", key="key-2", after=30)

    (report,) = decided(launched(), first, second)

    assert isinstance(report, ReportMisuse)
    assert "from a second machine" in report.sentence


def test_a_kubelet_that_restarts_asks_again_with_its_own_key():
    first = request(approved=True, approval_reason="NodeCertificateApproved")

    (approval,) = decided(launched(), first, request("csr-2", after=30))

    assert isinstance(approval, ApproveCertificate)
    assert approval.request.name == "csr-2"


def test_a_machine_that_is_not_expected_any_more_gets_none():
    for state in (S.JOINED, S.READY, S.DRAINING, S.TERMINATING, S.GONE):
        assert decided(launched(state), request()) == []
    assert decided(launched(deleting=True), request()) == []
    assert decided(launched(), request(closed=True)) == []


def test_where_the_cluster_approves_everybody_a_stranger_is_cordoned():
    approved = request(of="stranger", approved=True, approval_reason="AutoApproved")

    (report,) = decided(launched(), approved, nodes=[node("stranger")])

    assert [each.name for each in report.nodes] == ["stranger"]
    assert "The cluster approved it by itself (AutoApproved)." in report.sentence
    later = with_status(launched(), report.status)
    assert decided(later, approved, nodes=[node("stranger", users_cordon=True)]) == []
    (again,) = decided(later, approved, nodes=[node("stranger")])
    assert again.nodes, "somebody took the cordon off, or the write failed"


def test_many_misuses_are_one_report():
    of = launched()
    flood = [request(f"csr-{i}", of=f"n{i}", after=i) for i in range(50)]

    (report,) = decided(of, *flood)

    assert "More such requests: 49." in report.sentence
    assert decided(with_status(of, report.status), *flood) == []
