"""The published scenarios of NodeProvisioners on a real control plane: 120 nodes of KWOK's, and Google's own API.

Time is accelerated: the delay before a tainted node is deleted is seconds. What comes of it is compared to the node.
"""

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

from forebay.api.names import OPERATOR_NAMESPACE, SCALE_DOWN_TAINT
from forebay.net.serve import serving
from tests.cluster.operators import OperatorProcess, until, until_progress_ends
from tests.cluster.powered import Administrator
from tests.cluster.test_rbac import account_of
from tests.cluster.worlds import FOREBAY, install_definitions
from tests.contract.providers.gcp.server import ComputeEngine, goods
from tests.contract.providers.gcp.tokens import key_file
from tests.rig import Rig, RigFailed, Tier
from tests.rig.plugin import require

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(900)]

KEY = "planted-google-key-77aa"
KIND = "a3-highgpu-8g"
#: Seconds that an empty node is tainted. The scenarios are played with minutes elsewhere (tests/unit/sizing).
DELAY = 25
PODS = "/api/v1/namespaces/default/pods"
SIZE = 120


class KwokMembers:
    """Members that boot are nodes of KWOK's, and their Nodes go with them."""

    def __init__(self, rig):
        self._administrator = Administrator(rig)
        # One connection, used in order.
        self._executor = ThreadPoolExecutor(1)

    def boot(self, rented, *, gpus_appear):
        amounts = {"cpu": "200", "memory": "1800Gi", "pods": "110", "nvidia.com/gpu": str(8 if gpus_appear else 0)}
        name = rented.node_name
        node = {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"providerID": rented.provider_id},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        self._act("POST", "/api/v1/nodes", node)

    def stop(self, rented):
        if rented.node_name is not None:
            self._act("DELETE", f"/api/v1/nodes/{rented.node_name}")

    def _act(self, method, path, body=None):
        asyncio.get_running_loop().run_in_executor(self._executor, self._call, method, path, body)

    def _call(self, method, path, body):
        try:
            self._administrator.call(method, path, body)
        except RigFailed as failure:
            if ": 404 " not in str(failure):
                raise

    def close(self):
        self._executor.shutdown()
        self._administrator.close()


class Groups:
    """The control plane, the cloud, and what is asked of both."""

    def __init__(self, rig, cloud):
        self.rig = rig
        self.group = cloud.groups["pool"]
        self._administrator = Administrator(rig)

    async def call(self, method, path, body=None):
        return await asyncio.to_thread(self._administrator.call, method, path, body)

    async def use(self, nodes):
        """Pods with GPUs run on exactly so many nodes: on those that have one already, then on others."""
        found = (await self.call("GET", PODS))["items"]
        used = sorted(each["spec"]["nodeName"] for each in found)
        for name in used[nodes:]:
            await self.call("DELETE", f"{PODS}/on-{name}", {"gracePeriodSeconds": 0})
        tainted = await self.tainted()
        free = sorted(self.group.members.keys() - set(used), key=lambda name: (name not in tainted, name))
        container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        for name in free[: max(0, nodes - len(used))]:
            spec = {"containers": [container], "nodeName": name, "automountServiceAccountToken": False}
            await self.call("POST", PODS, {"metadata": {"name": f"on-{name}"}, "spec": spec})

    async def tainted(self):
        return {
            node["metadata"]["name"]
            for node in (await self.call("GET", "/api/v1/nodes"))["items"]
            if any(each["key"] == SCALE_DOWN_TAINT for each in node["spec"].get("taints", ()))
        }

    async def sizes(self):
        """Size, target, nodes in use and tainted ones, as reported."""
        found = (await self.call("GET", f"{FOREBAY}/nodeprovisioners/pool")).get("status", {})
        return tuple(found.get(each) for each in ("currentSize", "targetSize", "utilizedNodes", "taintedNodes"))

    async def become(self, size, target, used, tainted):
        async def found():
            return await self.sizes() == (size, target, used, tainted) and self.group.target == size

        latest = self.group.shrunk
        await until_progress_ends(
            found, lambda: len(latest), f"{(size, target, used, tainted)}, not {await self.sizes()}", without=120
        )
        assert len(self.group.members) == size

    async def refill(self):
        """120 nodes again, of which 80 are in use: somebody resizes the group, and Forebay follows."""
        self.group.resize(SIZE)
        await self.use(80)
        await self.become(SIZE, 100, 80, 20)
        self.group.shrunk.clear()

    async def used_nodes_stay(self):
        """No node with a pod was deleted."""
        pods = {each["spec"]["nodeName"] for each in (await self.call("GET", PODS))["items"]}
        assert pods <= self.group.members.keys()
        assert self.group.resized_down == 0


@pytest.fixture(scope="module")
def whole_rig():
    require(Tier.CLUSTER)
    with Rig.start(Tier.CLUSTER) as rig:
        install_definitions(rig)
        yield rig


async def test_the_three_published_scenarios_match_to_the_node(whole_rig):
    rig = whole_rig
    members = KwokMembers(rig)
    cloud = ComputeEngine(goods(boot=0.2, driver=0, shutdown=0.2), members, key=KEY, operation_seconds=0.2)
    cloud.add_group("pool", KIND, [f"pool-{index:03}" for index in range(SIZE)])
    groups = Groups(rig, cloud)
    kubeconfig = await asyncio.to_thread(account_of, rig, "--secret", "google")
    operator = OperatorProcess(rig, "operator", kubeconfig, OPERATOR_NAMESPACE)
    async with serving(cloud.answer) as base:
        secret = {"metadata": {"name": "google"}, "data": {"key": base64.b64encode(key_file(KEY, base)).decode()}}
        await groups.call("POST", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets", secret)

        async def joined():
            return len((await groups.call("GET", "/api/v1/nodes"))["items"]) == SIZE

        await until(joined, "all members are nodes")
        await groups.use(80)
        provider = {
            "name": "gcp",
            "location": "us-central1-a",
            "endpoint": base,
            "credentialsRef": {"name": "google", "key": "key"},
        }
        spec = {
            "existingInstanceGroupNames": ["pool"],
            "minGPUUtilizationPercent": 80,
            "scaleDownDelay": f"{DELAY}s",
            "provider": provider,
        }
        header = {"apiVersion": "forebay.dev/v1alpha1", "kind": "NodeProvisioner", "metadata": {"name": "pool"}}
        await groups.call("POST", f"{FOREBAY}/nodeprovisioners", {**header, "spec": spec})
        operator.start()
        try:
            # A: 80 of 120 at 80 %: 20 are tainted, and go after the delay.
            await groups.become(SIZE, 100, 80, 20)
            await groups.become(100, 100, 80, 0)
            await groups.used_nodes_stay()
            # C: before that, 88 are in use: the target is 110, ten are untainted and ten go.
            await groups.refill()
            await groups.use(88)
            await groups.become(SIZE, 110, 88, 10)
            await groups.become(110, 110, 88, 0)
            await groups.used_nodes_stay()
            # B: when the delay is over only 60 are in use: the 20 go, then 25 more after another delay.
            await groups.use(80)
            await groups.refill()
            await groups.use(60)
            await groups.become(75, 75, 60, 0)
            await groups.used_nodes_stay()
            assert cloud.violations == []
        finally:
            operator.stop()
            cloud.stop()
            members.close()
