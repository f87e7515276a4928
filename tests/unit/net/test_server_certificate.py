"""Certificates of our own ports: made in memory, or read from files that may change."""

import ssl

import pytest

from forebay.net.server_certificate import CertificateFiles, NoCertificate, self_signed
from tests.pki import Authority


def presented(server, client, name):
    """The certificate that a client is shown, in DER. Raises where it does not trust it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(10):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return theirs.getpeercert(binary_form=True)


def trusting(authority):
    return ssl.create_default_context(cadata=authority.decode() if isinstance(authority, bytes) else authority)


@pytest.mark.parametrize("name", ["forebay.example", "127.0.0.1"])
def test_a_certificate_of_ones_own_holds_for_its_names_and_no_others(name):
    made = self_signed("forebay", ["forebay.example", "127.0.0.1"])
    assert presented(made.context, trusting(made.certificate), name)
    with pytest.raises(ssl.SSLCertVerificationError):
        presented(made.context, trusting(made.certificate), "other.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        presented(made.context, trusting(self_signed("forebay", [name]).certificate), name)


@pytest.fixture
def authority():
    return Authority()


def test_the_certificate_of_files_is_shown_and_after_a_change_the_new_one(tmp_path, authority):
    client = trusting(authority.certificate)
    certificate, key = authority.server("forebay.example").write(tmp_path, "tls")
    files = CertificateFiles(certificate, key)
    first = presented(files.context, client, "forebay.example")
    assert not files.reload()
    assert presented(files.context, client, "forebay.example") == first

    new = tmp_path / "new"
    new.mkdir()
    for old, written in zip((certificate, key), authority.server("forebay.example").write(new, "tls"), strict=True):
        written.replace(old)
    assert files.reload()
    assert presented(files.context, client, "forebay.example") != first
    assert not files.reload()


def test_files_that_are_missing_or_do_not_belong_together_are_named(tmp_path, authority):
    certificate, key = authority.server("forebay.example").write(tmp_path, "tls")
    _, other = authority.server("forebay.example").write(tmp_path, "other")
    with pytest.raises(NoCertificate, match=r"absent\.key cannot be read: No such file or directory"):
        CertificateFiles(certificate, tmp_path / "absent.key")
    with pytest.raises(NoCertificate, match="are no certificate with its key: "):
        CertificateFiles(certificate, other)
    files = CertificateFiles(certificate, key)
    certificate.write_text("nothing")
    with pytest.raises(NoCertificate, match=r"tls\.crt and .*tls\.key are no certificate with its key"):
        files.reload()
    with pytest.raises(NoCertificate):
        files.reload()
