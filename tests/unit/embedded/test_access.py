"""The socket of an embedded cluster: only who has the token, and only under a name of this machine."""

import pytest

from forebay.embedded.server import EmbeddedCluster
from forebay.net.transport import Headers, Request


def request(cluster, host="127.0.0.1:8001", authorization=None):
    given = f"Bearer {cluster.token}" if authorization is None else authorization
    headers = Headers({"Host": host, "Authorization": given})
    return Request(method="GET", url="http://127.0.0.1:8001/api/v1/namespaces", headers=headers)


async def test_every_cluster_has_a_token_of_its_own():
    assert EmbeddedCluster(seed=1).token != EmbeddedCluster(seed=1).token


@pytest.mark.parametrize("host", ["127.0.0.1:8001", "localhost:8001", "LOCALHOST", "[::1]:8001"])
async def test_the_holder_of_the_token_is_let_in(host):
    cluster = EmbeddedCluster()
    assert (await cluster.guarded(request(cluster, host))).status == 200


@pytest.mark.parametrize("authorization", ["", "Bearer ", "Bearer embedded", "Basic eDp5", "Bearer \udcff"])
async def test_nobody_else_is_let_in(authorization):
    cluster = EmbeddedCluster()
    answer = await cluster.guarded(request(cluster, authorization=authorization))
    assert answer.status == 401
    assert b'"reason":"Unauthorized"' in await answer.read()


@pytest.mark.parametrize("host", ["", "evil.example.com:8001", "127.0.0.1.evil.example.com", "[", "localhost@evil.com"])
async def test_a_foreign_name_of_this_machine_is_refused_even_with_the_token(host):
    cluster = EmbeddedCluster()
    assert (await cluster.guarded(request(cluster, host))).status == 403
