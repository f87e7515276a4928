"""Law: whatever faults happen, the informer converges to the state of the server and reports every deletion."""

import asyncio
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.embedded.api.bootstrap import open_store
from forebay.embedded.api.handler import ApiHandler
from forebay.kube.backoff import Backoff
from forebay.kube.decoders import decoder_for
from forebay.kube.index import Indexes
from forebay.kube.informer import Informer
from forebay.kube.pod_indexes import (
    BY_NODE,
    BY_OWNER,
    DAEMONS_TO_COME,
    MARKED,
    PENDING_CLAIMS,
    PENDING_GPU,
    TOLD_BUT_BOUND,
    pod_indexes,
)
from forebay.kube.pods import PODS
from forebay.kube.view import Added, Deleted, Updated
from forebay.net.in_process import InProcess
from forebay.net.transport import Headers, Request
from forebay.simulate.virtual_time import run
from tests.unit.kube.api_server_model import URL, ModelServer, Network

NAMES = ("a", "b", "c")


class Model:
    """The cluster, simulated by the model server."""

    def __init__(self, **options) -> None:
        self.handler = ModelServer(**options)

    def state(self) -> dict[str, tuple[str, int]]:
        return {name: _identity(pod) for name, pod in self.handler.pods.items()}

    async def write(self, what: str, name: str) -> tuple[dict, bool]:
        """The written object, and whether the write was a deletion; None if there was nothing to delete."""
        if name not in self.handler.pods:
            return self.handler.create(name), False
        if what == "delete":
            return self.handler.delete(name), True
        return self.handler.update(name, nodeName=f"node-{self.handler.version}"), False

    def compact(self) -> None:
        self.handler.compact()

    def lose_watch_list(self) -> None:
        self.handler.watch_list = False


class Embedded:
    """The cluster, on the embedded API server."""

    def __init__(self) -> None:
        self._store = open_store(seed=1)
        self.handler = ApiHandler(self._store)

    def state(self) -> dict[str, tuple[str, int]]:
        pods = self._store.list(self._store.kinds.at("", "v1", "pods"), "default")
        return {pod["metadata"]["name"]: _identity(pod) for pod in pods}

    async def write(self, what: str, name: str) -> tuple[dict, bool]:
        if name not in self.state():
            spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
            return await self._call("POST", "", {"metadata": {"name": name}, "spec": spec}), False
        if what == "delete":
            return await self._call("DELETE", f"/{name}?gracePeriodSeconds=0", None), True
        change = {"metadata": {"labels": {"at": str(self._store.version)}}}
        return await self._call("PATCH", f"/{name}", change), False

    async def _call(self, method: str, path: str, sent: dict | None) -> dict:
        headers = Headers({"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"})
        request = Request(
            method=method,
            url=f"{URL}/api/v1/namespaces/default/pods{path}",
            headers=headers,
            body=None if sent is None else json.dumps(sent).encode(),
        )
        response = await self.handler(request)
        body = await response.read()
        assert response.ok, body
        return json.loads(body)

    def compact(self) -> None:
        self._store.compact()

    def lose_watch_list(self) -> None:
        """Not supported by the embedded API server."""


def _identity(pod: dict) -> tuple[str, int]:
    return pod["metadata"]["uid"], int(pod["metadata"]["resourceVersion"])


class Witness:
    """A subscriber that rebuilds the state from changes alone and checks that each change follows from the last."""

    def __init__(self) -> None:
        self.seen: dict = {}
        self.added: set[str] = set()
        self.deleted: set[str] = set()

    def __call__(self, change) -> None:
        match change:
            case Added(new):
                assert new.key not in self.seen, "added twice"
                assert new.uid not in self.added, "a uid came back"
                self.seen[new.key] = new
                self.added.add(new.uid)
            case Updated(old, new):
                assert self.seen[new.key] is old
                assert old.uid == new.uid
                assert old.resource_version < new.resource_version
                self.seen[new.key] = new
            case Deleted(old, last):
                assert self.seen.pop(old.key) is old
                assert old.uid == last.uid
                assert old.uid not in self.deleted, "deleted twice"
                self.deleted.add(old.uid)


_write = st.tuples(
    st.sampled_from(["others", "ours", "ours", "ours, heard of late"]),
    st.sampled_from(["put", "put", "delete"]),
    st.sampled_from(NAMES),
)
_wait = st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.03, 0.1, 0.3, 2.0, 40.0, 400.0]), st.none())
_trouble = st.one_of(
    st.tuples(st.just("hear"), st.none(), st.none()),
    st.tuples(st.just("cut"), st.sampled_from(["end", "reset", "halve"]), st.none()),
    st.tuples(st.sampled_from(["compact", "restart", "lose WatchList"]), st.none(), st.none()),
    st.tuples(st.just("fault"), st.sampled_from([410, 429, 500, 503, 504, 403, "refused", "lost"]), st.integers(1, 4)),
)
# Half of what happens are writes: most faults are only faults if something changed meanwhile.
STEPS = st.lists(st.one_of(_write, _write, _wait, _trouble), min_size=12, max_size=40)
CARRIED = st.fixed_dictionaries(
    {"piece": st.sampled_from([37, 300, 100_000]), "pace": st.sampled_from([0.0, 0.02])},
)


async def _play(cluster, steps, *, piece: int, pace: float, dice: int) -> None:
    network = Network(cluster.handler, piece=piece, pace=pace)
    informer = Informer(
        InProcess(network), URL, PODS, indexes=pod_indexes(), backoff=Backoff(random.Random(dice)), page_size=2
    )
    witness = Witness()
    informer.subscribe(witness)
    unheard: list[tuple[dict, bool]] = []
    async with informer:
        for what, how, more in steps:
            match what:
                case "others":
                    await cluster.write(how, more)
                case "ours" | "ours, heard of late":
                    unheard.append(await cluster.write(how, more))
                    if what == "ours":
                        _hear(informer, *unheard.pop())
                case "hear":
                    for write in unheard:
                        _hear(informer, *write)
                    unheard.clear()
                case "cut":
                    network.cut(how)
                case "compact":
                    cluster.compact()
                case "restart":
                    cluster.compact()
                    network.cut("reset")
                case "fault":
                    network.faults.extend([how] * more)
                case "lose WatchList":
                    cluster.lose_watch_list()
                case "wait":
                    await asyncio.sleep(how)
            if not informer.synced:
                assert informer.staleness == float("inf")
        network.faults.clear()
        # Longer than any backoff, silence or filling under way, and than the trust in a write the server never shows.
        await asyncio.sleep(400)

        assert informer.synced
        assert informer.last_error is None
        # A bookmark each minute; between two watches it comes up to two seconds and a reconnection later.
        assert informer.staleness <= 65
        assert {pod.name: (pod.uid, pod.resource_version) for pod in informer.values()} == cluster.state()
        assert informer.undecodable == {}
    assert witness.seen == {pod.key: pod for pod in informer.values()}
    alive = {uid for uid, _ in cluster.state().values()}
    assert witness.added - alive == witness.deleted
    _check_indexes(informer)


def _hear(informer, written: dict, deleted) -> None:
    pod = decoder_for(PODS).object(json.dumps(written).encode())
    if deleted:
        informer.observe_deleted(pod.key, pod.uid)
    else:
        informer.observe(pod)


def _check_indexes(informer) -> None:
    fresh = pod_indexes()
    anew = Indexes(fresh)
    for pod in informer.values():
        anew.change(pod.key, None, pod)
    for index in fresh:
        kept = informer.index(index.name)
        assert _keys(kept) == _keys(index)
    waiting, bound = {PENDING_CLAIMS, PENDING_GPU, DAEMONS_TO_COME}, {BY_NODE, TOLD_BUT_BOUND}
    assert {index.name for index in fresh} == {*waiting, *bound, BY_OWNER, MARKED}


def _keys(index) -> dict:
    return {value: {pod.key for pod in index.get(value)} for value in index.found}


@pytest.mark.law
@given(
    steps=STEPS,
    carried=CARRIED,
    dice=st.integers(0, 3),
    watch_list=st.booleans(),
    expired_as=st.sampled_from(["event", "status"]),
)
def test_the_informer_converges_to_the_servers_state_and_misses_no_deletion(
    steps, dice, watch_list, expired_as, carried
):
    async def story():
        cluster = Model(watch_list=watch_list, expired_as=expired_as)
        await _play(cluster, steps, dice=dice, **carried)

    run(story())


@pytest.mark.law
@given(steps=STEPS, dice=st.integers(0, 3), carried=CARRIED)
def test_the_same_on_the_embedded_api_server(steps, dice, carried):
    async def story():
        await _play(Embedded(), steps, dice=dice, **carried)

    run(story())
