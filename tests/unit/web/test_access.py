"""Who may read metrics and dashboard, asked of an embedded API server that answers reviews as a real one does."""

import asyncio
import base64
import functools
from http import HTTPStatus

import aiohttp
import msgspec
import pytest

from forebay.embedded.server import EmbeddedCluster
from forebay.kube.client import Client
from forebay.net.in_process import InProcess
from forebay.net.transport import Headers, NeverSent, Request, Response
from forebay.web.access import TokenAccess, for_token_holders
from forebay.web.ports import Address, Ports, serving_ports
from tests.rig.control_plane import free_ports

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SERVER = "http://embedded"


class Reviewed:
    """An embedded cluster with two service accounts: one may read /metrics, one may not."""

    def __init__(self, cluster):
        self.transport = InProcess(cluster.handler)
        self.asked = []
        self.broken = False
        self.client = Client(self, SERVER)

    async def request(self, request):
        self.asked.append(request.url)
        if self.broken:
            raise NeverSent("the API server is away", request)
        return await self.transport.request(request)

    async def close(self):
        await self.transport.close()

    async def post(self, path, body):
        headers = Headers({"Content-Type": "application/json"})
        made = Request(method="POST", url=f"{SERVER}{path}", headers=headers, body=msgspec.json.encode(body))
        response = await self.transport.request(made)
        assert response.ok, await response.read()
        return msgspec.json.decode(await response.read())

    async def account(self, name, *, reads=None):
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await self.post(accounts, {"metadata": {"name": name}})
        if reads:
            rules = [{"nonResourceURLs": [reads], "verbs": ["get"]}]
            await self.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
            subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
            binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
            await self.post(f"{RBAC}/clusterrolebindings", binding)
        return (await self.post(f"{accounts}/{name}/token", {"spec": {}}))["status"]["token"]


def with_reviews(story):
    """The test with an embedded cluster."""

    @functools.wraps(story)
    async def told():
        async with EmbeddedCluster() as cluster:
            await story(Reviewed(cluster))

    del told.__wrapped__
    return told


async def page(_request):
    return Response(200, {}, b"figures")


async def ask(handler, authorization=None):
    headers = Headers({"Authorization": authorization} if authorization else {})
    return await handler(Request(method="GET", url="https://forebay/metrics", headers=headers))


@with_reviews
async def test_only_a_token_whose_user_may_read_the_path_gets_the_page(reviewed):
    prometheus = await reviewed.account("prometheus", reads="/metrics")
    stranger = await reviewed.account("stranger")
    viewer = await reviewed.account("viewer", reads="/forebay/dashboard")
    handler = for_token_holders(page, TokenAccess(reviewed.client, "/metrics"))

    assert (await ask(handler, f"Bearer {prometheus}")).status == 200
    assert (await ask(handler, f"Bearer {stranger}")).status == HTTPStatus.FORBIDDEN
    assert (await ask(handler, f"Bearer {viewer}")).status == HTTPStatus.FORBIDDEN
    for nonsense in (
        None,
        "Bearer ",
        "Bearer nonsense",
        prometheus,
        f"Token {prometheus}",
        "Basic !!",
        "Bearer " + "x" * 20_000,
    ):
        refused = await ask(handler, nonsense)
        assert refused.status == HTTPStatus.UNAUTHORIZED, nonsense
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")


@with_reviews
async def test_a_browser_may_send_the_token_as_a_password(reviewed):
    token = await reviewed.account("viewer", reads="/forebay/dashboard")
    access = TokenAccess(reviewed.client, "/forebay/dashboard")
    password = f"Basic {base64.b64encode(f'anybody:{token}'.encode()).decode()}"

    assert (await ask(for_token_holders(page, access, basic=True), password)).status == 200
    assert (await ask(for_token_holders(page, access), password)).status == HTTPStatus.UNAUTHORIZED
    refused = await ask(for_token_holders(page, access, basic=True))
    assert "Basic realm=" in refused.headers["WWW-Authenticate"]


@with_reviews
async def test_answers_are_remembered_for_some_seconds(reviewed):
    token = await reviewed.account("prometheus", reads="/metrics")
    handler = for_token_holders(page, TokenAccess(reviewed.client, "/metrics"))
    for _ in range(5):
        assert (await ask(handler, f"Bearer {token}")).status == 200
        assert (await ask(handler, "Bearer nonsense")).status == 401
    assert len(reviewed.asked) == 3, "two for the token that is good, one for the other"

    await asyncio.sleep(31)
    assert (await ask(handler, f"Bearer {token}")).status == 200
    assert len(reviewed.asked) == 5


@with_reviews
async def test_nobody_gets_in_while_the_api_server_cannot_be_asked_and_that_is_not_remembered(reviewed):
    token = await reviewed.account("prometheus", reads="/metrics")
    handler = for_token_holders(page, TokenAccess(reviewed.client, "/metrics"))
    reviewed.broken = True
    assert (await ask(handler, f"Bearer {token}")).status == HTTPStatus.SERVICE_UNAVAILABLE
    reviewed.broken = False
    assert (await ask(handler, f"Bearer {token}")).status == 200


@pytest.mark.parametrize(
    ("host", "secure", "served_securely"),
    [
        ("0.0.0.0", None, True),
        ("::", None, True),
        ("10.0.0.7", None, True),
        ("127.0.0.1", None, False),
        ("::1", None, False),
        ("0.0.0.0", False, False),
        ("127.0.0.1", True, True),
    ],
)
def test_metrics_are_plain_on_loopback_only_unless_somebody_asks(host, secure, served_securely):
    ports = Ports(health=Address("0.0.0.0", 8080), metrics=Address(host, 8443), metrics_secure=secure)
    assert ports.secures_metrics is served_securely


def test_the_dashboard_is_never_plain_beyond_loopback():
    for secure in (None, True, False):
        assert Ports(health=Address("::1", 1), web=Address("0.0.0.0", 2), metrics_secure=secure).secures_web


@pytest.mark.real_time
@with_reviews
async def test_metrics_over_https_with_a_certificate_of_their_own(reviewed):
    token = await reviewed.account("prometheus", reads="/metrics")
    found = free_ports("health", "metrics", "web")
    ports = Ports(
        health=Address("127.0.0.1", found["health"]),
        metrics=Address("127.0.0.1", found["metrics"]),
        metrics_secure=True,
        web=Address("127.0.0.1", found["web"]),
    )
    served = serving_ports(
        ports,
        alive=lambda: None,
        ready=lambda: "starting",
        metrics=lambda: (b"forebay_up 1\n", "text/plain"),
        dashboard=page,
        review_client=lambda: reviewed.client,
    )
    async with served, aiohttp.ClientSession() as session:

        async def status(url, **headers):
            async with session.get(url, headers=headers, ssl=False) as answer:
                return answer.status, await answer.text()

        metrics = f"https://127.0.0.1:{found['metrics']}"
        health = f"http://127.0.0.1:{found['health']}"
        assert await status(f"{metrics}/metrics", Authorization=f"Bearer {token}") == (200, "forebay_up 1\n")
        assert (await status(f"{metrics}/metrics"))[0] == 401
        assert (await status(f"{health}/metrics"))[0] == 404
        assert await status(f"{health}/readyz") == (503, "starting\n")
        assert await status(f"http://127.0.0.1:{found['web']}/") == (200, "figures")


@pytest.mark.real_time
async def test_in_plain_http_metrics_may_share_the_port_of_health():
    address = Address("127.0.0.1", free_ports("both")["both"])

    def no_client():
        raise AssertionError("nobody is asked for a token")

    served = serving_ports(
        Ports(health=address, metrics=address),
        alive=lambda: None,
        ready=lambda: None,
        metrics=lambda: (b"forebay_up 1\n", "text/plain"),
        dashboard=page,
        review_client=no_client,
    )
    async with served, aiohttp.ClientSession() as session:
        for path, text in (("healthz", "ok\n"), ("metrics", "forebay_up 1\n")):
            async with session.get(f"http://127.0.0.1:{address.port}/{path}") as answer:
                assert (answer.status, await answer.text()) == (200, text)
