"""A pod is bound to the virtual node and becomes a container; what stands against it is said before."""

import base64
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec
from forebay.api.instance_order import ContainerRecord
from forebay.api.meta import ObjectMeta
from forebay.api.parts import PodRef
from forebay.embedded.api.kinds import CONFIG_MAP_KIND, POD_KIND, SECRET_KIND
from forebay.embedded.controllers.nodes import register_node
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.apply.container_specs import ContainerNotReady, PodLost
from forebay.engine.virtual_node.pod_containers import PodContainers
from forebay.kube.client import Client
from forebay.model.secret_text import SecretText
from forebay.model.sources import Delivery
from forebay.net.in_process import InProcess
from forebay.net.transport import TransportError
from forebay.offload.exit_code import nonce_of
from tests.net.faults import Faulty, LoseAnswer, When

NODE = "runpod-virtual-node"
TOKEN = "planted-token-51c7"


def record(pod, uid="instance-1"):
    meta = pod["metadata"]
    spec = GPUInstanceSpec(
        provider="runpod",
        delivers=Delivery.CONTAINER,
        container=ContainerRecord(image="work:1", node_name=NODE),
        pods=(PodRef(namespace="default", name=meta["name"], uid=meta["uid"]),),
    )
    return GPUInstance(metadata=ObjectMeta(name="gpu-1", uid=uid), spec=spec)


def job_pod(store, name="train", container=None, **spec):
    fields = {
        "name": "main",
        "image": "work:1",
        "command": ["train", "$(MODE)"],
        "env": [
            {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        ],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        **(container or {}),
    }
    limited = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    written = {
        "restartPolicy": "Never",
        "containers": [fields],
        "tolerations": [limited | {"tolerationSeconds": 300}],
        **spec,
    }
    return store.create(POD_KIND, {"metadata": {"name": name, "namespace": "default"}, "spec": written})


class Remote:
    """What the pods need, and a client of the operator between which and the cluster answers may be lost."""

    def __init__(self, cluster, handler=None):
        self.store = cluster.store
        self.plan = When(lambda _: False, LoseAnswer())
        wire = Faulty(InProcess(handler or cluster.handler), self._faults)
        self.containers = PodContainers(Client(wire, "http://embedded"))
        register_node(self.store, NODE, allocatable={}, labels={"type": "virtual-kubelet"}, taints=[])

    def _faults(self, request):
        return self.plan(request)

    def provide(self):
        secret = {"token": base64.b64encode(TOKEN.encode()).decode()}
        self.store.create(SECRET_KIND, {"metadata": {"name": "keys", "namespace": "default"}, "data": secret})
        self.store.create(
            CONFIG_MAP_KIND, {"metadata": {"name": "settings", "namespace": "default"}, "data": {"mode": "fast"}}
        )

    def pod(self, name="train"):
        return self.store.find(POD_KIND, "default", name)

    async def resolve(self, pod):
        return await self.containers.resolve(record(pod))


@asynccontextmanager
async def remote_cluster():
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        yield Remote(cluster)


async def test_a_pod_is_bound_marked_and_becomes_its_container():
    async with remote_cluster() as remote:
        remote.provide()
        container = await remote.resolve(job_pod(remote.store))
        assert container.image == "work:1"
        assert container.command[4] == nonce_of("instance-1")
        assert container.command[-2:] == ("train", "fast")
        assert container.env == {"MODE": "fast"}
        assert container.secret_env == {"TOKEN": SecretText(TOKEN)}
        bound = remote.pod()
        assert bound["spec"]["nodeName"] == NODE
        assert bound["metadata"]["labels"]["runpod.io/managed"] == "true"
        assert bound["metadata"]["annotations"]["runpod.io/external"] == "true"
        assert not [each for each in bound["spec"]["tolerations"] if "tolerationSeconds" in each]
        assert TOKEN not in str(bound)


async def test_what_a_config_map_holds_for_volumes_is_no_variable():
    async with remote_cluster() as remote:
        remote.provide()
        metadata = {"name": "mixed", "namespace": "default"}
        binary = {"blob": base64.b64encode(b"\xff\x00").decode()}
        remote.store.create(CONFIG_MAP_KIND, {"metadata": metadata, "data": {"A": "1"}, "binaryData": binary})
        pod = job_pod(remote.store, container={"envFrom": [{"configMapRef": {"name": "mixed"}}]})
        assert (await remote.resolve(pod)).env == {"A": "1", "MODE": "fast"}


async def test_a_pod_is_marked_also_by_an_api_server_that_drops_labels_of_a_binding():
    """As Kubernetes 1.34 does."""
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:

        async def older(request):
            if request.url.endswith("/binding"):
                body = msgspec.json.decode(request.body)
                kept = {name: body["metadata"][name] for name in ("name", "namespace", "uid")}
                request = replace(request, body=msgspec.json.encode({**body, "metadata": kept}))
            return await cluster.handler(request)

        remote = Remote(cluster, older)
        remote.provide()
        await remote.resolve(job_pod(remote.store))
        bound = remote.pod()
        assert bound["spec"]["nodeName"] == NODE
        assert bound["metadata"]["labels"]["runpod.io/managed"] == "true"
        assert bound["metadata"]["annotations"]["runpod.io/external"] == "true"


async def test_it_is_safe_to_repeat_and_the_next_leader_gets_the_same_container():
    async with remote_cluster() as remote:
        remote.provide()
        pod = job_pod(remote.store)
        first = await remote.resolve(pod)
        before = remote.pod()["metadata"]["resourceVersion"]
        assert await remote.resolve(pod) == first
        assert remote.pod()["metadata"]["resourceVersion"] == before


async def test_a_binding_whose_answer_was_lost_is_found_again():
    async with remote_cluster() as remote:
        remote.provide()
        pod = job_pod(remote.store)
        remote.plan = When(lambda request: "/binding" in request.url, LoseAnswer())
        with pytest.raises(TransportError):
            await remote.resolve(pod)
        remote.plan = When(lambda _: False, LoseAnswer())
        assert (await remote.resolve(pod)).image == "work:1"
        assert remote.pod()["spec"]["nodeName"] == NODE


async def test_what_cannot_be_carried_is_said_and_the_pod_is_not_bound():
    async with remote_cluster() as remote:
        remote.provide()
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        with pytest.raises(ContainerNotReady, match="Volume data is a persistentVolumeClaim"):
            await remote.resolve(job_pod(remote.store, volumes=[claim]))
        assert "nodeName" not in remote.pod()["spec"]


async def test_a_missing_secret_is_said_and_the_pod_stays_free_until_it_is_there():
    async with remote_cluster() as remote:
        pod = job_pod(remote.store)
        with pytest.raises(ContainerNotReady, match=r"ConfigMap settings .* Secret keys does not exist"):
            await remote.resolve(pod)
        assert "nodeName" not in remote.pod()["spec"]
        remote.provide()
        assert (await remote.resolve(pod)).secret_env


async def test_a_pod_that_the_scheduler_took_is_lost():
    async with remote_cluster() as remote:
        remote.provide()
        pod = job_pod(remote.store, nodeName="local")
        with pytest.raises(PodLost, match="bound to node local"):
            await remote.resolve(pod)


async def test_a_pod_that_is_gone_or_replaced_is_lost():
    async with remote_cluster() as remote:
        remote.provide()
        pod = job_pod(remote.store)
        remote.store.delete(POD_KIND, "default", "train", grace=0)
        with pytest.raises(PodLost, match="is gone"):
            await remote.resolve(pod)
        job_pod(remote.store)
        with pytest.raises(PodLost, match="another one by now"):
            await remote.resolve(pod)
        assert "nodeName" not in remote.pod()["spec"]


async def test_a_gated_pod_is_not_bound():
    async with remote_cluster() as remote:
        remote.provide()
        pod = job_pod(remote.store, schedulingGates=[{"name": "forebay.dev/budget"}])
        with pytest.raises(ContainerNotReady, match="may not be bound now"):
            await remote.resolve(pod)
