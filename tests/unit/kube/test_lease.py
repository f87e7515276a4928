"""Leader election in virtual time, against a minimal API server with one lease."""

import asyncio
import itertools
import json
import random
from contextlib import suppress

import pytest

from forebay.kube.client import Client
from forebay.kube.lease import Elector, LeadershipLost, Terms, unique_identity
from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerLost, Request, Response


class LeaseServer:
    """One lease with compare-and-swap. `trouble` may fail each request before or after it is applied."""

    def __init__(self) -> None:
        self.lease: dict | None = None
        self.writes: list[dict] = []
        self.requests: list[str] = []
        self._version = 0

    def elector(self, identity: str, trouble=None, **options) -> Elector:
        async def handle(request: Request) -> Response:
            if trouble is None:
                return self.answer(request)
            return await trouble(request, lambda: self.answer(request))

        client = Client(InProcess(handle), "http://server", max_throttle_wait=1)
        return Elector(client, "forebay-system", "forebay", identity, rng=random.Random(identity), **options)

    def answer(self, request: Request) -> Response:
        self.requests.append(request.method)
        if request.method == "GET":
            return _json(200, self.lease) if self.lease is not None else _failure(404, "NotFound")
        written = json.loads(request.body)
        if request.method == "POST" and self.lease is not None:
            return _failure(409, "AlreadyExists")
        if request.method == "PUT":
            if self.lease is None:
                return _failure(404, "NotFound")
            if written["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return _failure(409, "Conflict")
        self.write(written["spec"])
        return _json(200, self.lease)

    def write(self, spec: dict) -> None:
        self._version += 1
        metadata = {"name": "forebay", "namespace": "forebay-system", "uid": "u"}
        self.lease = {"kind": "Lease", "metadata": {**metadata, "resourceVersion": str(self._version)}, "spec": spec}
        self.writes.append(spec)

    @property
    def spec(self) -> dict:
        return self.lease["spec"]


def _json(status, body):
    return Response(status, body=json.dumps(body).encode())


def _failure(code, reason):
    return _json(code, {"kind": "Status", "code": code, "reason": reason, "message": reason})


def now() -> float:
    return asyncio.get_running_loop().time()


class Work:
    """The work of a leader: records when it started and stopped."""

    def __init__(self) -> None:
        self.started: float | None = None
        self.ended: float | None = None

    async def __call__(self) -> None:
        self.started = now()
        try:
            await asyncio.sleep(3600)
        finally:
            self.ended = now()


async def stop(task: asyncio.Task) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, LeadershipLost):
        await task


async def test_the_first_candidate_creates_the_lease_leads_and_renews_it():
    server, work = LeaseServer(), Work()
    elector = server.elector("a")
    running = asyncio.create_task(elector.run(work))
    await asyncio.sleep(7)
    assert work.started == 0
    assert elector.leader == "a"
    assert server.spec["holderIdentity"] == "a"
    assert server.spec["leaseDurationSeconds"] == 15
    assert server.spec["leaseTransitions"] == 0
    assert server.spec["acquireTime"] == "2030-01-01T00:00:00.000000Z"
    assert server.spec["renewTime"] == "2030-01-01T00:00:06.000000Z"
    # One request a renewal: what we wrote last is still there.
    assert server.requests == ["GET", "POST", "PUT", "PUT", "PUT"]
    await stop(running)


async def test_on_exit_the_work_ends_before_the_lease_is_released():
    server = LeaseServer()
    elector = server.elector("a")

    async def slow_to_stop() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(30)
            assert server.spec["holderIdentity"] == "a"
            assert elector.still_leader()

    running = asyncio.create_task(elector.run(slow_to_stop))
    await asyncio.sleep(1)
    await stop(running)
    assert now() == 31
    assert server.spec["holderIdentity"] == ""
    assert server.spec["leaseDurationSeconds"] == 1
    assert not elector.still_leader()


async def test_a_released_lease_is_acquired_within_a_retry_and_the_transition_is_counted():
    server, first, second = LeaseServer(), Work(), Work()
    a = asyncio.create_task(server.elector("a").run(first))
    await asyncio.sleep(1)
    b = asyncio.create_task(server.elector("b").run(second))
    await asyncio.sleep(20)
    assert second.started is None
    await stop(a)
    await asyncio.sleep(2 * 2.2)
    assert second.started is not None
    assert second.started >= first.ended
    assert server.spec["leaseTransitions"] == 1
    await stop(b)


async def test_run_returns_the_result_of_the_work():
    server = LeaseServer()

    async def work() -> str:
        await asyncio.sleep(5)
        return "done"

    assert await server.elector("a").run(work) == "done"
    assert server.spec["holderIdentity"] == ""


async def test_when_the_work_fails_the_lease_is_released_and_the_error_raised():
    server = LeaseServer()

    async def work() -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        await server.elector("a").run(work)
    assert server.spec["holderIdentity"] == ""


@pytest.mark.parametrize("renew_time", ["1970-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
async def test_the_clock_of_the_holder_does_not_matter_only_changes_of_the_lease(renew_time):
    server, work = LeaseServer(), Work()

    def renew() -> None:
        spec = {"holderIdentity": "far", "leaseDurationSeconds": 15, "renewTime": renew_time, "leaseTransitions": 4}
        server.write(spec)

    renew()
    running = asyncio.create_task(server.elector("a").run(work))
    for _ in range(5):
        await asyncio.sleep(10)
        renew()
    last_heard = now()
    assert work.started is None
    await asyncio.sleep(60)
    assert last_heard + 15 <= work.started <= last_heard + 15 + 2 * 2.2 + 0.1
    assert server.spec["leaseTransitions"] == 5
    await stop(running)


@pytest.mark.parametrize(("said", "seconds"), [(40, 40), (5, 5), (None, 15)])
async def test_a_lease_lasts_as_long_as_its_holder_says_and_else_as_long_as_ours(said, seconds):
    server, work = LeaseServer(), Work()
    lasting = {} if said is None else {"leaseDurationSeconds": said}
    server.write({"holderIdentity": "far", "renewTime": "2030-01-01T00:00:00.000000Z", **lasting})
    running = asyncio.create_task(server.elector("a").run(work))
    await asyncio.sleep(60)
    assert seconds <= work.started <= seconds + 2 * 2.2 + 0.1
    await stop(running)


async def test_a_leader_cut_off_from_the_server_stops_before_another_starts():
    server, first, second = LeaseServer(), Work(), Work()
    cut_off = asyncio.Event()

    async def trouble(request, carry_out):
        if cut_off.is_set():
            await asyncio.sleep(3600)
        return carry_out()

    a = server.elector("a", trouble)
    b = server.elector("b")
    running_a = asyncio.create_task(a.run(first))
    await asyncio.sleep(1)
    running_b = asyncio.create_task(b.run(second))
    await asyncio.sleep(4)
    cut_off.set()
    await asyncio.sleep(60)
    # Its last renewal began at 4 s.
    assert first.ended == 14
    assert second.started >= 4 + 15
    with pytest.raises(LeadershipLost, match="no answer within"):
        await running_a
    assert not a.still_leader()
    await stop(running_b)


@pytest.mark.parametrize("dies_at", [30.0, 30.5, 31.0, 31.5, 31.99])
async def test_a_dead_leader_is_replaced_within_the_lease_duration_and_two_seconds(dies_at):
    for seed in range(20):
        server, work = LeaseServer(), Work()
        began = now()

        async def silent_from_then_on(request, carry_out, began=began):
            if now() - began >= dies_at:
                await asyncio.sleep(3600)
            return carry_out()

        leader = asyncio.create_task(server.elector("a", silent_from_then_on).run(Work()))
        await asyncio.sleep(0.1)
        standby = asyncio.create_task(server.elector(f"b{seed}").run(work))
        await asyncio.sleep(60)
        # Not before the last renewal has run out, however late it was seen.
        assert 13 < work.started - began - dies_at < 17
        await stop(leader)
        await stop(standby)


async def test_errors_shorter_than_the_deadline_do_not_cost_the_lease():
    server, work = LeaseServer(), Work()
    answers = iter([None, None, 503, 500, "lost", None, None, None, 429, "never", None])

    async def trouble(request, carry_out):
        answer = next(answers, None)
        if isinstance(answer, int):
            return _failure(answer, "Trouble")
        if answer == "lost":
            carry_out()
            raise AnswerLost("the answer was lost", request)
        if answer == "never":
            raise AnswerLost("it never arrived", request)
        return carry_out()

    running = asyncio.create_task(server.elector("a", trouble).run(work))
    await asyncio.sleep(120)
    assert work.ended is None
    await stop(running)


async def test_a_renewal_whose_response_was_lost_is_recognised_as_our_own():
    server, work = LeaseServer(), Work()
    lose = iter([False, False, True])

    async def trouble(request, carry_out):
        response = carry_out()
        if next(lose, False):
            raise AnswerLost("the answer was lost", request)
        return response

    elector = server.elector("a", trouble)
    running = asyncio.create_task(elector.run(work))
    await asyncio.sleep(5)
    # The stale version conflicts once; then the lease is read, found to be ours, and renewed.
    assert server.requests == ["GET", "POST", "PUT", "PUT", "GET", "PUT"]
    assert elector.still_leader()
    assert server.spec["leaseTransitions"] == 0
    await stop(running)


async def test_a_creation_whose_response_was_lost_still_makes_a_leader():
    server, work = LeaseServer(), Work()
    lose = iter([False, True])

    async def trouble(request, carry_out):
        response = carry_out()
        if next(lose, False):
            raise AnswerLost("the answer was lost", request)
        return response

    running = asyncio.create_task(server.elector("a", trouble).run(work))
    await asyncio.sleep(10)
    assert work.started is not None
    assert server.spec["leaseTransitions"] == 0
    await stop(running)


async def test_one_dead_connection_leaves_time_for_a_second_attempt():
    server, work = LeaseServer(), Work()
    hang = iter([False, False, True])

    async def trouble(request, carry_out):
        if next(hang, False):
            await asyncio.sleep(3600)
        return carry_out()

    running = asyncio.create_task(server.elector("a", trouble).run(work))
    await asyncio.sleep(60)
    assert work.ended is None
    await stop(running)


async def test_a_leader_stops_when_another_process_has_acquired_the_lease():
    server, work = LeaseServer(), Work()
    elector = server.elector("a")
    running = asyncio.create_task(elector.run(work))
    await asyncio.sleep(3)
    server.write({"holderIdentity": "usurper", "leaseDurationSeconds": 15})
    await asyncio.sleep(2)
    assert work.ended == 4
    assert elector.leader == "usurper"
    with pytest.raises(LeadershipLost, match="usurper holds the lease"):
        await running
    # What is not ours is not released.
    assert server.spec["holderIdentity"] == "usurper"


async def test_a_lease_that_was_deleted_is_created_again():
    server, work = LeaseServer(), Work()
    running = asyncio.create_task(server.elector("a").run(work))
    await asyncio.sleep(3)
    server.lease = None
    await asyncio.sleep(30)
    assert server.spec["holderIdentity"] == "a"
    assert work.ended is None
    await stop(running)


async def test_a_paused_process_learns_from_the_clock_alone_that_it_may_no_longer_act():
    server = LeaseServer()
    elector = server.elector("a")
    acted: list[float] = []

    async def work() -> None:
        while True:
            await asyncio.sleep(0.5)
            if elector.still_leader():
                acted.append(now())

    running = asyncio.create_task(elector.run(work))
    await asyncio.sleep(5)
    # SIGSTOP, then SIGCONT 20 s later: no task ran, the clock did. The last renewal began at 4 s.
    asyncio.get_running_loop()._now += 20
    assert not elector.still_leader()
    with pytest.raises(LeadershipLost, match="paused"):
        await running
    assert max(acted) < 14


async def test_still_leader_counts_from_the_start_of_the_renewal_not_from_its_response():
    server = LeaseServer()

    async def slow(request, carry_out):
        response = carry_out()
        await asyncio.sleep(2)
        return response

    elector = server.elector("a", slow)
    assert not elector.still_leader()
    running = asyncio.create_task(elector.run(Work()))
    await asyncio.sleep(5)
    # GET and POST took until 4 s and began at 0 s; nothing was renewed since.
    assert elector.still_leader(9.9)
    assert not elector.still_leader(10.0)
    await stop(running)


async def test_of_many_candidates_one_leads_at_a_time_through_every_kind_of_trouble():
    server = LeaseServer()
    rng = random.Random(7)
    leading: list[str] = []

    async def trouble(request, carry_out):
        await asyncio.sleep(rng.random() * 0.3)
        fate = rng.random()
        if fate < 0.15:
            return _failure(503, "ServiceUnavailable")
        response = carry_out()
        if fate < 0.3:
            raise AnswerLost("the answer was lost", request)
        if fate < 0.35:
            await asyncio.sleep(20)
        return response

    async def candidate(name: str) -> None:
        elector = server.elector(name, trouble)

        async def lead() -> None:
            leading.append(name)
            assert leading == [name]
            try:
                while True:
                    await asyncio.sleep(0.1)
                    assert elector.still_leader()
                    assert leading == [name]
            finally:
                leading.remove(name)

        while True:
            with suppress(LeadershipLost):
                await asyncio.wait_for(elector.run(lead), rng.uniform(20, 200))

    async def forever(name: str) -> None:
        while True:
            with suppress(TimeoutError):
                await candidate(name)

    tasks = [asyncio.create_task(forever(name)) for name in "abc"]
    await asyncio.sleep(3600)
    for task in tasks:
        assert not task.done()
        task.cancel()
    await asyncio.wait(tasks)
    assert len({spec["holderIdentity"] for spec in server.writes}) == 4
    assert server.spec["leaseTransitions"] > 10


async def test_new_leaders_are_reported_and_the_last_error_says_why_there_is_none():
    server = LeaseServer()
    seen: list[str] = []
    forbidden = True

    async def trouble(request, carry_out):
        return _failure(403, "Forbidden") if forbidden else carry_out()

    elector = server.elector("a", trouble, on_new_leader=seen.append)
    running = asyncio.create_task(elector.run(Work()))
    await asyncio.sleep(5)
    assert "403 Forbidden" in elector.last_error
    assert "403 Forbidden" in elector.unreachable
    forbidden = False
    await asyncio.sleep(5)
    assert elector.last_error is None
    assert elector.unreachable is None
    assert seen == ["a"]
    await stop(running)


async def test_events_of_the_lease_tell_when_a_process_became_leader_and_stopped_leading():
    class Heard:
        def __init__(self) -> None:
            self.notes: list[str] = []

        def event(self, about, *, reason, note) -> None:
            assert (about.kind, about.namespace, about.name) == ("Lease", "forebay-system", "forebay")
            assert reason == "LeaderElection"
            self.notes.append(note)

    server, heard = LeaseServer(), Heard()
    running = asyncio.create_task(server.elector("a", recorder=heard).run(Work()))
    await asyncio.sleep(3)
    server.write({"holderIdentity": "usurper", "leaseDurationSeconds": 15})
    await asyncio.sleep(3)
    assert heard.notes == ["a became leader", "a stopped leading"]
    await stop(running)


async def test_a_renewal_in_flight_at_the_end_does_not_prevent_the_release():
    server = LeaseServer()

    async def slow_answers(request, carry_out):
        response = carry_out()
        await asyncio.sleep(0.5)
        return response

    running = asyncio.create_task(server.elector("a", slow_answers).run(Work()))
    # Elected at 1 s, so that a renewal is written at 3 s and its answer still on its way at 3.2 s.
    await asyncio.sleep(3.2)
    await stop(running)
    assert server.requests[-4:] == ["PUT", "PUT", "GET", "PUT"]
    assert server.spec["holderIdentity"] == ""


async def test_after_a_second_cancellation_the_lease_is_no_longer_renewed():
    server, freed = LeaseServer(), asyncio.Event()

    async def stubborn():
        try:
            await asyncio.sleep(3600)
        finally:
            await freed.wait()

    running = asyncio.create_task(server.elector("a").run(stubborn))
    await asyncio.sleep(1)
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(1)
    assert running.cancelled()
    written = len(server.writes)
    await asyncio.sleep(60)
    assert len(server.writes) == written
    freed.set()
    await asyncio.sleep(0)


def test_terms_that_could_make_two_leaders_are_invalid():
    with pytest.raises(ValueError, match="duration > renew deadline"):
        Terms(duration=10, renew_deadline=10)
    with pytest.raises(ValueError, match="retry"):
        Terms(retry=9)


def test_identities_are_unique_to_a_process():
    assert unique_identity() != unique_identity()


async def test_a_candidate_that_cannot_reach_the_server_asks_again_every_few_seconds_and_says_each_error_once(capsys):
    server, at, code = LeaseServer(), [], 503

    async def trouble(_request, _apply):
        at.append(now())
        return _failure(code, "ServiceUnavailable" if code == 503 else "Forbidden")

    running = asyncio.create_task(server.elector("a", trouble).run(Work()))
    await asyncio.sleep(300)
    waits = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert all(2 <= wait <= 2 * 2.2 + 0.001 for wait in waits), waits
    assert max(waits) - min(waits) > 1, "candidates must not all ask at the same moment"
    assert capsys.readouterr().out.count("lease attempt failed") == 1
    code = 403
    await asyncio.sleep(60)
    assert capsys.readouterr().out.count("lease attempt failed") == 1
    await stop(running)


async def test_a_new_leader_is_reported_once_however_often_it_renews(capsys):
    server, leaders = LeaseServer(), []
    running = asyncio.create_task(server.elector("a", on_new_leader=leaders.append).run(Work()))
    await asyncio.sleep(60)
    await stop(running)
    assert leaders == ["a"]
    assert capsys.readouterr().out.count("became leader") == 1


async def test_two_electors_without_a_source_of_chance_wait_differently():
    waits = []
    for _ in range(2):
        at = []

        async def handle(_request, at=at):
            at.append(now())
            return _failure(503, "ServiceUnavailable")

        client = Client(InProcess(handle), "http://server", max_throttle_wait=1)
        running = asyncio.create_task(Elector(client, "forebay-system", "forebay", "a").run(Work()))
        await asyncio.sleep(60)
        await stop(running)
        waits.append([round(later - earlier, 6) for earlier, later in itertools.pairwise(at)])
    assert waits[0] != waits[1]
