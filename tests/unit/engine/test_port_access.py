"""Whom the virtual node's port serves: whom the cluster allows, asked again when an answer is old."""

import asyncio

import msgspec
import pytest

from forebay.engine.virtual_node import port_access
from forebay.engine.virtual_node.port_access import PortAccess
from forebay.kube.client import Client
from forebay.net.in_process import InProcess
from forebay.net.transport import PeerCertificate, Response

ANN = PeerCertificate(common_name="ann", organizations=("admins",))


class Reviewer:
    """An API server that reviews access, and the reviews it was asked for."""

    def __init__(self):
        self.allows, self.status, self.asked = True, 201, []

    async def handle(self, request):
        if request.method == "GET":
            return Response(200, body=msgspec.json.encode({"metadata": {"name": "x"}, "data": self.published}))
        self.asked.append(msgspec.json.decode(request.body)["spec"])
        answer = {"metadata": {}, "status": {"allowed": self.allows}}
        return Response(self.status, body=msgspec.json.encode(answer))

    def access(self):
        return PortAccess(Client(InProcess(self.handle), "http://server"))


async def test_the_cluster_is_asked_about_the_user_with_all_groups():
    server = Reviewer()
    assert await server.access().refusal(ANN, "get") is None
    (spec,) = server.asked
    assert (spec["user"], spec["groups"]) == ("ann", ["admins", "system:authenticated"])
    assert spec["resourceAttributes"]["verb"] == "get"
    assert spec["resourceAttributes"]["subresource"] == "proxy"


async def test_a_certificate_without_exactly_one_name_is_refused_unasked():
    server = Reviewer()
    assert "exactly one common name" in await server.access().refusal(PeerCertificate(common_name=""), "get")
    assert server.asked == []


@pytest.mark.parametrize(("allows", "lasts"), [(True, 300), (False, 30)])
async def test_an_answer_holds_for_a_while_and_for_the_same_question_only(allows, lasts):
    server = Reviewer()
    server.allows = allows
    access = server.access()

    async def asked(who=ANN, verb="get"):
        before = len(server.asked)
        refusal = await access.refusal(who, verb)
        assert (refusal is None) is allows
        if not allows:
            assert refusal == f"Forbidden (user={who.common_name}, verb={verb}, resource=nodes, subresource=proxy)"
        return len(server.asked) > before

    assert await asked()
    await asyncio.sleep(lasts - 1)
    assert not await asked()
    await asyncio.sleep(1)
    assert await asked()
    assert await asked(verb="create")
    assert await asked(PeerCertificate(common_name="ann"))


async def test_nobody_may_while_the_cluster_cannot_be_asked_and_that_is_not_remembered(capsys):
    server = Reviewer()
    access = server.access()
    server.status = 500
    told = await access.refusal(ANN, "get")
    assert told == "Forbidden: Forebay could not ask the cluster whether ann may get nodes/proxy."
    assert "access to the virtual node not reviewed" in capsys.readouterr().out
    server.status = 201
    assert await access.refusal(ANN, "get") is None


async def test_only_so_many_answers_are_remembered(monkeypatch):
    monkeypatch.setattr(port_access, "_MOST_REMEMBERED", 2)
    server = Reviewer()
    access = server.access()
    for name in ("a", "b", "a", "b", "c", "a"):
        await access.refusal(PeerCertificate(common_name=name), "get")
    assert [each["user"] for each in server.asked] == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("published", "found"), [({"client-ca-file": "PEM"}, b"PEM"), ({}, None), ({"client-ca-file": ""}, None)]
)
async def test_the_authority_of_client_certificates_is_what_the_api_server_publishes(published, found):
    server = Reviewer()
    server.published = published
    assert await server.access().client_authority() == found
