"""The published scenarios of NodeProvisioners on a real control plane: nodes of KWOK's, and Google's own API.

Time is accelerated: the delay before a tainted node is deleted is seconds. What comes of it is compared to the node.
Run by `make bars`.
"""

import asyncio
import base64
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import pytest

from forebay.api.names import OPERATOR_NAMESPACE, SCALE_DOWN_TAINT
from forebay.net.clock import now
from forebay.net.serve import serving
from tests.cluster.operators import OperatorProcess, until
from tests.cluster.powered import Administrator
from tests.cluster.test_rbac import account_of
from tests.cluster.worlds import FOREBAY
from tests.contract.providers.gcp.server import ComputeEngine, goods
from tests.contract.providers.gcp.tokens import key_file
from tests.rig import RigFailed

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(900)]

KEY = "planted-google-key-77aa"
KIND = "a3-highgpu-8g"
PODS = "/api/v1/namespaces/default/pods"


class Scale(NamedTuple):
    """Numbers of nodes. At 80 % the published ones need 100, 110 and 75."""

    size: int
    used: int
    more: int
    fewer: int
    #: Seconds that an empty node is tainted. The scenarios are played with minutes elsewhere (tests/unit/sizing).
    delay: int

    def needed(self, used):
        return used * 100 // 80


PUBLISHED = Scale(size=120, used=80, more=88, fewer=60, delay=25)


class KwokMembers:
    """Members that boot are nodes of KWOK's, and their Nodes go with them."""

    def __init__(self, rig, labels=None, taints=()):
        self._labels = labels or {}
        self._taints = list(taints)
        self._administrator = Administrator(rig)
        # One connection, used in order.
        self._executor = ThreadPoolExecutor(1)

    def boot(self, rented, *, gpus_appear):
        amounts = {"cpu": "200", "memory": "1800Gi", "pods": "110", "nvidia.com/gpu": str(8 if gpus_appear else 0)}
        name = rented.node_name
        node = {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **self._labels},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"providerID": rented.provider_id, "taints": self._taints},
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

    def __init__(self, rig, cloud, scale):
        self.rig = rig
        self.scale = scale
        self.group = cloud.groups["pool"]
        self._administrator = Administrator(rig)

    def close(self):
        self._administrator.close()

    async def call(self, method, path, body=None):
        return await asyncio.to_thread(self._administrator.call, method, path, body)

    async def use(self, nodes):
        """Pods with GPUs run on exactly so many nodes: on those that have one already, then on tainted ones."""
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

    async def become(self, *sizes):
        """Returns when the size, target, nodes in use and tainted ones are these, here and at the cloud."""
        found, deadline = None, time.monotonic() + 120
        while found != sizes or self.group.target != sizes[0]:
            assert time.monotonic() < deadline, f"not {sizes}, but {found}, and {self.group.target} at the cloud"
            await asyncio.sleep(0.05)
            found = await self.sizes()
        assert len(self.group.members) == sizes[0]

    async def surplus(self):
        """All nodes are there again and used enough; then so many are empty that some are tainted, all at once."""
        size, used = self.scale.size, self.scale.used
        self.group.resize(size)
        enough = -(-size * 80 // 100)

        async def joined():
            return len((await self.call("GET", "/api/v1/nodes"))["items"]) == size

        await until(joined, "all members are nodes")
        await self.use(enough)
        await self.become(size, size, enough, 0)
        await self.use(used)
        needed = self.scale.needed(used)
        await self.become(size, needed, used, size - needed)
        self.group.shrunk.clear()

    async def all_used_nodes_are_there(self):
        pods = {each["spec"]["nodeName"] for each in (await self.call("GET", PODS))["items"]}
        assert pods <= self.group.members.keys()
        assert self.group.resized_down == 0

    # The scenarios, as published.

    async def surplus_goes(self):
        """A: of 120 nodes 80 are in use. At 80 % 20 are tainted, and go after the delay."""
        await self.surplus()
        needed = self.scale.needed(self.scale.used)
        await self.become(needed, needed, self.scale.used, 0)
        await self.all_used_nodes_are_there()

    async def fewer_are_used_after_the_delay(self):
        """B: before the delay is over only 60 are in use: the 20 go as said, and 25 more after a delay of their own."""
        await self.surplus()
        first = self.scale.size - self.scale.needed(self.scale.used)
        began = now()
        await self.use(self.scale.fewer)
        last = self.scale.needed(self.scale.fewer)
        await self.become(last, last, self.scale.fewer, 0)
        await self.all_used_nodes_are_there()
        gone = sorted(at for at, _ in self.group.shrunk)
        assert len(gone) == self.scale.size - last
        # A taint's time has whole seconds.
        whole = timedelta(seconds=self.scale.delay - 1)
        assert gone[first] >= began + whole

    async def more_are_used_before_the_delay_ends(self):
        """C: meanwhile 88 are in use: the target is 110, ten are untainted, and ten go."""
        await self.surplus()
        size, more = self.scale.size, self.scale.more
        needed = self.scale.needed(more)
        await self.use(more)
        await self.become(size, needed, more, size - needed)
        await self.become(needed, needed, more, 0)
        await self.all_used_nodes_are_there()


@asynccontextmanager
async def groups_of(rig, scale):
    """A NodeProvisioner at work on a group of so many nodes, on which pods are."""
    members = KwokMembers(rig)
    cloud = ComputeEngine(goods(boot=0.2, driver=0, shutdown=0.2), members, key=KEY, operation_seconds=0.2)
    cloud.add_group("pool", KIND, [f"pool-{index:03}" for index in range(scale.size)])
    groups = Groups(rig, cloud, scale)
    kubeconfig = await asyncio.to_thread(account_of, rig, "--secret", "google")
    operator = OperatorProcess(rig, "operator", kubeconfig, OPERATOR_NAMESPACE)
    async with serving(cloud.answer) as base:
        secret = {"metadata": {"name": "google"}, "data": {"key": base64.b64encode(key_file(KEY, base)).decode()}}
        await groups.call("POST", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets", secret)
        provider = {
            "name": "gcp",
            "location": "us-central1-a",
            "endpoint": base,
            "credentialsRef": {"name": "google", "key": "key"},
        }
        spec = {
            "existingInstanceGroupNames": ["pool"],
            "minGPUUtilizationPercent": 80,
            "scaleDownDelay": f"{scale.delay}s",
            "provider": provider,
        }
        header = {"apiVersion": "forebay.dev/v1alpha1", "kind": "NodeProvisioner", "metadata": {"name": "pool"}}
        operator.start()
        try:
            # Before the NodeProvisioner, so that nothing is tainted while pods are still on their way.
            await groups.use(-(-scale.size * 80 // 100))
            await groups.call("POST", f"{FOREBAY}/nodeprovisioners", {**header, "spec": spec})
            yield groups
            assert cloud.violations == []
        finally:
            operator.stop()
            cloud.stop()
            members.close()
            groups.close()


async def test_the_published_scenarios_match_to_the_node(whole_rig):
    async with groups_of(whole_rig, PUBLISHED) as groups:
        began = time.monotonic()
        await groups.surplus_goes()
        await groups.fewer_are_used_after_the_delay()
        await groups.more_are_used_before_the_delay_ends()
        took = time.monotonic() - began
    sys.stderr.write(f"groups: scenarios with {groups.scale.size} nodes in {took:.0f} s\n")
