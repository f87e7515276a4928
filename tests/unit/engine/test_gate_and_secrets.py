"""What is looked at again from time to time: the admission policies of budgets, and Secrets that a join needs."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest

from forebay.engine.gate import GateWatch
from forebay.engine.sources.secrets import REREAD_AFTER, JoinSecrets, TrackedSecrets
from forebay.kube.client import Client
from forebay.kube.secrets import SecretData
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.transport import Response
from forebay.providers.secrets import SecretsUnavailable, UnusableSecret

POLICIES, BINDINGS = "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"
NOT_FOUND = b'{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}'
FORBIDDEN = b'{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}'


class PolicyServer:
    """An API server that serves some versions of the policies, of which one may be installed."""

    def __init__(self, *served, installed=None, status=None, lost=None, forbidden=None):
        self.served, self.installed, self.status, self.asked = served, installed, status, 0
        #: Kinds of which the installed object was deleted, or may not be read.
        self.lost, self.forbidden = lost, forbidden

    async def handle(self, request):
        self.asked += 1
        if self.status is not None:
            return Response(self.status, body=FORBIDDEN if self.status == 403 else b"")
        path = request.url.removeprefix("http://server/apis/admissionregistration.k8s.io/")
        version, _, rest = path.partition("/")
        if rest:
            kind = rest.partition("/")[0]
            if kind == self.forbidden:
                return Response(403, body=FORBIDDEN)
            found = version == self.installed and kind != self.lost
            return Response(200, body=b'{"metadata": {"name": "x"}}') if found else Response(404, body=NOT_FOUND)
        if version not in self.served:
            return Response(404, body=NOT_FOUND)
        names = [{"name": BINDINGS, "kind": "x", "namespaced": False, "verbs": []}]
        return Response(200, body=msgspec.json.encode({"groupVersion": path, "resources": names}))


class Watched:
    def __init__(self, server, budgets=(1,)):
        self.server, self.woken, self.there = server, 0, list(budgets)
        views = SimpleNamespace(
            budgets=SimpleNamespace(values=lambda: self.there), wake=SimpleNamespace(set=self._wake)
        )
        self.gate = GateWatch(Client(InProcess(server.handle), "http://server"), views)

    def _wake(self):
        self.woken += 1

    async def after(self, seconds):
        running = asyncio.ensure_future(self.gate.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait({running})
        return self.gate.missing


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (PolicyServer("v1", installed="v1"), None),
        (PolicyServer("v1beta1", installed="v1beta1"), None),
        (PolicyServer("v1", "v1beta1"), "--budget-policies v1 |"),
        (PolicyServer("v1beta1"), "--budget-policies v1beta1 |"),
        (PolicyServer(), "serves no MutatingAdmissionPolicies"),
        (PolicyServer("v1", installed="v1", lost=BINDINGS), "--budget-policies v1 |"),
        (PolicyServer("v1", installed="v1", lost=POLICIES), "--budget-policies v1 |"),
        (PolicyServer(status=403), None),
        (PolicyServer("v1", installed="v1", forbidden=POLICIES), None),
    ],
    ids=[
        "v1",
        "v1beta1",
        "not installed",
        "beta not installed",
        "not served",
        "policy without binding",
        "binding without policy",
        "may not know",
        "may not know the policy",
    ],
)
async def test_what_keeps_new_pods_from_being_held_is_told_with_what_to_do(server, words):
    watched = Watched(server)
    missing = await watched.after(1)
    assert (missing is None) if words is None else (words in missing)
    assert watched.woken == (0 if words is None else 1), "only a change wakes the loop"


async def test_policies_are_looked_at_again_every_five_minutes_and_a_change_is_told(capsys):
    watched = Watched(PolicyServer("v1"))
    running = asyncio.ensure_future(watched.gate.run())
    await asyncio.sleep(299)
    watched.server.installed = "v1"
    assert watched.gate.missing is not None
    await asyncio.sleep(2)
    assert (watched.gate.missing, watched.woken) == (None, 2)
    said = capsys.readouterr().out
    assert "new pods not held" in said
    assert "new pods held" in said
    watched.server.status = 500
    await asyncio.sleep(300)
    assert (watched.gate.missing, watched.woken) == (None, 2), "what is known stays"
    assert "admission policies not checked" in capsys.readouterr().out
    running.cancel()


async def test_nobody_is_asked_while_there_is_no_budget():
    watched = Watched(PolicyServer("v1"), budgets=())
    await watched.after(60)
    assert watched.server.asked == 0
    watched.there.append(1)
    assert await watched.after(1) is not None


class Secrets:
    """Secrets by name: data, or the error of reading it."""

    def __init__(self, **found):
        self.found, self.read = found, 0

    async def get(self, _namespace, name):
        self.read += 1
        answer = self.found[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


def secret(version):
    made = SecretData({"key": b"x"})
    made.version = version
    return made


async def test_the_versions_of_secrets_that_a_source_has_read_are_noted():
    versions = {}
    found = Secrets(a=secret("7"), b=UnusableSecret("gone"), c=SecretsUnavailable("away"), d={})
    reader = TrackedSecrets(found, versions)
    assert (await reader.get("f", "a"))["key"] == b"x"
    with pytest.raises(UnusableSecret):
        await reader.get("f", "b")
    with pytest.raises(SecretsUnavailable):
        await reader.get("f", "c")
    await reader.get("f", "d")
    assert versions == {"Secret f/a": "7", "Secret f/b": "unusable"}


async def test_after_a_failed_join_a_corrected_secret_wakes_the_loop_once():
    store, woken = Secrets(key=UnusableSecret("empty"), other=SecretsUnavailable("away")), []
    secrets = JoinSecrets(store, lambda: woken.append(1), clock.now)
    for name in ("key", "other"):
        with pytest.raises((UnusableSecret, SecretsUnavailable)):
            await secrets.get("f", name)
    running = asyncio.ensure_future(secrets.run())
    await asyncio.sleep(3 * REREAD_AFTER + 1)
    assert store.read == 2, "nothing has failed"
    secrets.failed()
    await asyncio.sleep(REREAD_AFTER)
    assert (store.read, woken) == (4, []), "read again, and not corrected yet"
    store.found["key"] = secret("8")
    await asyncio.sleep(REREAD_AFTER)
    assert (woken, secrets.versions["Secret f/key"]) == ([1], "8")
    before = store.read
    await asyncio.sleep(3 * REREAD_AFTER)
    assert (store.read, woken) == (before, [1])
    running.cancel()


async def test_secrets_are_not_read_for_ever_after_a_failed_join():
    times = [datetime(2030, 1, 1, tzinfo=UTC)]
    store = Secrets(key=secret("1"))
    secrets = JoinSecrets(store, lambda: None, lambda: times[0])
    await secrets.get("f", "key")
    secrets.failed()
    running = asyncio.ensure_future(secrets.run())
    times[0] += timedelta(days=1)
    await asyncio.sleep(3 * REREAD_AFTER)
    assert store.read == 1
    running.cancel()
