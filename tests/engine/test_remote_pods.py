"""Remote pods get the status of their containers, and Jobs end by it as by a kubelet's."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, Transition
from forebay.api.meta import ObjectMeta
from forebay.api.parts import PodRef
from forebay.embedded.api.kinds import CRD_KIND, JOB_KIND, POD_KIND
from forebay.embedded.controllers.nodes import register_node
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.counts import Counts
from forebay.engine.sources.sources import Sources
from forebay.engine.views import watching
from forebay.engine.virtual_node.pod_statuses import RemotePods
from forebay.engine.virtual_node.remote_work import RemoteWork
from forebay.install.crds import custom_resource_definitions
from forebay.kube.client import Client
from forebay.kube.pods import PODS
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery, Source, SourceKey
from forebay.net.clock import now
from forebay.net.in_process import InProcess
from forebay.offload.binding import binding, plain_binding
from forebay.offload.record_progress import ReportedExit
from tests.net.faults import Answer, Faulty, When

NODE = "runpod-virtual-node"
S = InstanceState


class Remote:
    """Jobs whose pods are bound to the virtual node, and records of their containers."""

    def __init__(self, cluster):
        self.store = cluster.store
        self.outage = When(lambda _: False, Answer(503))
        self.writes = []
        self.client = Client(Faulty(InProcess(cluster.handler), self._faults), "http://embedded")
        self.remote = RemotePods(self.client, now)
        self.records = {}
        self.reports = {}
        register_node(self.store, NODE, allocatable={"pods": 100}, labels={}, taints=[])

    def _faults(self, request):
        if request.method in {"PATCH", "DELETE"}:
            self.writes.append(request)
        return self.outage(request)

    def job(self, **spec):
        container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        written = {"metadata": {"name": "train", "namespace": "default"}, "spec": {"template": template, **spec}}
        self.store.create(JOB_KIND, written)

    @property
    def the_job(self):
        return self.store.find(JOB_KIND, "default", "train")

    def pods(self):
        return self.store.list(POD_KIND)

    async def bound(self, body=binding):
        """The one pod that is not bound yet, bound."""
        await asyncio.sleep(1)
        (pod,) = [each for each in self.pods() if not each["spec"].get("nodeName")]
        meta = pod["metadata"]
        written = body("default", meta["name"], meta["uid"])
        await self.client.post_subresource(PODS, meta["name"], "default", "binding", written)
        return meta["name"], meta["uid"]

    def container(self, pod, *steps, **status):
        """The record of the pod's container, which has just gone through these states."""
        name, uid = pod
        moment = now()
        transitions = tuple(
            Transition(state=state, at=moment, reason=reason, message=f"{reason}.") for state, reason in steps
        )
        self.records[uid] = GPUInstance(
            metadata=ObjectMeta(name=f"gpu-{name}", uid=f"record-{uid}", creation_timestamp=moment),
            spec=GPUInstanceSpec(
                provider="runpod",
                delivers=Delivery.CONTAINER,
                hourly_price="0.44",
                pods=(PodRef(namespace="default", name=name, uid=uid),),
            ),
            status=GPUInstanceStatus(
                state=steps[-1][0], instance_id="pod1", transitions=transitions, message="So it is.", **status
            ),
        )

    async def sync(self):
        pods = [each for each in (await self.client.list_all(PODS)).items if each.node == NODE]
        await self.remote.sync(pods, self.records.values(), self.reports)
        await asyncio.sleep(1)

    def pod(self, name):
        return self.store.find(POD_KIND, "default", name)

    def waiting(self, name):
        """What the container of the pod waits for."""
        return self.pod(name)["status"]["containerStatuses"][0]["state"]["waiting"]


@asynccontextmanager
async def remote_cluster():
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        yield Remote(cluster)


RUNNING = (S.RUNNING, Reason.CONTAINER_RUNNING)
FINISHED = (S.FINISHED, Reason.CONTAINER_FINISHED)
IGNORES_DISRUPTIONS = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


def condition(job):
    return [(each["type"], each["reason"]) for each in job["status"].get("conditions", ())][-1:]


async def test_a_pod_waits_runs_and_completes_its_job():
    async with remote_cluster() as world:
        world.job()
        pod = await world.bound()
        world.container(pod, (S.LAUNCHED, Reason.LAUNCH_ACCEPTED))
        await world.sync()
        assert world.waiting(pod[0])["reason"] == "ContainerCreating"
        world.container(pod, RUNNING)
        await world.sync()
        assert world.pod(pod[0])["status"]["phase"] == "Running"
        assert world.the_job["status"]["ready"] == 1
        marks = world.pod(pod[0])["metadata"]
        assert marks["labels"]["runpod.io/pod-id"] == "pod1"
        assert marks["annotations"]["runpod.io/cost-per-hr"] == "0.44"
        world.container(pod, RUNNING, FINISHED, exit_code=0)
        await world.sync()
        assert condition(world.the_job) == [("Complete", "CompletionsReached")]


async def test_the_exit_code_that_the_shell_reported_fails_the_job_by_its_policy():
    async with remote_cluster() as world:
        rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
        world.job(podFailurePolicy={"rules": [rule]})
        pod = await world.bound()
        world.container(pod, RUNNING)
        world.reports[f"record-{pod[1]}"] = ReportedExit(exit_code=42, at=now() + timedelta(seconds=1))
        await world.sync()
        terminated = world.pod(pod[0])["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (42, "Error")
        assert condition(world.the_job) == [("Failed", "PodFailurePolicy")]


async def test_a_lost_container_is_a_disruption():
    async with remote_cluster() as world:
        world.job()
        pod = await world.bound()
        world.container(pod, RUNNING, (S.GONE, Reason.VANISHED))
        await world.sync()
        status = world.pod(pod[0])["status"]
        assert status["phase"] == "Failed"
        assert "DisruptionTarget" in {each["type"] for each in status["conditions"]}


async def test_a_deleted_pod_stays_until_its_container_is_proven_gone():
    async with remote_cluster() as world:
        world.job()
        pod = await world.bound()
        world.container(pod, RUNNING)
        await world.sync()
        world.store.delete(JOB_KIND, "default", "train")
        world.store.delete(POD_KIND, "default", pod[0])
        world.container(pod, RUNNING, (S.TERMINATING, Reason.NOT_NEEDED))
        await world.sync()
        assert world.pod(pod[0]) is not None
        world.container(pod, RUNNING, (S.GONE, Reason.NOT_NEEDED))
        await world.sync()
        assert world.pod(pod[0]) is None


@pytest.mark.parametrize("before", [(), ((S.LAUNCHED, Reason.LAUNCH_ACCEPTED),), (RUNNING,)])
@pytest.mark.parametrize("policy", [{"podReplacementPolicy": "Failed"}, {"podFailurePolicy": IGNORES_DISRUPTIONS}])
async def test_a_deleted_pod_fails_once_its_container_is_gone_and_its_job_goes_on(before, policy):
    async with remote_cluster() as world:
        world.job(backoffLimit=1, **policy)
        pod = await world.bound()
        if before:
            world.container(pod, *before)
        await world.sync()
        world.store.delete(POD_KIND, "default", pod[0])
        if before:
            world.container(pod, *before, (S.TERMINATING, Reason.NOT_NEEDED))
            await world.sync()
            assert world.pod(pod[0])["status"]["phase"] in {"Pending", "Running"}
            assert len(world.pods()) == 1
            world.container(pod, *before, (S.GONE, Reason.NOT_NEEDED))
        await world.sync()
        await asyncio.sleep(60)
        # The user's own deletion is no disruption: it counts, as on any node.
        assert world.the_job["status"]["failed"] == 1
        (following,) = world.pods()
        assert following["metadata"]["uid"] != pod[1]


async def test_a_command_that_ended_before_its_pod_was_deleted_keeps_its_exit_code():
    async with remote_cluster() as world:
        world.job(podReplacementPolicy="Failed")
        pod = await world.bound()
        world.container(pod, RUNNING)
        await world.sync()
        world.store.delete(POD_KIND, "default", pod[0])
        world.reports[f"record-{pod[1]}"] = ReportedExit(exit_code=0, at=now() + timedelta(seconds=1))
        world.container(pod, RUNNING, (S.GONE, Reason.NOT_NEEDED))
        await world.sync()
        assert condition(world.the_job) == [("Complete", "CompletionsReached")]


async def test_a_pod_of_nobody_waits_with_a_reason_and_is_written_once():
    async with remote_cluster() as world:
        world.job()
        pod = await world.bound(plain_binding)
        await world.sync()
        assert world.pod(pod[0])["status"]["reason"] == "NotSupported"
        written = len(world.writes)
        await world.sync()
        await world.sync()
        assert len(world.writes) == written


async def test_a_pod_that_waits_for_longer_than_its_records_are_kept_goes_on_waiting():
    async with remote_cluster() as world:
        world.job()
        pod = await world.bound()
        world.container(pod, (S.GONE, Reason.NO_CAPACITY))
        await world.sync()
        world.records.clear()
        await world.sync()
        status = world.pod(pod[0])["status"]
        assert (status["phase"], status.get("reason")) == ("Pending", None)
        assert world.waiting(pod[0]) == {"reason": "ContainerCreating", "message": "Waiting for a remote container."}


async def test_an_outage_is_made_up_for_in_the_next_round():
    async with remote_cluster() as world:
        world.job()
        pod = await world.bound()
        world.container(pod, RUNNING)
        world.outage = When(lambda request: request.method == "PATCH", Answer(503))
        await world.sync()
        assert world.pod(pod[0])["status"]["phase"] == "Pending"
        world.outage = When(lambda _: False, Answer(503))
        await world.sync()
        assert world.pod(pod[0])["status"]["phase"] == "Running"


async def test_a_replica_that_lost_its_lease_writes_no_statuses_and_the_leader_does(capsys):
    async with remote_cluster() as world:
        for definition in custom_resource_definitions():
            world.store.create(CRD_KIND, definition)
        leads = False
        source = Source(
            key=SourceKey("far", "runpod"), capabilities=Capabilities(deliveries=(Delivery.CONTAINER,)), offers=()
        )
        async with watching(world.client.transport, "http://embedded", clock=now) as views:
            sources = Sources(lambda: None, now)
            work = RemoteWork(
                world.client,
                "http://embedded",
                views,
                sources,
                identity="one",
                still_leader=lambda: leads,
                clock=now,
                counts=Counts(),
            )
            running = asyncio.ensure_future(work.run())
            world.job()
            name, _ = await world.bound(plain_binding)
            work.look([source], (), ())
            await asyncio.sleep(60)
            assert world.writes == []
            assert "remote containers are offered" in capsys.readouterr().out
            leads = True
            await asyncio.sleep(60)
            assert world.pod(name)["status"]["reason"] == "NotSupported", "nobody has ordered a container for it"
            running.cancel()
            await asyncio.wait({running})
            await sources.close()
