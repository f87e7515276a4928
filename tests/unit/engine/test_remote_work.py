"""Which pods may leave, as a tick is told: those of marked Jobs, once read, while somebody offers containers."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from forebay.embedded.api.kinds import JOB_KIND, NODE_KIND, POD_KIND
from forebay.embedded.controllers import register_node
from forebay.engine.counts import Counts
from forebay.engine.sources.sources import Sources
from forebay.engine.virtual_node.remote_work import Offloading, RemoteWork
from forebay.kube.pods import PODS
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.model.workloads import Owner
from forebay.net.clock import now
from forebay.offload.binding import binding
from tests.engine.views_world import watched_cluster
from tests.net.faults import Answer
from tests.unit.demand.builders import pod as pending
from tests.unit.demand.builders import record

NODE = "runpod-virtual-node"
MARK = {"runpod.io/managed": "true"}
NOBODY = Offloading({}, ())


def source(*deliveries, offers=()):
    return Source(key=SourceKey("far", "runpod"), capabilities=Capabilities(deliveries=deliveries), offers=offers)


RUNPOD = source(Delivery.CONTAINER)
BOX = Offer(provider="runpod", instance_type="x", gpu_count=1, price=UsdPerHour(1), allocatable={})

FAR = msgspec.structs.replace(BOX, delivers=Delivery.CONTAINER)


class Remote:
    """Jobs, and what a tick is told of their pods."""

    def __init__(self, watched):
        self.watched, self.store, self.client, self.views = watched, watched.store, watched.client, watched.views
        self.sources, self.leads = Sources(lambda: None, now), True
        self.work = RemoteWork(
            self.client,
            "http://embedded",
            self.views,
            self.sources,
            identity="one",
            still_leader=lambda: self.leads,
            clock=now,
            counts=Counts(),
        )

    def job(self, name="train", **metadata):
        container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container], "imagePullSecrets": [{"name": "s"}]}}
        marked = {"name": name, "namespace": "default", "annotations": MARK, **metadata}
        self.store.create(JOB_KIND, {"metadata": marked, "spec": {"template": template}})

    async def pods(self):
        """Pending pods by the name of their Job."""
        await asyncio.sleep(1)
        return {each.owner.name if each.owner else each.name: each for each in self.views.pods.values()}

    def look(self, *pods, sources=(RUNPOD,), records=()):
        return self.work.look(sources, pods, records)

    def reads(self, *answers):
        """Requests for whole pods, which get these statuses."""
        seen, left = [], list(answers)

        def when(request):
            if request.method == "GET" and "/namespaces/default/pods/" in request.url:
                seen.append(request.url.rpartition("/")[2])
                return left.pop(0) if left else None
            return None

        self.watched.faults[:] = [when]
        return seen


@asynccontextmanager
async def remote():
    async with watched_cluster() as watched:
        world = Remote(watched)
        running = asyncio.ensure_future(world.work.run())
        yield world
        running.cancel()
        await asyncio.wait({running})
        await world.sources.close()


async def test_a_pod_of_a_marked_job_is_unread_at_first_and_then_portable_with_its_image_and_secrets():
    async with remote() as it:
        it.job()
        pod = (await it.pods())["train"]
        assert it.look(pod) == Offloading({}, (), frozenset({pod.uid})), "Jobs are not listed yet"
        await asyncio.sleep(5)
        assert it.look(pod).unread == {pod.uid}
        await asyncio.sleep(1)
        (found,) = it.look(pod).portable.values()
        assert (found.image, found.obstacles, found.pull_secrets) == ("work:1", (), ("s",))
        assert (found.job.name, found.job.annotations, found.job.suspended) == ("train", MARK, False)
        assert it.look(pod).unread == frozenset()


async def test_pods_that_are_not_of_a_marked_job_are_never_read():
    async with remote() as it:
        it.job("plain", annotations={})
        it.job("not", annotations={"runpod.io/managed": "false"})
        it.watched.pod("alone")
        pods = (await it.pods()).values()
        assert len(pods) == 3
        reads = it.reads()
        it.look(*pods)
        await asyncio.sleep(5)
        assert it.look(*pods) == NOBODY
        await asyncio.sleep(60)
        assert reads == []


async def test_the_pod_of_an_earlier_job_of_the_name_is_not_served():
    async with remote() as it:
        it.job()
        pod = (await it.pods())["train"]
        it.store.delete(JOB_KIND, "default", "train", propagation="Orphan")
        it.job()
        it.look(pod)
        await asyncio.sleep(5)
        assert it.look(pod) == NOBODY


@pytest.mark.parametrize(
    ("sources", "records", "needed"),
    [
        ((), (), False),
        ((source(Delivery.NODE, offers=(BOX,)),), (), False),
        ((source(Delivery.NODE, Delivery.CONTAINER, offers=(BOX,)),), (), False),
        ((source(Delivery.NODE, Delivery.CONTAINER, offers=(BOX, FAR)),), (), True),
        ((source(Delivery.CONTAINER, Delivery.NODE),), (), True),
        ((RUNPOD,), (), True),
        ((), (record(delivers=Delivery.CONTAINER),), True),
        ((), (record(delivers=Delivery.NODE),), False),
    ],
    ids=[
        "nobody",
        "machines",
        "machines now",
        "containers too",
        "containers first",
        "containers",
        "a container runs",
        "a machine runs",
    ],
)
async def test_nothing_runs_before_somebody_offers_containers_or_one_runs(sources, records, needed, capsys):
    async with remote() as it:
        it.look(sources=sources, records=records)
        await asyncio.sleep(10)
        assert ("remote containers are offered" in capsys.readouterr().out) is needed


async def test_a_pod_that_cannot_be_read_is_told_and_read_again_later(capsys):
    async with remote() as it:
        it.job()
        pod = (await it.pods())["train"]
        it.look(pod)
        await asyncio.sleep(5)
        reads = it.reads(Answer(500))
        it.look(pod)
        await asyncio.sleep(1)
        (found,) = it.look(pod).portable.values()
        assert "Forebay could not read the pod: " in found.obstacles[0]
        assert "pod not read" in capsys.readouterr().out
        assert len(reads) == 1, "not in every tick"
        await asyncio.sleep(11)
        it.look(pod)
        await asyncio.sleep(1)
        (found,) = it.look(pod).portable.values()
        assert (found.image, found.obstacles) == ("work:1", ())
        await asyncio.sleep(60)
        it.look(pod)
        assert len(reads) == 2, "once is enough"


async def test_of_many_new_pods_fifty_are_read_in_a_round_and_the_others_right_after():
    async with remote() as it:
        for number in range(60):
            it.job(f"job-{number:02}")
        pods = list((await it.pods()).values())
        it.look(*pods)
        await asyncio.sleep(5)
        reads = it.reads()
        it.look(*pods)
        await asyncio.sleep(1)
        assert len(reads) == len(set(reads)) == 60
        assert len(it.look(*pods).portable) == 60


async def test_a_pod_that_nobody_waits_for_any_more_is_forgotten():
    async with remote() as it:
        it.job()
        pod = (await it.pods())["train"]
        it.look(pod)
        await asyncio.sleep(5)
        reads = it.reads()
        it.look(pod)
        await asyncio.sleep(1)
        assert it.look(pod).portable
        assert it.look() == NOBODY
        it.look(pod)
        await asyncio.sleep(1)
        assert len(reads) == 2, "it is read anew"


async def test_a_pod_on_the_virtual_node_without_a_container_is_stranded():
    async with remote() as it:
        register_node(it.store, NODE, allocatable={"pods": 100}, labels={}, taints=[])
        it.job()
        pod = (await it.pods())["train"]
        body = binding("default", pod.name, pod.uid)
        await it.client.post_subresource(PODS, pod.name, "default", "binding", body)
        it.look()
        await asyncio.sleep(5)
        found = it.look()
        assert [each.uid for each in found.stranded] == [pod.uid]
        assert found.unread == {pod.uid}
        await asyncio.sleep(1)
        assert it.look().portable.keys() == {pod.uid}
        it.store.delete(POD_KIND, "default", pod.name, grace=30)
        await asyncio.sleep(1)
        assert it.look() == NOBODY, "it is on its way out"


async def test_only_pods_of_jobs_wait_until_jobs_are_listed():
    async with remote() as it:
        replica = pending("replica", owner=Owner("ReplicaSet", "web", "uid-web"))
        of_job = pending("worker", owner=Owner("Job", "train", "uid-job"))
        assert it.look(replica, pending("alone"), of_job) == Offloading({}, (), frozenset({of_job.uid}))


async def test_a_pod_that_lost_its_job_on_the_virtual_node_is_stranded_and_one_of_somebody_else_is_not():
    async with remote() as it:
        register_node(it.store, NODE, allocatable={"pods": 100}, labels={}, taints=[])
        container = {"name": "c", "image": "i"}
        for name, labels in (("left", MARK), ("plain", {})):
            metadata = {"name": name, "namespace": "default", "labels": labels}
            it.store.create(POD_KIND, {"metadata": metadata, "spec": {"containers": [container], "nodeName": NODE}})
        it.look()
        await asyncio.sleep(5)
        assert [each.name for each in it.look().stranded] == ["left"]


async def test_whoever_does_not_lead_reads_no_pod_and_keeps_no_node():
    async with remote() as it:
        it.leads = False
        it.job()
        pod = (await it.pods())["train"]
        it.look(pod)
        await asyncio.sleep(5)
        reads = it.reads()
        it.look(pod)
        await asyncio.sleep(60)
        assert reads == []
        assert it.store.find(NODE_KIND, None, NODE) is None
        it.leads = True
        await asyncio.sleep(20)
        assert len(reads) == 1


async def test_the_loop_is_woken_when_a_pod_was_read_and_not_again():
    async with remote() as it:
        it.job()
        pod = (await it.pods())["train"]
        it.look(pod)
        await asyncio.sleep(5)
        it.views.wake.clear()
        it.look(pod)
        await asyncio.sleep(1)
        assert it.views.wake.is_set()
        it.views.wake.clear()
        it.look(pod)
        await asyncio.sleep(9)
        assert not it.views.wake.is_set()
