"""Events on the objects that users look at: each told once, again before it expires, and few of many alike."""

import asyncio
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from forebay.api.parts import Condition, Truth
from forebay.embedded.api.kinds import EVENT_KIND
from forebay.embedded.controllers.nodes import register_node
from forebay.engine.apply.events import Events
from forebay.kube.events import EventRecorder
from forebay.kube.types import ObjectReference
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner
from forebay.reconcile.decisions import OwnerEvent, PodEvent, UnreadableInstance
from tests.engine.views_world import watched_cluster
from tests.unit.demand.builders import NOW, pod, record


class Recorded:
    def __init__(self, watched, recorder):
        self.watched, self.store, self.events = watched, watched.store, Events(recorder, watched.views)

    async def told(self):
        """Object, type and text of the events so far, counted."""
        await asyncio.sleep(2)
        return [
            (each["regarding"]["name"] if "regarding" in each else each["involvedObject"]["name"], each["type"])
            for each in sorted(self.store.list(EVENT_KIND), key=lambda each: each["metadata"]["name"])
        ]

    def pod(self, name, **spec):
        return pod(name, uid=self.watched.pod(name, **spec)["uid"])


@asynccontextmanager
async def recorded():
    async with watched_cluster() as watched, EventRecorder(watched.client, instance="one") as recorder:
        yield Recorded(watched, recorder)


async def test_a_pod_is_told_a_new_reason_at_once_a_new_sentence_later_and_the_same_again_before_it_expires():
    async with recorded() as it:
        waits = pod()

        def tell(sentence, reason=Reason.NO_OFFER_FITS, *, warning=True):
            return it.events.pod_event(PodEvent(pod=waits, reason=reason, sentence=sentence, warning=warning))

        assert tell("None of 3 offers fits.")
        assert not tell("None of 3 offers fits.")
        assert not tell("None of 4 offers fits."), "figures do not make it another"
        assert not tell("Too dear."), "a new sentence waits"
        assert tell("Held.", Reason.HELD_BY_BUDGET, warning=False)
        assert tell("None of 3 offers fits.")
        assert set(await it.told()) == {("train", "Normal"), ("train", "Warning")}
        await asyncio.sleep(300)
        assert not tell("None of 9 offers fits.")
        assert tell("Too dear.")
        await asyncio.sleep(2999)
        assert not tell("Too dear.")
        await asyncio.sleep(1)
        assert tell("Too dear.")


async def test_an_owner_is_told_each_reason_with_how_many_pods_wait_and_an_unreadable_record_is_told_once():
    async with recorded() as it:
        owner = Owner("Job", "sweep", "u")

        def tell(reason, pods=9):
            event = OwnerEvent(namespace="default", owner=owner, pods=pods, reason=reason, sentence="s.", warning=True)
            return it.events.owner_event(event)

        assert tell(Reason.NO_OFFER_FITS)
        assert tell(Reason.HELD_BY_BUDGET)
        assert not tell(Reason.NO_OFFER_FITS, pods=10)
        odd = UnreadableInstance(name="odd", reason=Reason.RECONCILE_FAILED, sentence="A field is missing.")
        assert it.events.unreadable_instance(odd)
        assert not it.events.unreadable_instance(odd)
        assert sorted(await it.told()) == [("odd", "Warning"), ("sweep", "Warning"), ("sweep", "Warning")]
        notes = {each.get("note") or each["message"] for each in it.store.list(EVENT_KIND)}
        assert "9 pods of this Job wait for capacity. s." in notes


async def test_what_is_told_of_a_waiting_pod_and_of_many_pods_of_one_owner_is_in_the_log_once():
    with capture_logs() as logged:
        async with recorded() as it:
            alone = PodEvent(pod=pod(), reason=Reason.HELD_BY_BUDGET, sentence="Held.", warning=False)
            of_job = OwnerEvent(
                namespace="team",
                owner=Owner("Job", "sweep", "u"),
                pods=9,
                reason=Reason.NO_OFFER_FITS,
                sentence="None fits.",
                warning=True,
            )
            for _ in range(2):
                it.events.pod_event(alone)
                it.events.owner_event(of_job)
            it.events.transition(record("n1"), Reason.LAUNCH_FAILED, "No.")
            it.events.transition(record("n1"), Reason.NODE_READY, "Ready.")
            quota = ObjectReference(kind="GPUWorkloadBudget", namespace="team", name="quota")
            it.events.about(quota, Reason.QUOTA_EXCEEDED, "Used up.", warning=True)

    others = [each for each in logged if each["event"] in {"instance transition", "object event"}]
    assert [(each["event"], each["log_level"], each["message"]) for each in others] == [
        ("instance transition", "warning", "No."),
        ("instance transition", "info", "Ready."),
        ("object event", "warning", "Used up."),
    ]
    assert (others[0]["instance"], others[2]["kind"], others[2]["object"]) == ("n1", "GPUWorkloadBudget", "team/quota")
    found = [each for each in logged if each["event"] in {"pod event", "owner event"}]
    assert [(each["event"], each["log_level"], each["reason"], each["message"]) for each in found] == [
        ("pod event", "info", "HeldByBudget", "Held."),
        ("owner event", "warning", "NoOfferFits", "9 pods of this Job wait for capacity. None fits."),
    ]
    assert (found[0]["pod"], found[1]["owner"]) == ("default/train", "Job team/sweep")


async def test_a_transition_is_told_on_the_machine_its_node_and_the_pods_that_still_wait_for_it():
    async with recorded() as it:
        register_node(it.store, "n1", allocatable={"pods": 10}, labels={}, taints=[])
        waits, bound = it.pod("waits"), it.pod("bound", nodeName="n1")
        other = pod("other")
        await asyncio.sleep(1)

        it.events.transition(record("n1", pods=(waits, bound, other)), Reason.NODE_READY, "Ready.")
        assert sorted(await it.told()) == [("n1", "Normal"), ("n1", "Normal"), ("waits", "Normal")]
        remote = record("far", pods=(bound,), delivers=Delivery.CONTAINER)
        it.events.transition(remote, Reason.LAUNCH_FAILED, "No.")
        assert ("bound", "Warning") in await it.told(), "a remote pod is bound all the time"


async def test_of_many_pods_alike_a_few_are_told():
    async with recorded() as it:
        crowd = [it.pod(f"p{number:02}") for number in range(20)]
        await asyncio.sleep(1)
        for number, each in enumerate(crowd):
            it.events.transition(record(f"m{number}", pods=(each,)), Reason.LAUNCH_STARTED, "s")
        told = [name for name, _ in await it.told() if name.startswith("p")]
        assert told == [f"p{number:02}" for number in range(8)]
        await asyncio.sleep(300)
        it.events.transition(record("later", pods=(crowd[-1],)), Reason.LAUNCH_STARTED, "s")
        assert "p19" in [name for name, _ in await it.told()]


async def test_a_condition_is_told_when_its_status_or_reason_changes_and_a_bad_one_is_a_warning():
    async with recorded() as it:

        def condition(status, reason="R", message="m"):
            return Condition(type="Ready", status=status, reason=reason, message=message, last_transition_time=NOW)

        def tell(before, after, name="lab", **fields):
            about = ObjectReference(kind="GPUNodePool", namespace="default", name=name)
            it.events.condition(about, before, after, Reason.NO_CAPACITY, "s", **fields)

        fine, bad = condition(Truth.TRUE), condition(Truth.FALSE)
        tell([fine], [condition(Truth.TRUE, message="another")])
        assert await it.told() == []
        tell([], [fine], "new")
        tell([fine], [bad], "turned")
        tell([bad], [condition(Truth.FALSE, "Other")], "other", bad=Truth.TRUE)
        tell([], [condition(Truth.UNKNOWN)], "unchecked")
        assert set(await it.told()) == {
            ("new", "Normal"),
            ("turned", "Warning"),
            ("other", "Normal"),
            ("unchecked", "Normal"),
        }
