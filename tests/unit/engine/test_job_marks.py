"""What the annotations of a remote Job say, and when its Job is left alone."""

import json
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest

from forebay.api.gpu_instance import InstanceState, Transition
from forebay.api.meta import ObjectMeta
from forebay.engine.virtual_node.job_marks import JobMarks
from forebay.kube.client import Client
from forebay.kube.jobs import Job, JobSpec, JobStatus
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner
from forebay.net.in_process import InProcess
from forebay.net.transport import Response
from tests.unit.demand.builders import NOW, ago, pod, record, running

S = InstanceState
OWNER = Owner("Job", "train", "uid-job")


def container(name, state=S.RUNNING, *, of=None, instance="", minutes=10, transitions=(), **status):
    """Ordered so many minutes ago."""
    return record(
        name,
        state,
        pods=() if of is None else (of,),
        delivers=Delivery.CONTAINER,
        born=ago(minutes=minutes),
        instance_id=instance or None,
        transitions=transitions,
        **status,
    )


def failed(name, *, of, minutes=10, **status):
    """A container that was launched and did not start."""
    end = Transition(state=S.GONE, reason=Reason.LAUNCH_TIMEOUT, message="Too slow.", at=ago(minutes=minutes))
    return container(name, S.GONE, of=of, minutes=minutes, transitions=(end,), failures=1, **status)


class Marked:
    """A Job with these pods, and an API server that has it."""

    def __init__(self, *pods, created=None, deadline=None, annotations=()):
        created = created or ago(hours=1)
        self.now, self.status, self.patches = NOW, 200, []
        self.job = Job(
            metadata=ObjectMeta(
                name="train",
                namespace="default",
                uid="uid-job",
                resource_version="1",
                creation_timestamp=created,
                annotations=dict(annotations),
            ),
            spec=JobSpec(active_deadline_seconds=deadline),
            status=JobStatus(start_time=created),
        )
        views = SimpleNamespace(pods={each.key: each for each in pods})
        client = Client(InProcess(self._answer), "http://server")
        self._marks = JobMarks(client, views, lambda of: self.job if of.owner == OWNER else None, lambda: self.now)

    async def _answer(self, request):
        self.patches.append(json.loads(request.body)["metadata"])
        if self.status == 200:
            changed = {**self.job.metadata.annotations, **self.patches[-1]["annotations"]}
            kept = {key: value for key, value in changed.items() if value is not None}
            metadata = msgspec.structs.replace(self.job.metadata, annotations=kept)
            self.job = msgspec.structs.replace(self.job, metadata=metadata)
        return Response(self.status, body=msgspec.json.encode(self.job))

    async def sync(self, *records, after=0):
        """What is written now, so many seconds later."""
        self.now += timedelta(seconds=after)
        before = len(self.patches)
        await self._marks.sync(records)
        return [
            {key.partition("/")[2]: value for key, value in each["annotations"].items()}
            for each in self.patches[before:]
        ]


TRAIN = pod(owner=OWNER)


async def test_a_job_gets_the_container_and_the_price_of_its_latest_pod():
    second = pod("second", owner=OWNER)
    it = Marked(TRAIN, second)
    new = container("a2", of=second, instance="i-2", minutes=5, hourly_price="0.9")
    old = container("c1", of=TRAIN, instance="i-1", minutes=9, hourly_price="1.1")
    (marks,) = await it.sync(new, old, container("a3", S.REQUESTED, of=second, minutes=1))
    assert marks == {"offloaded": "true", "pod-id": "i-2", "cost-per-hr": "0.9"}
    assert it.patches[0]["uid"] == "uid-job"
    assert await it.sync(new, old) == []
    assert await it.sync(new, old, after=60) == [], "nothing has changed"


@pytest.mark.parametrize(
    "stranger",
    [
        container("c1", instance="i-1"),
        container("c1", of=pod("missing", owner=OWNER), instance="i-1"),
        container("c1", of=pod(owner=OWNER, uid="another"), instance="i-1"),
        container("c1", of=running("alone"), instance="i-1"),
    ],
    ids=["of no pod", "its pod is gone", "another pod of the name", "a pod without a Job"],
)
async def test_a_job_gets_nothing_of_containers_that_are_not_of_its_pods(stranger):
    it = Marked(TRAIN, running("alone"))
    assert await it.sync(stranger) == []
    (marks,) = await it.sync(stranger, container("c2", of=TRAIN, instance="i-2"))
    assert marks["pod-id"] == "i-2"


async def test_what_failed_is_counted_and_the_next_attempt_announced_until_one_runs():
    it = Marked(TRAIN)
    one, two = failed("c1", of=TRAIN, minutes=9), failed("c2", of=TRAIN, minutes=5)
    (marks,) = await it.sync(two, one)
    assert marks["failure-count"] == "2"
    assert marks["retry-after"] > (await Marked(TRAIN).sync(one))[0]["retry-after"]
    assert "pod-id" not in marks
    (marks,) = await it.sync(one, two, container("c3", of=TRAIN, instance="i-3", minutes=1), after=60)
    assert (marks["pod-id"], marks["retry-after"]) == ("i-3", None)
    ended = failed("c3", of=TRAIN, minutes=1, instance="i-3")
    (marks,) = await it.sync(one, two, ended, after=60)
    assert marks["failure-count"] == "3"
    assert marks["retry-after"] is not None, "none of them runs any more"


async def test_of_several_containers_one_that_runs_is_enough():
    it = Marked(TRAIN)
    runs = container("c1", of=TRAIN, instance="i-1", minutes=9)
    (marks,) = await it.sync(runs, failed("c2", of=TRAIN, minutes=5, instance="i-2"))
    assert marks["failure-count"] == "1"
    assert "retry-after" not in marks


async def test_a_container_that_has_run_has_not_failed_to_start():
    ran = Transition(state=S.RUNNING, reason=Reason.CONTAINER_RUNNING, message="m", at=ago(minutes=9))
    end = Transition(state=S.GONE, reason=Reason.VANISHED, message="m", at=ago(minutes=5))
    (marks,) = await Marked(TRAIN).sync(
        container("c1", S.GONE, of=TRAIN, instance="i-1", transitions=(ran, end), failures=1)
    )
    assert marks == {"offloaded": "true", "pod-id": "i-1"}


async def test_a_new_job_is_left_to_its_controller_for_five_seconds():
    it = Marked(TRAIN, created=NOW)
    runs = container("c1", of=TRAIN, instance="i-1")
    assert await it.sync(runs) == []
    assert await it.sync(runs, after=4.9) == []
    assert len(await it.sync(runs, after=0.1)) == 1


async def test_a_job_is_left_alone_from_five_seconds_before_its_deadline():
    runs = container("c1", of=TRAIN, instance="i-1")
    assert len(await Marked(TRAIN, created=ago(seconds=54.9), deadline=60).sync(runs)) == 1
    assert await Marked(TRAIN, created=ago(seconds=55), deadline=60).sync(runs) == []
    assert await Marked(TRAIN, created=ago(seconds=500), deadline=60).sync(runs) == []


async def test_a_job_is_changed_once_in_thirty_seconds_and_another_one_meanwhile():
    it = Marked(TRAIN)
    assert len(await it.sync(container("c1", of=TRAIN, instance="i-1"))) == 1
    moved = container("c2", of=TRAIN, instance="i-2")
    assert await it.sync(moved, after=29.9) == []
    assert len(await it.sync(moved, after=0.1)) == 1
    assert it.job.metadata.annotations["runpod.io/pod-id"] == "i-2"


@pytest.mark.parametrize(("status", "told"), [(404, False), (409, False), (403, True), (503, True)])
async def test_a_job_that_could_not_be_marked_is_tried_again(status, told, capsys):
    it = Marked(TRAIN)
    it.status = status
    runs = container("c1", of=TRAIN, instance="i-1")
    assert len(await it.sync(runs)) == 1
    assert ("job not marked" in capsys.readouterr().out) is told
    it.status = 200
    assert len(await it.sync(runs, after=30)) == 1


async def test_what_is_known_of_a_job_is_forgotten_with_its_containers():
    it = Marked(TRAIN)
    runs = container("c1", of=TRAIN, instance="i-1")
    await it.sync(runs)
    await it.sync()
    it.job = msgspec.structs.replace(it.job, metadata=msgspec.structs.replace(it.job.metadata, annotations={}))
    assert len(await it.sync(runs)) == 1, "another Job of that UID there is none"
