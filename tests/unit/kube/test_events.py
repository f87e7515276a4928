"""The event recorder in virtual time, against a minimal API server."""

import asyncio
import json
import re
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest

from forebay.kube.client import Client
from forebay.kube.events import EventRecorder
from forebay.kube.resources import AnyObject, Resource
from forebay.kube.right_of_way import RightOfWay
from forebay.kube.types import ObjectReference, reference
from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerLost, Request, Response

POD = ObjectReference(api_version="v1", kind="Pod", namespace="ml", name="trainer-0", uid="u-1")
NODE = ObjectReference(api_version="v1", kind="Node", name="gpu-1", uid="u-2")


class EventServer:
    def __init__(self) -> None:
        self.events: dict[str, dict] = {}
        self.requests: list[str] = []
        #: Called with each request; what it returns or raises replaces the server's own answer.
        self.trouble = None

    def recorder(self, **options) -> EventRecorder:
        return EventRecorder(Client(InProcess(self._handle), "http://server"), instance="forebay-0", **options)

    async def _handle(self, request: Request) -> Response:
        self.requests.append(request.method)
        if self.trouble is not None and (answer := await self.trouble(request)) is not None:
            return answer
        return self.answer(request)

    def answer(self, request: Request) -> Response:
        path = urlsplit(request.url).path
        body = json.loads(request.body)
        if request.method == "POST":
            key = f"{path}/{body['metadata']['name']}"
            if key in self.events:
                return failure(409, "AlreadyExists")
            self.events[key] = body
            return Response(201, body=request.body)
        if path not in self.events:
            return failure(404, "NotFound")
        self.events[path] |= body
        return Response(200, body=json.dumps(self.events[path]).encode())

    @property
    def only(self) -> dict:
        (event,) = self.events.values()
        return event


def failure(code, reason):
    status = {"kind": "Status", "code": code, "reason": reason, "message": reason}
    return Response(code, body=json.dumps(status).encode())


async def test_an_event_says_who_saw_what_about_which_object():
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(
            POD, type="Warning", reason="NoCapacity", note="no offer has 8 H100", action="Wait", related=NODE
        )
    event = server.only
    assert event["metadata"]["namespace"] == "ml"
    assert event["metadata"]["name"].startswith("trainer-0.")
    assert event["apiVersion"] == "events.k8s.io/v1"
    assert event["eventTime"] == "2030-01-01T00:00:00.000000Z"
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "NoCapacity", "Wait")
    assert event["note"] == "no offer has 8 H100"
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ml",
        "name": "trainer-0",
        "uid": "u-1",
    }
    assert event["related"]["name"] == "gpu-1"
    assert event["reportingController"] == "forebay.dev/operator"
    assert event["reportingInstance"] == "forebay-0"
    assert "series" not in event


async def test_an_event_without_an_action_has_its_reason_for_one():
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, type="Normal", reason="Bound", note="bound")
    assert server.only["action"] == "Bound"


async def test_events_of_a_cluster_scoped_object_go_to_namespace_default():
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(NODE, reason="Joined", note="ready after 93 s")
    assert server.only["metadata"]["namespace"] == "default"
    assert "namespace" not in server.only["regarding"]


async def test_repeats_are_counted_in_one_event_and_seldom_written():
    server = EventServer()
    recorder = server.recorder()
    for _ in range(100):
        recorder.event(POD, reason="NoCapacity", note="none")
        await asyncio.sleep(1)
    await recorder.close()
    assert server.only["series"] == {"count": 100, "lastObservedTime": "2030-01-01T00:01:39.000000Z"}
    assert server.requests == ["POST", "PATCH", "PATCH", "PATCH", "PATCH"]
    assert (recorder.counts.repeated, recorder.counts.written) == (99, 5)


async def test_repeats_are_counted_in_one_event_however_long_the_operator_runs():
    server = EventServer()
    await asyncio.sleep(30 * 86400)
    async with server.recorder() as recorder:
        for _ in range(3):
            recorder.event(POD, reason="NoCapacity", note="none")
            await asyncio.sleep(300)
    assert server.only["series"]["count"] == 3


async def test_a_series_that_paused_for_long_begins_anew():
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, reason="NoCapacity", note="none")
        await asyncio.sleep(361)
        recorder.event(POD, reason="NoCapacity", note="none")
    assert len(server.events) == 2


async def test_another_note_is_another_event():
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, reason="NoCapacity", note="none at A")
        recorder.event(POD, reason="NoCapacity", note="none at B")
        recorder.event(NODE, reason="NoCapacity", note="none at A")
    assert len(server.events) == 3


async def test_a_series_whose_event_was_deleted_goes_on_under_another_name():
    server = EventServer()
    recorder = server.recorder()
    recorder.event(POD, reason="NoCapacity", note="none")
    await asyncio.sleep(60)
    server.events.clear()
    recorder.event(POD, reason="NoCapacity", note="none")
    await asyncio.sleep(60)
    assert server.only["series"]["count"] == 2
    assert server.requests == ["POST", "PATCH", "POST"]
    await recorder.close()


async def test_new_events_are_limited_per_object():
    server = EventServer()
    recorder = server.recorder()
    for number in range(40):
        recorder.event(POD, reason="Flapping", note=f"number {number}")
    recorder.event(NODE, reason="Joined", note="ready")
    await asyncio.sleep(1)
    assert len(server.events) == 26
    assert recorder.counts.limited == 15
    await asyncio.sleep(300)
    recorder.event(POD, reason="Flapping", note="later")
    recorder.event(POD, reason="Flapping", note="too soon")
    await recorder.close()
    assert len(server.events) == 27
    assert recorder.counts.limited == 16


@pytest.mark.parametrize("text", ["x" * 5000, "ä" * 2000, "€" * 1000])
async def test_a_long_note_is_cut_to_what_the_server_takes_and_stays_text(text):
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, reason="Long", note=text)
    note = server.only["note"]
    assert note.endswith("...")
    assert 1020 <= len(note.encode()) <= 1024
    assert text.startswith(note.removesuffix("..."))


@pytest.mark.parametrize(("length", "cut"), [(1024, False), (1025, True)])
async def test_a_note_that_the_server_takes_is_not_cut(length, cut):
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, reason="Long", note="x" * length)
    assert server.only["note"].endswith("...") is cut


async def test_the_caller_never_waits_and_events_beyond_the_queue_are_counted():
    server = EventServer()
    answered = asyncio.Event()

    async def hang(request):
        await answered.wait()

    server.trouble = hang
    recorder = server.recorder(queue=5)
    queued = []
    for number in range(20):
        about = ObjectReference(kind="Pod", namespace="ml", name=f"p-{number}", uid=str(number))
        queued.append(recorder.event(about, reason="Burst", note="at once"))
    assert recorder.counts.dropped == 15
    assert queued == [True] * 5 + [False] * 15, "so that the caller may try again later"
    answered.set()
    await recorder.close()
    assert len(server.events) == 5


async def test_what_is_repeated_limited_or_comes_after_the_end_need_not_be_tried_again():
    server = EventServer()
    recorder = server.recorder()
    assert [recorder.event(POD, reason="R", note="same") for _ in range(2)] == [True, True]
    assert all(recorder.event(POD, reason="R", note=str(number)) for number in range(40))
    assert recorder.counts.limited == 16
    await recorder.close()
    assert recorder.event(NODE, reason="R", note="late")
    assert recorder.counts.dropped == 1


async def test_events_give_way_to_what_is_more_urgent():
    server, way = EventServer(), RightOfWay()
    async with server.recorder(way=way) as recorder:
        with way.claimed():
            recorder.event(POD, reason="R", note="n")
            await asyncio.sleep(0.5)
            assert server.requests == []
        await asyncio.sleep(0.1)
        assert server.requests == ["POST"]


async def test_events_of_the_next_process_have_other_names():
    server = EventServer()
    for note in ("before", "after"):
        async with server.recorder() as recorder:
            for number in range(3):
                recorder.event(POD, reason="R", note=f"{note} {number}")
        await asyncio.sleep(1)
    assert len(server.events) == 6
    stamps = [int(each.rpartition(".")[2], 16) for each in server.events]
    assert stamps == sorted(stamps)
    assert stamps[0] == int(datetime(2030, 1, 1, tzinfo=UTC).timestamp()) * 10**9


def others(count):
    return [ObjectReference(kind="Node", name=f"n-{number}", uid=f"n-{number}") for number in range(count)]


@pytest.mark.parametrize(("between", "events"), [(4095, 1), (4096, 2)])
async def test_of_thousands_of_events_the_oldest_are_forgotten(between, events):
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, reason="R", note="n")
        for about in others(between):
            recorder.event(about, reason="R", note="n")
        recorder.event(POD, reason="R", note="n")
    assert len([each for each in server.events if "trainer-0" in each]) == events


@pytest.mark.parametrize(("between", "allowed"), [(4095, False), (4096, True)])
async def test_of_thousands_of_objects_the_one_that_was_quiet_for_longest_is_not_limited_any_more(between, allowed):
    server = EventServer()
    async with server.recorder(queue=10_000) as recorder:
        recorder.event(NODE, reason="R", note="first")
        for number in range(26):
            recorder.event(POD, reason="R", note=f"{number}")
        assert recorder.counts.limited == 1
        for about in others(between):
            recorder.event(about, reason="R", note="n")
        recorder.event(POD, reason="R", note="once more")
        assert (recorder.counts.limited == 1) is allowed


async def test_an_event_that_found_the_queue_full_is_written_when_it_comes_again():
    server = EventServer()
    answered = asyncio.Event()

    async def hang(_request):
        await answered.wait()

    server.trouble = hang
    async with server.recorder(queue=1) as recorder:
        assert recorder.event(POD, reason="R", note="n")
        assert not recorder.event(NODE, reason="R", note="n")
        answered.set()
        await asyncio.sleep(1)
        assert recorder.event(NODE, reason="R", note="n")
        await asyncio.sleep(1)
        assert len(server.events) == 2


async def test_an_event_that_is_repeated_is_not_the_oldest():
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, reason="R", note="n")
        for about in others(4095):
            recorder.event(about, reason="R", note="n")
        recorder.event(POD, reason="R", note="n")
        recorder.event(NODE, reason="R", note="n")
        recorder.event(POD, reason="R", note="n")
    assert len([each for each in server.events if "trainer-0" in each]) == 1


async def test_after_the_end_nothing_is_queued_any_more():
    server = EventServer()
    recorder = server.recorder()
    for _ in range(2):
        recorder.event(POD, reason="R", note="n")
        await asyncio.sleep(1)
    await recorder.close()
    assert server.only["series"]["count"] == 2
    await asyncio.sleep(60)
    assert recorder.queued == 0


async def test_a_reason_without_letters_is_unknown():
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, reason="!", note="n")
    assert server.only["reason"] == "Unknown"


async def test_a_lost_response_does_not_make_two_events():
    server = EventServer()

    async def lose_the_first(request):
        if len(server.requests) == 1:
            server.answer(request)
            raise AnswerLost("the answer was lost", request)

    server.trouble = lose_the_first
    recorder = server.recorder()
    recorder.event(POD, reason="Joined", note="ready")
    await asyncio.sleep(10)
    await recorder.close()
    assert server.requests == ["POST", "POST"]
    assert len(server.events) == 1
    assert recorder.counts.written == 1


async def test_a_rejected_event_is_counted_and_the_next_event_is_written(capsys):
    server = EventServer()

    async def refuse(request):
        return failure(403, "Forbidden")

    server.trouble = refuse
    recorder = server.recorder()
    recorder.event(POD, reason="Joined", note="ready")
    await asyncio.sleep(1)
    assert recorder.counts.failed == 1
    assert "403 Forbidden" in recorder.last_error
    assert "event not written" in capsys.readouterr().out
    server.trouble = None
    recorder.event(POD, reason="Joined", note="ready")
    await recorder.close()
    assert "series" not in server.only, "the first one that was written"


async def test_writing_an_event_is_retried_for_a_while():
    server = EventServer()

    async def unavailable(request):
        return failure(503, "ServiceUnavailable")

    server.trouble = unavailable
    recorder = server.recorder()
    recorder.event(POD, reason="Joined", note="ready")
    await asyncio.sleep(5)
    server.trouble = None
    await asyncio.sleep(5)
    assert len(server.events) == 1
    server.trouble = unavailable
    recorder.event(NODE, reason="Joined", note="ready")
    await asyncio.sleep(60)
    assert recorder.counts.failed == 1
    await recorder.close()


async def test_closing_has_a_timeout_and_later_events_are_dropped():
    server = EventServer()

    async def hang(request):
        await asyncio.sleep(3600)

    server.trouble = hang
    recorder = server.recorder()
    recorder.event(POD, reason="Joined", note="ready")
    recorder.event(NODE, reason="Joined", note="ready")
    await recorder.close()
    assert asyncio.get_running_loop().time() == 5
    recorder.event(POD, reason="Late", note="too late")
    assert recorder.counts.dropped == 3


async def test_names_and_reasons_are_made_to_fit_the_rules_of_kubernetes():
    server = EventServer()
    strange = ObjectReference(kind="ClusterRole", name="System:Node_" + "x" * 300, uid="u")
    async with server.recorder() as recorder:
        recorder.event(strange, reason="no capacity-left", note="n")
    name = server.only["metadata"]["name"]
    assert name.startswith("system-node-xxx")
    assert len(name) <= 253
    assert server.only["reason"] == "NoCapacityLeft"


@pytest.mark.parametrize("name", ["a:.b", "-.-", "x..y", "gpu-1.example", "Ünï"])
async def test_every_name_makes_a_valid_one(name):
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(ObjectReference(kind="Node", name=name), reason="R", note="n")
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert re.fullmatch(rf"{label}(\.{label})*", server.only["metadata"]["name"])


async def test_text_that_is_not_unicode_is_written_all_the_same():
    server = EventServer()
    async with server.recorder() as recorder:
        recorder.event(POD, reason="Refused", note="the provider said \ud800")
    assert server.only["note"] == "the provider said ?"


async def test_events_that_come_during_the_last_write_are_written_before_closing():
    server = EventServer()

    async def slow(request):
        await asyncio.sleep(1)

    server.trouble = slow
    recorder = server.recorder()
    recorder.event(POD, reason="Joined", note="ready")
    await asyncio.sleep(0.5)
    recorder.event(POD, reason="Joined", note="ready")
    await recorder.close()
    assert server.only["series"]["count"] == 2


async def test_repeats_that_come_while_the_event_is_written_are_counted_later():
    server = EventServer()
    answers = asyncio.Event()

    async def slow(_request):
        await answers.wait()

    server.trouble = slow
    async with server.recorder() as recorder:
        recorder.event(POD, reason="Waiting", note="No offer fits.")
        await asyncio.sleep(1)
        for _ in range(3):
            recorder.event(POD, reason="Waiting", note="No offer fits.")
        answers.set()
        await asyncio.sleep(3600)
        assert server.only["series"]["count"] == 4


def test_a_reference_is_made_from_any_object_and_its_resource():
    from forebay.api.meta import ObjectMeta

    pods = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=AnyObject)
    made = AnyObject(metadata=ObjectMeta(name="trainer-0", namespace="ml", uid="u-1"))
    assert reference(pods, made) == POD
