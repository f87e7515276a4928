"""From a kubeconfig to authenticated requests: token refresh, client certificates, errors."""

import base64
import json
import ssl

import pytest
import yaml

from forebay.kube import config
from forebay.kube.certificates import ClientCertificate
from forebay.kube.client import Client
from forebay.kube.connection import (
    Authenticating,
    EvictionResponses,
    NoCredentials,
    connect,
    connected_client,
    election_client,
)
from forebay.kube.credentials import Credential, FixedCredential
from forebay.kube.errors import ConfigError, TooManyRequests, Unauthorized
from forebay.kube.eviction import evict_pod
from forebay.net.in_process import InProcess
from forebay.net.rate_budget import RateBudget
from forebay.net.redaction import Redactor
from forebay.net.serve import serving
from forebay.net.transport import Headers, NeverSent, Request, Response
from tests.pki import Authority

GET = Request(method="GET", url="http://server/version", headers=Headers({"Accept": "application/json"}))


class Doorman:
    """A server that accepts one token, with one transport per client certificate that records its close."""

    def __init__(self, accepted: str) -> None:
        self.accepted = accepted
        self.seen: list[str | None] = []
        self.opened: list[ClientCertificate | None] = []
        self.closed = 0

    def open(self, certificate):
        self.opened.append(certificate)
        doorman = self

        class Counted(InProcess):
            async def close(self):
                doorman.closed += 1
                await super().close()

        return Counted(self._handle)

    async def _handle(self, request: Request) -> Response:
        self.seen.append(request.headers.get("Authorization"))
        return Response(200 if self.seen[-1] == self.accepted else 401, body=b"{}")


class Renewable:
    """A sequence of credentials; every 401 moves on to the next."""

    def __init__(self, *row: Credential) -> None:
        self._row = list(row)

    async def current(self) -> Credential:
        return self._row[0]

    async def renewed(self, _rejected: Credential) -> Credential:
        if len(self._row) > 1:
            del self._row[0]
        return self._row[0]


async def test_every_request_has_the_token_and_keeps_its_own_headers():
    door = Doorman("Bearer good")
    transport = Authenticating(FixedCredential(Credential(authorization="Bearer good")), door.open)
    assert (await transport.request(GET)).status == 200
    assert len(door.opened) == 1
    await transport.close()
    assert door.closed == 1
    with pytest.raises(NeverSent, match="closed"):
        await transport.request(GET)


async def test_after_a_401_the_request_is_sent_once_more_with_refreshed_credentials():
    door = Doorman("Bearer new")
    old, new = Credential(authorization="Bearer old"), Credential(authorization="Bearer new")
    transport = Authenticating(Renewable(old, new), door.open)
    assert (await transport.request(GET)).status == 200
    assert door.seen == ["Bearer old", "Bearer new"]


async def test_a_second_401_is_returned_as_is_a_401_without_newer_credentials():
    door = Doorman("Bearer other")
    transport = Authenticating(FixedCredential(Credential(authorization="Bearer wrong")), door.open)
    with pytest.raises(Unauthorized):
        await Client(transport, "http://server").version()
    assert len(door.seen) == 1
    old, new = Credential(authorization="Bearer a"), Credential(authorization="Bearer b")
    assert (await Authenticating(Renewable(old, new), door.open).request(GET)).status == 401
    assert door.seen[1:] == ["Bearer a", "Bearer b"]


async def test_missing_credentials_are_a_config_error_and_a_request_never_sent(tmp_path):
    (tmp_path / "config").write_text(kubeconfig("https://127.0.0.1:1", {"tokenFile": "nowhere"}))
    found = config.load_config(env={}, path=tmp_path / "config")
    transport = connect(found)
    with pytest.raises(NoCredentials, match="nowhere") as caught:
        await transport.request(GET)
    assert isinstance(caught.value, ConfigError)
    assert isinstance(caught.value, NeverSent)
    assert caught.value.lasting
    await transport.close()


async def test_credentials_that_cannot_be_refreshed_after_a_401_say_why():
    class Failing(Renewable):
        async def renewed(self, _rejected: Credential) -> Credential:
            raise ConfigError("the login command failed")

    transport = Authenticating(Failing(Credential(authorization="Bearer old")), Doorman("Bearer new").open)
    with pytest.raises(NoCredentials, match="the login command failed"):
        await transport.request(GET)


async def test_a_new_client_certificate_gets_new_connections_and_the_oldest_are_closed():
    door = Doorman("Bearer never")
    row = [Credential(certificate=ClientCertificate(b"chain", name)) for name in (b"1", b"2", b"3")]
    transport = Authenticating(Renewable(*row), door.open)
    await transport.request(GET)
    assert (len(door.opened), door.closed) == (2, 0)
    await transport.request(GET)
    assert (len(door.opened), door.closed) == (3, 1)
    await transport.close()
    assert door.closed == 3


async def test_a_refused_eviction_does_not_pause_other_requests():
    import asyncio

    cause = {"reason": "DisruptionBudget", "message": "still being processed"}
    refusal = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "no"}
    refusal |= {"details": {"causes": [cause], "retryAfterSeconds": 10}}

    async def handle(request: Request) -> Response:
        if request.method == "GET":
            return Response(200, body=b"{}")
        return Response(429, Headers({"Retry-After": "10", "X-Other": "kept"}), json.dumps(refusal).encode())

    client = Client(RateBudget(EvictionResponses(InProcess(handle)), qps=10, burst=10), "http://server")
    with pytest.raises(TooManyRequests) as caught:
        await evict_pod(client, "p", "ns")
    assert caught.value.by_disruption_budget
    assert caught.value.retry_after == 10
    await client.version()
    assert asyncio.get_running_loop().time() < 1


def kubeconfig(server: str, user: dict, **cluster) -> str:
    return yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": user}],
        }
    )


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def greet(request: Request) -> Response:
    return Response(200, body=b'{"gitVersion": "v1.2.3"}')


def server_side(authority: Authority, folder, *, names=("127.0.0.1",)) -> ssl.SSLContext:
    """A server that requires a client certificate of its own authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server(*names).write(folder, "server"))
    context.load_verify_locations(cadata=authority.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.real_time
async def test_a_client_certificate_is_accepted_by_a_server_that_requires_one(tmp_path):
    authority = Authority()
    me = authority.client("ada")
    async with serving(greet, context=server_side(authority, tmp_path)) as url:
        user = {"client-certificate-data": encoded(me.certificate), "client-key-data": encoded(me.key)}
        (tmp_path / "config").write_text(
            kubeconfig(url, user, **{"certificate-authority-data": encoded(authority.certificate)})
        )
        found = config.load_config(env={}, path=tmp_path / "config")
        for client in (connected_client(found), election_client(found)):
            assert (await client.version()).git_version == "v1.2.3"
            await client.close()


@pytest.mark.real_time
async def test_a_server_of_another_name_is_refused_unless_that_name_is_expected(tmp_path):
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server("kubernetes.default").write(tmp_path, "server"))
    async with serving(greet, context=context) as url:
        trusted = {"certificate-authority-data": encoded(authority.certificate)}
        for extra, accepted in (({}, False), ({"tls-server-name": "kubernetes.default"}, True)):
            (tmp_path / "config").write_text(kubeconfig(url, {"token": "t"}, **trusted, **extra))
            client = connected_client(config.load_config(env={}, path=tmp_path / "config"))
            if accepted:
                assert (await client.version()).git_version == "v1.2.3"
            else:
                with pytest.raises(NeverSent, match="is not valid for"):
                    await client.version()
            await client.close()


@pytest.mark.real_time
async def test_a_server_of_an_unknown_authority_is_refused_unless_checking_is_off(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority().server("127.0.0.1").write(tmp_path, "server"))
    async with serving(greet, context=context) as url:
        other = {"certificate-authority-data": encoded(Authority().certificate)}
        (tmp_path / "strict").write_text(kubeconfig(url, {"token": "t"}, **other))
        (tmp_path / "loose").write_text(kubeconfig(url, {"token": "t"}, **{"insecure-skip-tls-verify": True}))
        strict = connected_client(config.load_config(env={}, path=tmp_path / "strict"))
        with pytest.raises(NeverSent, match="unknown authority"):
            await strict.version()
        loose = connected_client(config.load_config(env={}, path=tmp_path / "loose"))
        assert (await loose.version()).git_version == "v1.2.3"
        await strict.close()
        await loose.close()


@pytest.mark.real_time
async def test_a_refused_connection_is_one_clear_sentence(tmp_path):
    (tmp_path / "config").write_text(kubeconfig("http://127.0.0.1:1", {"token": "t"}))
    client = connected_client(config.load_config(env={}, path=tmp_path / "config"))
    with pytest.raises(NeverSent, match="connection refused by 127"):
        await client.version()
    await client.close()


async def test_a_token_is_redacted_everywhere_once_it_was_used():
    async def answer(_request):
        return Response(200)

    redactor = Redactor()
    credentials = FixedCredential(Credential(authorization="Bearer a-token-of-ours"))
    transport = Authenticating(credentials, lambda _: InProcess(answer), redactor)

    await (await transport.request(Request(method="GET", url="http://server/version"))).read()

    assert redactor.text("the server said: a-token-of-ours is odd") == "the server said: [redacted] is odd"
