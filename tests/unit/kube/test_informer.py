"""Informers: lists, watches, and faults of the server and the network."""

import asyncio
import gc
import json
import math
import random
from itertools import pairwise

import msgspec
import pytest

from forebay.kube.backoff import Backoff
from forebay.kube.decoders import decoder_for
from forebay.kube.errors import NotListed
from forebay.kube.frozen_gc import MANY
from forebay.kube.informer import Informer
from forebay.kube.pod_indexes import PENDING_GPU, pod_indexes
from forebay.kube.pods import PODS, PodDecoder
from forebay.kube.view import Added, Deleted, Updated
from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerLost, Response
from tests.unit.kube.api_server_model import URL, ModelServer, Network, answer, line, status


def informer_on(handler, **options) -> Informer:
    return Informer(
        InProcess(handler), URL, PODS, indexes=pod_indexes(), backoff=Backoff(random.Random(1)), page_size=3, **options
    )


def names(informer) -> set[str]:
    return {pod.name for pod in informer.values()}


def read(body: dict):
    return decoder_for(PODS).object(json.dumps(body).encode())


@pytest.fixture(params=["watch list", "pages"])
def server(request):
    """A server with and without WatchList: tests with this fixture run on both."""

    async def made():
        return ModelServer(watch_list=request.param == "watch list")

    return made


async def test_an_informer_is_synced_after_the_list_and_then_follows_the_watch(server):
    server = await server()
    for name in "abcdefg":
        server.create(name)
    informer = informer_on(server)
    assert not informer.synced
    assert informer.staleness == math.inf
    async with informer:
        await informer.wait_synced()
        assert names(informer) == set("abcdefg")
        server.delete("a")
        server.create("h")
        server.update("b", nodeName="n1")
        await asyncio.sleep(1)
        assert names(informer) == set("bcdefgh")
        assert {pod.name for pod in informer.by(PENDING_GPU, True)} == set("cdefgh")
        assert informer.get(("default", "b")).node == "n1"
        assert informer.resource_version == server.version


async def test_objects_are_decoded_by_the_given_decoder(server):
    class Marking(PodDecoder):
        def build(self, wire):
            return msgspec.structs.replace(super().build(wire), labels={"read-by": "us"})

    server = await server()
    server.create("a")
    async with informer_on(server, decoder=Marking()) as informer:
        await informer.wait_synced()
        server.create("b")
        await asyncio.sleep(1)
        assert [dict(pod.labels) for pod in informer.values()] == [{"read-by": "us"}] * 2


@pytest.fixture
def unfrozen():
    """All objects can be collected, those too that the test run has frozen."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("unfrozen")
async def test_the_garbage_collector_is_frozen_during_a_long_list_and_not_after_it_or_its_failure():
    server = ModelServer(watch_list=False)
    for number in range(MANY + 3):
        server.create(f"p{number}")
    frozen = []

    async def handler(request):
        frozen.append(gc.get_freeze_count() > 0)
        if frozen.count(True) == 1 and frozen[-1]:
            raise AnswerLost("sent, but nobody answered", request)
        if frozen.count(True) == 3 and frozen[-1]:
            await asyncio.sleep(1_000)
        return await server(request)

    assert gc.get_freeze_count() == 0
    async with informer_on(handler) as informer:
        await asyncio.sleep(0.001)
        assert frozen[-1], "of a long list, the last page failed"
        assert gc.get_freeze_count() == 0
        await informer.wait_synced()
        assert frozen.count(True) == 2
        assert gc.get_freeze_count() == 0
    async with informer_on(handler):
        await asyncio.sleep(1)
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("unfrozen")
async def test_the_garbage_collector_is_left_alone_during_a_short_list():
    server = ModelServer()
    server.create("a")
    gc.collect()
    young = [[]]
    async with informer_on(server) as informer:
        await informer.wait_synced()
    assert any(each is young for each in gc.get_objects(generation=0)), "it was not moved to the oldest generation"


@pytest.mark.usefixtures("unfrozen")
async def test_objects_frozen_by_others_stay_frozen():
    server = ModelServer()
    for number in range(MANY):
        server.create(f"p{number}")
    gc.freeze()
    try:
        async with informer_on(server) as informer:
            await informer.wait_synced()
            assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


async def test_a_server_without_watch_list_is_listed_in_pages_and_not_asked_for_it_again():
    server = ModelServer(watch_list=False)
    for name in "abcdefg":
        server.create(name)
    network = Network(server)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        await asyncio.sleep(1)
        assert server.requests == ["watch list", "list", "list", "list", "watch"]
        network.cut("reset")
        server.create("h")
        server.compact()
        await asyncio.sleep(10)
        assert names(informer) == set("abcdefgh")
        assert server.requests[5:].count("watch list") == 0
        assert informer.counters.relists == 1


async def test_deletions_missed_during_an_outage_are_reported_after_the_410(server):
    server = await server()
    for name in "abc":
        server.create(name)
    network = Network(server)
    told = []
    async with informer_on(network) as informer:
        await informer.wait_synced()
        informer.subscribe(told.append)
        network.faults.extend(["refused"] * 3)
        network.cut("reset")
        server.delete("a")
        server.delete("b")
        recreated = server.create("b")
        server.compact()
        await asyncio.sleep(60)
        assert names(informer) == {"b", "c"}
    assert {change.old.name for change in told if isinstance(change, Deleted)} == {"a", "b"}
    assert [change.new.uid for change in told if isinstance(change, Added)] == [recreated["metadata"]["uid"]]
    assert len(told) == 3


@pytest.mark.parametrize("expired_as", ["event", "status"])
async def test_an_expired_version_leads_to_a_relist_however_the_server_reports_it(expired_as):
    server = ModelServer(expired_as=expired_as)
    server.create("a")
    network = Network(server)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        await asyncio.sleep(40)
        server.delete("a")
        server.create("b")
        server.compact()
        network.cut("end")
        await asyncio.sleep(0.5)
        assert names(informer) == {"b"}, "the first time there is no need to wait"
        assert informer.counters.relists == 1


async def test_a_server_that_forgets_all_the_time_is_not_listed_all_the_time():
    server = ModelServer()
    async with informer_on(server) as informer:
        await informer.wait_synced()
        for number in range(100):
            server.create(f"p{number}")
            server.compact()
            await asyncio.sleep(0.1)
        assert 0 < informer.counters.relists < 15
        await asyncio.sleep(60)
        assert len(names(informer)) == 100


async def test_a_server_that_accepts_watches_and_says_nothing_is_asked_after_a_wait():
    server = ModelServer(watch_list=False)
    watched = []

    async def handler(request):
        response = await server(request)
        if server.requests[-1] != "watch":
            return response
        watched.append(asyncio.get_running_loop().time())

        async def body():
            await asyncio.sleep(100_000)
            yield b""

        return Response(200, {}, body())

    async with informer_on(handler):
        await asyncio.sleep(1000)
    gaps = [later - earlier for earlier, later in pairwise(watched)]
    assert len(gaps) > 3
    assert all(gap > 150.05 for gap in gaps), gaps


async def test_a_continue_token_that_expires_starts_the_list_over():
    server = ModelServer(watch_list=False)
    for name in "abcdefg":
        server.create(name)
    asked = []

    async def handler(request):
        asked.append(request.url)
        if "continue=" in request.url and sum("continue=" in url for url in asked) <= 2:
            server.delete(next(iter(server.pods)))
            server.compact()
        return await server(request)

    async with informer_on(handler) as informer:
        await informer.wait_synced()
        assert names(informer) == set("cdefg")
    lists = [url for url in asked if "watch=true" not in url]
    assert ["limit=3" in url for url in lists] == [True, True, True, True, False], "the third attempt is in one piece"


async def test_an_incomplete_watch_list_does_not_sync_and_loses_no_deletion():
    server = ModelServer()
    for name in "abcdef":
        server.create(name)
    network = Network(server, pace=1.0)
    told = []
    informer = informer_on(network)
    informer.subscribe(told.append)
    async with informer:
        await asyncio.sleep(3.5)
        assert 0 < len(informer) < 6
        assert not informer.synced
        assert informer.staleness == math.inf
        seen = next(iter(informer.values()))
        server.delete(seen.name)
        network.cut("reset")
        await informer.wait_synced()
        assert names(informer) == set("abcdef") - {seen.name}
    assert [change.old.name for change in told if isinstance(change, Deleted)] == [seen.name]


async def test_after_cut_off_watch_lists_the_informer_lists_in_pages():
    server = ModelServer()
    server.create("a")

    async def handler(request):
        if "sendInitialEvents" not in request.url:
            return await server(request)

        async def only_the_beginning():
            yield line("ADDED", server.pods["a"])
            await asyncio.sleep(10_000)

        return Response(200, {}, only_the_beginning())

    async with informer_on(handler) as informer:
        async with asyncio.timeout(600):
            await informer.wait_synced()
        assert names(informer) == {"a"}
        assert informer.counters.lists == 1


async def test_failures_back_off_exponentially_with_jitter():
    server = ModelServer()
    network = Network(server)
    network.faults.extend([503] * 12)
    async with informer_on(network) as informer:
        await asyncio.sleep(20)
        assert informer.last_error == "GET http://cluster/api/v1/pods: InternalError (503 InternalError)"
        await informer.wait_synced()
        assert informer.last_error is None
    waits = [later - earlier for earlier, later in zip(network.asked_at, network.asked_at[1:], strict=False)]
    assert len(network.asked_at) == 13
    assert 0.8 <= waits[0] <= 1.6
    assert all(0.8 <= wait <= 30 for wait in waits)
    assert sum(waits[6:]) / len(waits[6:]) > 15
    assert len(set(waits)) == len(waits)


async def test_a_kind_that_the_server_does_not_serve_is_an_empty_list_only_where_it_is_optional():
    server, served = ModelServer(), False
    server.create("a")

    async def handler(request):
        return await server(request) if served else Response(404, body=b"404 page not found\n")

    async with informer_on(handler, optional=True) as optional, informer_on(handler) as other:
        await asyncio.sleep(300)
        assert (optional.synced, names(optional), optional.last_error) == (True, set(), None)
        assert optional.staleness <= 60
        assert not other.synced
        served = True
        await asyncio.sleep(61)
        assert names(optional) == {"a"}


async def test_an_optional_kind_that_cannot_be_listed_is_not_empty():
    async def handler(_):
        return answer(403, status(403, "Forbidden"))

    async with informer_on(handler, optional=True) as informer:
        await asyncio.sleep(300)
        assert not informer.synced


async def test_retry_after_of_the_server_is_respected():
    server = ModelServer()
    asked = []

    async def handler(request):
        asked.append(asyncio.get_running_loop().time())
        if len(asked) == 1:
            return answer(429, status(429, "TooManyRequests"), **{"Retry-After": "17"})
        return await server(request)

    async with informer_on(handler) as informer:
        await informer.wait_synced()
    assert asked[1] - asked[0] == 17


async def test_a_watch_that_ends_is_resumed_at_once_from_where_it_was(server):
    server = await server()
    network = Network(server)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        await asyncio.sleep(10)
        network.cut("end")
        server.create("a")
        await asyncio.sleep(0.01)
        assert names(informer) == {"a"}
        assert informer.counters.failures == 0
        assert informer.counters.relists == 0


async def test_a_watch_that_always_ends_at_once_is_retried_with_backoff():
    server = ModelServer()
    asked = []

    async def handler(request):
        if "resourceVersion=" not in request.url:
            return await server(request)
        asked.append(request.url)
        return Response(200, {}, b"")

    network = Network(handler)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        network.cut("end")
        await asyncio.sleep(100)
        assert informer.last_error == "the server ends every watch at once"
    assert len(asked) < 12


async def test_a_watch_cut_off_within_a_line_loses_nothing():
    server = ModelServer()
    network = Network(server, piece=40)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        server.create("a")
        await asyncio.sleep(1)
        network.cut("halve")
        server.create("b")
        await asyncio.sleep(5)
        assert names(informer) == {"a", "b"}
        assert informer.counters.relists == 0


async def test_a_silent_watch_is_ended_and_the_informer_is_stale_meanwhile():
    server = ModelServer()
    silent = False

    async def handler(request):
        response = await server(request)

        async def body():
            async for chunk in response.chunks():
                if silent:
                    await asyncio.sleep(100_000)
                yield chunk

        return Response(200, {}, body())

    async with informer_on(handler, stale_after=120) as informer:
        await informer.wait_synced()
        await asyncio.sleep(61)
        assert informer.staleness < 2, "a bookmark is news enough"
        silent = True
        server.create("a")
        await asyncio.sleep(130)
        assert names(informer) == set()
        assert 130 < informer.staleness < 135
        assert informer.stale
        silent = False
        await asyncio.sleep(30)
        assert names(informer) == {"a"}
        assert not informer.stale


async def test_an_idle_kind_may_be_silent_after_its_list_for_as_long_as_any_watch():
    server = ModelServer()

    async def handler(request):
        """As servers of 1.33 do: the first bookmark after the list is late."""
        response = await server(request)

        async def body():
            bookmarks = 0
            async for chunk in response.chunks():
                bookmarks += b'"BOOKMARK"' in chunk
                if bookmarks != 2:
                    yield chunk

        return Response(200, {}, body())

    async with informer_on(handler) as informer:
        await informer.wait_synced()
        await asyncio.sleep(119)
        assert informer.staleness > 100
        assert (informer.counters.failures, informer.counters.watches) == (0, 1)
        await asyncio.sleep(30)
        assert informer.staleness < 31
        assert (informer.counters.failures, informer.counters.watches) == (0, 1)


async def test_an_undecodable_object_is_named_and_the_others_are_not_affected(server):
    server = await server()
    for name in "abcd":
        server.create(name)
    server.update("b", containers=[{"name": "c", "resources": {"requests": {"cpu": "much"}}}])
    async with informer_on(server) as informer:
        await informer.wait_synced()
        assert names(informer) == set("acd")
        assert "much" in informer.undecodable["default", "b"]
        assert informer.counters.undecodable == 1
        server.update("c", tolerations="none")
        await asyncio.sleep(1)
        assert names(informer) == set("acd"), "its last readable state is kept"
        assert set(informer.undecodable) == {("default", "b"), ("default", "c")}
        server.update("b", containers=[])
        server.delete("c")
        await asyncio.sleep(1)
        assert names(informer) == set("abd")
        assert informer.undecodable == {}


async def test_an_undecodable_object_of_the_same_name_replaces_the_old_object(server):
    server = await server()
    server.create("a")
    async with informer_on(server) as informer:
        await informer.wait_synced()
        server.delete("a")
        server.create("a", tolerations="none")
        await asyncio.sleep(1)
        assert names(informer) == set()
        assert set(informer.undecodable) == {("default", "a")}


async def test_an_event_of_an_unknown_type_is_counted_and_skipped():
    server = ModelServer()

    async def handler(request):
        response = await server(request)

        async def body():
            async for chunk in response.chunks():
                yield line("TELEPORTED", {"metadata": {"name": "x"}}) + chunk

        return Response(200, {}, body())

    async with informer_on(handler) as informer:
        await informer.wait_synced()
        server.create("a")
        await asyncio.sleep(1)
        assert names(informer) == {"a"}
        assert informer.counters.unknown_events == 2


async def test_a_line_that_is_no_event_leads_to_a_relist():
    server = ModelServer()
    noise = [b"<html>the proxy is tired</html>\n"]

    async def handler(request):
        response = await server(request)

        async def body():
            async for chunk in response.chunks():
                yield chunk
                if noise and server.pods:
                    yield noise.pop()

        return Response(200, {}, body())

    async with informer_on(handler) as informer:
        await informer.wait_synced()
        server.create("a")
        await asyncio.sleep(0.1)
        assert "not an event" in informer.last_error
        await asyncio.sleep(5)
        assert informer.last_error is None
        assert informer.counters.relists == 1


@pytest.mark.parametrize("body", [b"{}", b"[]", b"ok", b'{"metadata":{"resourceVersion":"5"}}', b'{"items":[]}'])
async def test_a_response_that_is_no_list_is_never_an_empty_list(body):
    server = ModelServer(watch_list=False)
    server.create("a")
    broken = False

    async def handler(request):
        if broken and "watch=true" not in request.url:
            return Response(200, {}, body)
        return await server(request)

    network = Network(handler)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        broken = True
        server.compact()
        server.version += 1
        server.compact()
        network.cut("reset")
        await asyncio.sleep(100)
        assert names(informer) == {"a"}
        assert informer.last_error


async def test_an_error_event_other_than_expired_leads_to_a_relist():
    server = ModelServer()
    server.create("a")
    broken = [line("ERROR", status(400, "BadRequest", "object has no PrevKv"))]

    async def handler(request):
        response = await server(request)

        async def body():
            async for chunk in response.chunks():
                yield chunk
                if broken and b"initial-events-end" in chunk:
                    server.delete("a")
                    yield broken.pop()

        return Response(200, {}, body())

    async with informer_on(handler) as informer:
        await informer.wait_synced()
        await asyncio.sleep(5)
        assert names(informer) == set()
        assert informer.counters.relists == 1


async def test_our_own_write_is_visible_at_once_and_an_older_event_does_not_undo_it(server):
    server = await server()
    server.create("a")
    told = []
    async with informer_on(server) as informer:
        await informer.wait_synced()
        informer.subscribe(told.append)
        server.update("a", nodeName="theirs")
        ours = read(server.update("a", nodeName="ours"))
        assert informer.observe(ours)
        assert informer.get(("default", "a")).node == "ours"
        assert not informer.observe(ours), "it is known by now"
        await asyncio.sleep(1)
    assert [(type(change), change.new.node) for change in told] == [(Updated, "ours")]


async def test_a_late_response_to_a_write_does_not_bring_a_deleted_object_back(server):
    server = await server()
    async with informer_on(server) as informer:
        await informer.wait_synced()
        written = read(server.create("a"))
        server.delete("a")
        await asyncio.sleep(1)
        assert not informer.observe(written)
        assert names(informer) == set()


async def test_our_own_deletion_is_not_undone_by_older_events(server):
    server = await server()
    server.create("a")
    told = []
    async with informer_on(server) as informer:
        await informer.wait_synced()
        informer.subscribe(told.append)
        late = read(server.update("a", nodeName="n1"))
        gone = read(server.delete("a"))
        informer.observe_deleted(gone.key, gone.uid)
        assert names(informer) == set()
        assert not informer.observe(late)
        await asyncio.sleep(1)
        assert names(informer) == set()
        again = server.create("a")
        await asyncio.sleep(1)
        assert informer.get(("default", "a")).uid == again["metadata"]["uid"]
    assert [type(change) for change in told] == [Deleted, Added]


async def test_a_list_that_began_before_our_write_neither_reverts_nor_deletes_it(server):
    server = await server()
    server.create("a")
    network = Network(server, pace=2.0)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        server.compact()
        network.faults.append(410)
        network.cut("reset")
        # The new listing is on its way, of a version before these two.
        await asyncio.sleep(2.5)
        updated = read(server.update("a", nodeName="n1"))
        created = read(server.create("b"))
        told = []
        informer.subscribe(told.append)
        informer.observe(updated)
        informer.observe(created)
        await asyncio.sleep(30)
        assert names(informer) == {"a", "b"}
        assert informer.get(("default", "a")).node == "n1"
    assert [type(change) for change in told] == [Updated, Added]


async def test_our_own_write_that_the_server_lost_leads_to_a_relist():
    server = ModelServer()
    server.create("a")
    backup, version = dict(server.pods), server.version
    network = Network(server)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        informer.observe(read(server.update("a", nodeName="n1")))
        informer.observe(read(server.create("b")))
        network.cut("reset")
        server.restore(version, backup)
        await asyncio.sleep(1)
        assert names(informer) == {"a", "b"}
        await asyncio.sleep(300)
        assert names(informer) == {"a"}
        assert informer.get(("default", "a")).node is None


async def test_versions_that_go_backwards_lead_to_a_relist():
    server = ModelServer()
    server.create("a")
    backup, version = dict(server.pods), server.version
    network = Network(server)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        server.create("b")
        server.update("a", nodeName="n1")
        await asyncio.sleep(1)
        network.cut("reset")
        server.restore(version, backup)
        await asyncio.sleep(10)
        assert names(informer) == {"a"}
        assert informer.get(("default", "a")).node is None


async def test_our_own_write_that_the_selector_excludes_is_removed_by_the_next_bookmark():
    server = ModelServer()

    async def handler(request):
        assert "labelSelector=app%3Dweb" in request.url
        return await server(request)

    async with informer_on(handler, label_selector="app=web") as informer:
        await informer.wait_synced()
        elsewhere = read(ModelServer().create("z"))
        server.version += 5
        assert informer.observe(elsewhere)
        await asyncio.sleep(61)
        server.create("a")
        await asyncio.sleep(61)
        assert names(informer) == {"a"}


async def test_every_change_wakes_the_engine():
    server = ModelServer()
    wake = asyncio.Event()
    async with informer_on(server, wake=wake) as informer:
        await informer.wait_synced()
        assert not wake.is_set(), "there was nothing"
        server.create("a")
        await asyncio.wait_for(wake.wait(), 1)
        wake.clear()
        informer.observe(read(server.update("a", nodeName="n1")))
        assert wake.is_set()


async def test_an_exception_of_a_subscriber_is_raised():
    server = ModelServer()
    server.create("a")
    informer = informer_on(server)
    informer.subscribe(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        async with informer:
            await informer.wait_synced()


@pytest.mark.parametrize("others", ["", "ac"], ids=["alone", "with others"])
async def test_an_undecodable_object_stays_named_through_a_relist_until_it_is_gone(others):
    server = ModelServer()
    for name in others:
        server.create(name)
    server.create("b", tolerations="none")
    server.create("d", tolerations="none")
    network = Network(server)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        assert set(informer.undecodable) == {("default", "b"), ("default", "d")}
        server.delete("d")
        server.compact()
        network.cut("reset")
        await asyncio.sleep(10)
        assert informer.counters.relists == 1
        assert set(informer.undecodable) == {("default", "b")}
        assert names(informer) == set(others)


async def test_a_bound_pod_that_becomes_undecodable_is_replaced_by_what_can_be_read_of_it():
    server = ModelServer()
    server.create("a", nodeName="n1")
    async with informer_on(server) as informer:
        await informer.wait_synced()
        server.update("a", tolerations="none", containers=[{"resources": {"requests": {"nvidia.com/gpu": 8}}}])
        await asyncio.sleep(1)
        assert set(informer.undecodable) == {("default", "a")}
        (pod,) = informer.values()
        assert (pod.node, int(pod.shape.gpus())) == ("n1", 8)
        server.update("a", tolerations=[])
        await asyncio.sleep(1)
        assert informer.undecodable == {}


async def test_an_informer_that_somebody_else_runs_can_be_waited_for():
    server = ModelServer()
    server.create("a")
    informer = informer_on(server)
    running = asyncio.ensure_future(informer.run())
    await informer.wait_synced()
    assert names(informer) == {"a"}
    assert not informer.ended
    running.cancel()
    await asyncio.wait({running})


async def test_waiting_for_a_new_list_meets_a_bug_of_the_decoder_at_once():
    server = ModelServer()
    informer = informer_on(server)

    def broken():
        raise ZeroDivisionError

    await informer.__aenter__()
    await informer.wait_synced()
    with pytest.raises(ZeroDivisionError):
        await informer.relist(broken)
    assert informer.ended


async def test_a_new_list_brings_the_objects_as_they_are_decoded_by_then_and_keeps_the_old_ones_meanwhile():
    server = ModelServer()
    server.create("a")
    async with informer_on(server) as informer:
        await informer.wait_synced()
        lists, before = informer.counters.relists, []
        await informer.relist(lambda: before.append(names(informer)))
        assert before == [{"a"}]
        assert (names(informer), informer.counters.relists) == ({"a"}, lists + 1)


@pytest.mark.parametrize(("event", "waits"), [(True, False), (False, True)], ids=["after an event", "without any"])
async def test_a_broken_watch_is_resumed_at_once_only_if_it_had_brought_something(event, waits):
    server, opened = ModelServer(), []

    async def handler(request):
        if "resourceVersion=" in request.url:
            opened.append(asyncio.get_running_loop().time())
        return await server(request)

    network = Network(handler)
    async with informer_on(network) as informer:
        await informer.wait_synced()
        await asyncio.sleep(2)
        network.cut("end")
        await asyncio.sleep(5)
        before = len(opened)
        if event:
            server.create("a")
            await asyncio.sleep(0.5)
        cut = asyncio.get_running_loop().time()
        network.cut("reset")
        await asyncio.sleep(60)
        assert (opened[before] - cut > 0) is waits
        assert informer.counters.failures == 1


async def test_a_command_that_may_not_list_objects_learns_so_at_once():
    refusal = status(403, "Forbidden", 'pods is forbidden: User "team" cannot watch resource "pods"')

    async def refuse(_request):
        return answer(403, refusal)

    async with informer_on(refuse) as informer:
        before = asyncio.get_running_loop().time()
        with pytest.raises(NotListed, match='cannot watch resource "pods"') as refused:
            await informer.wait_listed(60)
        assert asyncio.get_running_loop().time() == before
    assert refused.value.forbidden


async def test_a_command_waits_for_objects_no_longer_than_it_means_to(server):
    server = await server()
    server.create("a")
    async with informer_on(server) as informer:
        await informer.wait_listed(60)
        assert names(informer) == {"a"}

    async def fail(_request):
        return answer(503, status(503, "ServiceUnavailable", "etcd is away"))

    async with informer_on(fail) as informer:
        with pytest.raises(NotListed, match=r"listing pods took longer than 60 s: .*etcd is away") as late:
            await informer.wait_listed(60)
    assert not late.value.forbidden

    async def hang(_request):
        await asyncio.Event().wait()

    async with informer_on(hang) as informer:
        with pytest.raises(NotListed, match=r"longer than 5 s: the API server answers, but slowly$"):
            await informer.wait_listed(5)
