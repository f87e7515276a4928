"""The same kubectl commands on both servers print the same, names, ages and versions aside."""

import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import needs
from tests.contract.kubectl.scripts import SCRIPTS, pod
from tests.contract.kubectl.transcripts import Step, User, difference, subset
from tests.rig import Tier
from tests.rig.plugin import require
from tests.rig.processes import Process

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="session")
def kubectl() -> Path:
    path = needs.kubectl()
    assert path is not None
    return path


@pytest.fixture(scope="session")
def embedded(tmp_path_factory) -> Path:
    """The kubeconfig of `forebay embedded`, as users start it."""
    directory = tmp_path_factory.mktemp("embedded")
    kubeconfig = directory / "kubeconfig"
    command = [sys.executable, "-m", "forebay", "embedded", "--write-kubeconfig", str(kubeconfig)]
    server = Process("embedded", command, directory)
    server.start()
    try:
        deadline = time.monotonic() + 20
        while not kubeconfig.exists() or not kubeconfig.read_text():
            assert server.pid is not None, server.tail()
            assert time.monotonic() < deadline, server.tail()
            time.sleep(0.02)
        yield kubeconfig
    finally:
        server.stop()


@pytest.fixture(scope="session")
def real(request) -> Path | None:
    try:
        return request.getfixturevalue("rig").admin_kubeconfig
    except pytest.skip.Exception:
        return None


@pytest.fixture(scope="session")
def homes(tmp_path_factory):
    """One per server, for the whole session: kubectl keeps what it discovered there."""
    return {server: tmp_path_factory.mktemp(server) for server in ("embedded", "real")}


def user(kubectl, kubeconfig, home):
    session = User(kubectl, kubeconfig, home, f"k-{secrets.token_hex(3)}")
    session.run([Step("create namespace {ns}"), Step("wait --for=create sa/default --timeout=20s")])
    return session


def compare(kubectl, embedded, real, homes, perform):
    """The transcripts of `perform` on both servers, the real one first."""
    servers = {"real": real, "embedded": embedded} if real is not None else {"embedded": embedded}
    people = [user(kubectl, kubeconfig, homes[server]) for server, kubeconfig in servers.items()]
    with ThreadPoolExecutor() as pool:
        transcripts = list(pool.map(perform, people))
    for session in people:
        session.run([Step("delete namespace {ns} --wait=false", silent=True)])
    if real is None:
        # The commands worked on the embedded server; without a real one their output cannot be compared.
        require(Tier.CLUSTER)
    return transcripts


@pytest.mark.parametrize("script", SCRIPTS)
def test_kubectl_shows_the_same_on_both_servers(kubectl, embedded, real, homes, script):
    on_real, on_embedded = compare(kubectl, embedded, real, homes, lambda session: session.run(SCRIPTS[script]))

    assert difference(on_real, on_embedded) == ""


def test_kubectl_watches_the_same_on_both_servers(kubectl, embedded, real, homes):
    news = [
        Step("create -f -", stdin=pod("b")),
        Step("label pod b tier=one"),
        Step("delete pod b"),
    ]

    def perform(session):
        session.run([Step("create -f -", stdin=pod("a"))])
        return session.watch("get pods -w --output-watch-events", news, lines=6)

    on_real, on_embedded = compare(kubectl, embedded, real, homes, perform)

    assert difference(on_real, on_embedded) == ""
    assert [line.split()[0] for line in on_real[1:]] == ["EVENT", "ADDED", "ADDED", "MODIFIED", "MODIFIED", "DELETED"]


def test_kubectl_finds_no_resource_on_the_embedded_server_that_the_real_one_lacks(kubectl, embedded, real, homes):
    def perform(session):
        return session.run([Step("api-resources --no-headers"), Step("api-versions")])

    on_real, on_embedded = compare(kubectl, embedded, real, homes, perform)

    strangers = subset(on_embedded, on_real)
    assert [line for line in strangers if "forebay.dev" not in line] == []
    for resource in ("pods", "nodes", "jobs", "leases", "events", "poddisruptionbudgets", "customresourcedefinitions"):
        assert any(line.split()[0] == resource for line in on_embedded)
