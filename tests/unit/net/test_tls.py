"""TLS: trusted authorities, client certificates, and clear error messages."""

import asyncio
import socket
import ssl
import threading
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest
import rich.pretty

from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.tls import BadTlsOptions, TlsOptions
from forebay.net.transport import NeverSent, Request
from tests.pki import Authority, in_days
from tests.unit.net.misbehaving import scripted


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@asynccontextmanager
async def https(context, tls):
    async def script(talk):
        await talk.hear()
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with scripted(script, context=context) as server:
        asyncio.get_running_loop().set_exception_handler(
            lambda *_: None
        )  # the server complains about failed handshakes
        wire = AiohttpTransport(tls=tls)

        async def call(host="127.0.0.1"):
            response = await wire.request(Request(method="POST", url=f"https://{host}:{server.port}/x?token=s3cret"))
            return await response.read()

        try:
            yield call
        finally:
            await wire.close()


@pytest.mark.real_time
@pytest.mark.parametrize("terse", [False, True])
async def test_an_authority_that_is_given_is_trusted(tmp_path, terse):
    authority = Authority(terse=terse)
    context = authority.server_context(tmp_path)
    async with https(context, TlsOptions(authority_data=authority.certificate)) as call:
        assert await call() == b"ok"


@pytest.mark.real_time
async def test_an_unknown_authority(authority, tmp_path):
    for tls in (TlsOptions(authority_data=Authority("another").certificate), TlsOptions(), None):
        async with https(authority.server_context(tmp_path), tls) as call:
            with pytest.raises(NeverSent, match="is signed by an unknown authority: configure its CA") as caught:
                await call()
            assert caught.value.lasting
            assert "s3cret" not in str(caught.value)


@pytest.mark.real_time
async def test_an_expired_certificate_and_one_from_the_future(authority, tmp_path):
    tls = TlsOptions(authority_data=authority.certificate)
    expired = authority.server_context(tmp_path, not_before=in_days(-2), not_after=in_days(-1))
    async with https(expired, tls) as call:
        with pytest.raises(NeverSent, match=r"the certificate of 127\.0\.0\.1:\d+ has expired: renew the certificate"):
            await call()
    future = authority.server_context(tmp_path, not_before=in_days(1), not_after=in_days(2))
    async with https(future, tls) as call:
        with pytest.raises(NeverSent, match="is not valid yet: correct the clock"):
            await call()


@pytest.mark.real_time
async def test_a_certificate_for_another_name_is_accepted_with_that_server_name(authority, tmp_path):
    context = authority.server_context(tmp_path, "kubernetes.internal")
    async with https(context, TlsOptions(authority_data=authority.certificate)) as call:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(NeverSent, match=f"is not valid for {host}: use a name of the certificate, or set"):
                await call(host)
    tls = TlsOptions(authority_data=authority.certificate, server_name="kubernetes.internal")
    async with https(context, tls) as call:
        assert await call() == b"ok"
    wrong = TlsOptions(authority_data=authority.certificate, server_name="other.internal")
    async with https(context, wrong) as call:
        with pytest.raises(NeverSent, match=r"is not valid for other\.internal: use a name"):
            await call()


@pytest.mark.real_time
async def test_insecure_accepts_anything(authority, tmp_path):
    expired = authority.server_context(tmp_path, "other", not_before=in_days(-2), not_after=in_days(-1))
    async with https(expired, TlsOptions(insecure=True)) as call:
        assert await call() == b"ok"


@pytest.mark.real_time
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate_is_shown_to_a_server_that_asks_for_one(authority, tmp_path, version):
    clients = Authority("clients")
    certificate, key = clients.client("forebay")
    context = authority.server_context(tmp_path, clients_of=clients, version=version)
    tls = TlsOptions(authority_data=authority.certificate, certificate_data=certificate, key_data=key)
    async with https(context, tls) as call:
        assert await call() == b"ok"


@contextmanager
def rejecting_server(context):
    """A server that rejects with a TLS alert, as Go and OpenSSL do; asyncio just closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                with suppress(ssl.SSLError):
                    context.wrap_socket(connection.dup(), server_side=True).close()
                while connection.recv(65536):  # closing with unread bytes would overtake the alert with a reset
                    pass

        doorman = threading.Thread(target=serve)
        doorman.start()
        yield listener.getsockname()[1]
        doorman.join()


TLS_VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@pytest.mark.real_time
@TLS_VERSIONS
@pytest.mark.parametrize("who", ["nobody", "a stranger", "a ghost"])
async def test_a_rejected_client_certificate_means_never_sent(authority, tmp_path, version, who):
    clients = Authority("clients")
    certificate, key = {
        "nobody": (None, None),
        "a stranger": Authority("strangers").client("forebay"),
        "a ghost": clients.client("forebay", not_before=in_days(-2), not_after=in_days(-1)),
    }[who]
    context = authority.server_context(tmp_path, clients_of=clients, version=version)
    wire = AiohttpTransport(
        tls=TlsOptions(authority_data=authority.certificate, certificate_data=certificate, key_data=key)
    )
    with rejecting_server(context) as port:
        with pytest.raises(NeverSent, match="rejected our client certificate, or requires one") as caught:
            await wire.request(Request(method="POST", url=f"https://127.0.0.1:{port}/"))
        assert caught.value.lasting
        await wire.close()


@pytest.mark.real_time
async def test_a_server_that_closes_the_connection_during_the_handshake(authority, tmp_path):
    context = authority.server_context(tmp_path, clients_of=authority, version=ssl.TLSVersion.TLSv1_2)
    async with https(context, TlsOptions(authority_data=authority.certificate)) as call:
        with pytest.raises(
            NeverSent, match="closed the connection during the TLS handshake: perhaps it requires a client certificate"
        ):
            await call()


def test_unusable_options_say_which_and_why(authority):
    certificate, key = authority.client("forebay")
    _, other_key = authority.client("forebay")
    for options, sentence in [
        ({"authority_data": b"nonsense"}, "the CA data holds no PEM certificate"),
        ({"authority_data": "geheim ü".encode()}, "the CA data holds no PEM certificate"),
        ({"certificate_data": certificate}, "there is a client certificate but no client key"),
        ({"key_data": key}, "there is a client key but no client certificate"),
        (
            {"certificate_data": certificate, "key_data": other_key},
            "the client key does not belong to the client certificate",
        ),
        ({"certificate_data": certificate, "key_data": b"x"}, "the client certificate or key is not PEM"),
    ]:
        with pytest.raises(BadTlsOptions) as caught:
            TlsOptions(**options).client_context()
        assert str(caught.value) == sentence


def test_an_encrypted_key_is_an_error_and_no_password_prompt(authority):
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    certificate, key = authority.client("forebay")
    locked = load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw")
    )
    with pytest.raises(BadTlsOptions, match="encrypted"):
        TlsOptions(certificate_data=certificate, key_data=locked).client_context()


def test_tls_before_1_2_is_disabled():
    assert TlsOptions().client_context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_private_key_is_not_in_any_repr(authority):
    certificate, key = authority.client("forebay")
    options = TlsOptions(certificate_data=certificate, key_data=key, insecure=True)
    for shown in (repr(options), str(options), rich.pretty.pretty_repr(options)):
        assert "PRIVATE" not in shown
        assert "certificate_data, key_data, insecure" in shown
