"""The capacity condition of pods: written for all that still wait, by whoever leads, and not against a refusal."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from forebay.api.names import CAPACITY_CONDITION
from forebay.embedded.api.kinds import POD_KIND
from forebay.embedded.controllers.nodes import register_node
from forebay.engine.apply.capacity_conditions import CapacityConditions
from forebay.engine.counts import Counts
from forebay.kube.right_of_way import RightOfWay
from forebay.model.reasons import Reason
from forebay.reconcile.decisions import CapacityChange, ReportCapacity
from tests.engine.views_world import watched_cluster


class Written:
    def __init__(self, watched):
        self.watched, self.leads = watched, True
        self.conditions = CapacityConditions(watched.client, watched.views, lambda: self.leads, Counts(), RightOfWay())

    async def pods(self, *names, **spec):
        for name in names:
            self.watched.pod(name, **spec)
        await asyncio.sleep(1)
        return [self.watched.views.pods.get(("default", name)) for name in names]

    def report(self, changes=(), refreshes=(), *, message="No room.", bound=False):
        def of(pods):
            return tuple(
                CapacityChange(pod=each, reason=Reason.NO_OFFER_FITS, message=message, bound=bound) for each in pods
            )

        self.conditions.report(ReportCapacity(changes=of(changes), refreshes=of(refreshes)))

    def told(self):
        """The condition's status and message of each pod that has one."""
        return {
            pod["metadata"]["name"]: (each["status"], each["message"])
            for pod in self.watched.store.list(POD_KIND)
            for each in pod.get("status", {}).get("conditions", ())
            if each["type"] == CAPACITY_CONDITION
        }


@asynccontextmanager
async def written():
    async with watched_cluster() as watched:
        made = Written(watched)
        running = asyncio.ensure_future(made.conditions.run())
        yield made
        running.cancel()
        await asyncio.wait({running})


async def test_reasons_that_last_are_written_changes_first_and_then_what_only_needs_new_words():
    async with written() as it:
        changed, *refreshed = await it.pods("a", "b", "c")
        it.report([changed], refreshed)
        assert len(it.conditions) == 3
        await asyncio.sleep(0.9)
        assert it.told() == {}, "most pods of a small cluster are placed sooner"
        await asyncio.sleep(0.15)
        assert it.told() == {"a": ("False", "No room."), "b": ("False", "No room.")}
        await asyncio.sleep(1)
        assert set(it.told()) == {"a", "b", "c"}
        assert (it.conditions.written, len(it.conditions)) == (3, 0)
        it.report([], [], message="x")
        await asyncio.sleep(5)
        assert it.conditions.written == 3


async def test_what_a_later_tick_does_not_want_any_more_or_is_there_already_is_not_written():
    async with written() as it:
        first, second = await it.pods("a", "b")
        it.report([first])
        it.report([second])
        await asyncio.sleep(2)
        assert set(it.told()) == {"b"}
        (known,) = (it.watched.views.pods.get(("default", "b")),)
        assert known.capacity == "NoOfferFits: No room."
        it.report([known])
        await asyncio.sleep(2)
        assert it.conditions.written == 1


async def test_a_pod_that_is_bound_is_told_so_and_not_that_it_waits():
    async with written() as it:
        register_node(it.watched.store, "n1", allocatable={"pods": 10}, labels={}, taints=[])
        (bound,) = await it.pods("a", nodeName="n1")
        # As the tick saw it.
        it.report([replace(bound, node=None)])
        await asyncio.sleep(2)
        assert it.told() == {}
        (waits,) = await it.pods("w")
        it.report([waits], bound=True)
        await asyncio.sleep(2)
        assert it.told() == {}


async def test_a_replica_that_lost_its_lease_writes_none():
    async with written() as it:
        it.leads = False
        it.report(await it.pods("a"))
        await asyncio.sleep(5)
        assert it.told() == {}


async def test_an_outage_is_waited_out_and_a_refusal_is_not_repeated_for_a_while():
    async with written() as it:
        pods = await it.pods("a", "b")
        sent = []

        def patches(request):
            sent.extend([request] if request.method == "PATCH" else [])
            return request.method == "PATCH"

        it.watched.refuse(patches, 403)
        it.report(pods)
        await asyncio.sleep(3)
        assert (len(sent), it.told()) == (2, {})
        it.report(pods)
        await asyncio.sleep(300)
        assert len(sent) == 2
        await asyncio.sleep(301)
        it.watched.refuse(patches, 503)
        it.report(pods)
        await asyncio.sleep(3)
        assert len(sent) == 3, "the next one after a pause"
        it.watched.faults.clear()
        await asyncio.sleep(10)
        assert set(it.told()) == {"b"}
        it.report(pods)
        await asyncio.sleep(5)
        assert set(it.told()) == {"a", "b"}


@pytest.mark.parametrize(
    ("status", "event"), [(403, "capacity condition refused"), (503, "capacity condition not written")]
)
async def test_a_condition_that_could_not_be_written_is_in_the_log_with_its_pod_and_why(status, event):
    with capture_logs() as logged:
        async with written() as it:
            it.watched.refuse(lambda request: request.method == "PATCH", status)
            it.report(await it.pods("a"))
            await asyncio.sleep(3)
    told = [each for each in logged if each["event"] == event]
    assert told
    assert {(each["pod"], each["log_level"]) for each in told} == {("default/a", "warning")}
    assert all(str(status) in each["error"] for each in told)


async def test_a_refusal_is_forgotten_when_no_condition_of_the_pod_is_wanted_any_more():
    async with written() as it:
        first, second = await it.pods("a", "b")
        it.watched.refuse(lambda request: request.method == "PATCH", 403)
        it.report([first], [second])
        await asyncio.sleep(5)
        it.watched.faults.clear()
        it.report([], [second])
        it.report([first], [second])
        await asyncio.sleep(5)
        assert set(it.told()) == {"a"}, "that of the second is refused still"


async def test_new_words_for_the_same_wait_keep_since_when_it_lasts():
    async with written() as it:
        (waits,) = await it.pods("a")

        async def transition(message, pod):
            it.report([pod], message=message)
            await asyncio.sleep(60)
            (found,) = [
                each
                for each in it.watched.store.find(POD_KIND, "default", "a")["status"]["conditions"]
                if each["type"] == CAPACITY_CONDITION
            ]
            return found["message"], found["lastTransitionTime"]

        first = await transition("None of 3 fits.", waits)
        second = await transition("None of 4 fits.", it.watched.views.pods.get(("default", "a")))
        assert (first[0], second[0]) == ("None of 3 fits.", "None of 4 fits.")
        assert first[1] == second[1]
