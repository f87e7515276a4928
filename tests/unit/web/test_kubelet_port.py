"""The port of the virtual node: what it is asked, and what it answers to whom."""

from datetime import UTC, datetime, timedelta

import pytest

from forebay.net.transport import PeerCertificate, Request
from forebay.offload.log_view import LogQuery, LogRefused
from forebay.web.kubelet_port import kubelet_port, log_query

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
API_SERVER = PeerCertificate(common_name="kube-apiserver", organizations=("system:masters",))
READER = PeerCertificate(common_name="reader")


async def ask(path, method="GET", client=API_SERVER):
    asked = []

    async def open_log(namespace, pod, container, query):
        if pod == "waiting":
            raise LogRefused("container is waiting to start", 400)
        asked.append((namespace, pod, container, query))

        async def lines():
            yield b"a\n"

        return lines()

    async def refusal(who, verb):
        return None if who == API_SERVER or verb == "get" else f"{who.common_name} may not {verb}"

    def unsupported(command, namespace, pod):
        return f"{command} of {namespace}/{pod} is not supported"

    handler = kubelet_port(open_log=open_log, refusal=refusal, unsupported=unsupported, clock=lambda: NOW)
    response = await handler(Request(method=method, url=f"https://10.0.0.1:10250{path}", client=client))
    return response.status, (await response.read()).decode(), asked


async def test_a_log_is_opened_with_the_options_of_the_query():
    status, text, asked = await ask("/containerLogs/ns/p%2Dod/main?follow=true&tailLines=5&timestamps=true")

    assert (status, text) == (200, "a\n")
    assert asked == [("ns", "p-od", "main", LogQuery(follow=True, tail=5, timestamps=True))]


async def test_a_refused_log_says_why():
    assert (await ask("/containerLogs/ns/waiting/main"))[:2] == (400, "container is waiting to start\n")


@pytest.mark.parametrize(
    ("path", "command"),
    [("/exec/a/b/c?command=ls", "exec"), ("/attach/a/b/c", "attach"), ("/portForward/a/b", "port-forward")],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_a_remote_container_cannot_do_is_said(path, command, method):
    assert (await ask(path, method))[:2] == (501, f"kubectl {command} of a/b is not supported\n")


async def test_everything_needs_a_certificate_and_a_permission():
    assert (await ask("/containerLogs/a/b/c", client=None))[0] == 401
    assert (await ask("/anything", client=None))[0] == 401
    assert (await ask("/containerLogs/a/b/c", client=READER))[0] == 200
    # Also where it comes as a GET, as of a WebSocket: to execute is to create.
    assert (await ask("/exec/a/b/c", client=READER))[0] == 403


@pytest.mark.parametrize("path", ["/", "/pods", "/containerLogs/a/b", "/containerLogs/a/b/c/d", "/metrics"])
async def test_a_virtual_node_has_no_other_pages(path):
    assert (await ask(path))[0] == 404


def test_times_of_a_query():
    assert log_query("sinceSeconds=60", NOW).since == NOW - timedelta(minutes=1)
    assert log_query("sinceTime=2026-11-17T11%3A00%3A00Z", NOW).since == NOW - timedelta(hours=1)
    assert log_query("sinceSeconds=99999999999999", NOW).since is None


@pytest.mark.parametrize(
    "query", ["tailLines=x", "sinceSeconds=-1", "sinceTime=yesterday", "limitBytes=1e3", f"tailLines={'9' * 5000}"]
)
def test_an_option_that_cannot_be_read_is_refused(query):
    with pytest.raises(LogRefused, match="is not a"):
        log_query(query, NOW)
