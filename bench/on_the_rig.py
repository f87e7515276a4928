"""A whole control plane with the operator as a process of its own, for benchmarks."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

# A benchmark is a script: the repository is not on its path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from forebay.kube.client import Client
from forebay.kube.informer import Informer
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS
from forebay.model.workloads import Pod
from tests.cluster.operators import OperatorProcess
from tests.cluster.powered import Administrator, gpu_pod, node, power_api, rig_client
from tests.cluster.worlds import FOREBAY, World, create, install_definitions
from tests.rig import Part, Rig, Tier

__all__ = [
    "FOREBAY",
    "NAMESPACE",
    "Administrator",
    "BenchCluster",
    "OperatorProcess",
    "Part",
    "bench_cluster",
    "create",
    "gpu_pod",
    "install_definitions",
    "node",
    "power_api",
]

NAMESPACE = "bench"
_AT_ONCE = 16


class BenchCluster:
    def __init__(self, rig: Rig, client: Client, pods: Informer[Pod]) -> None:
        self.rig = rig
        self.client = client
        #: As a user sees them, by watching.
        self.pods = pods

    async def create_pods(self, pods: Iterable[Mapping[str, Any]]) -> None:
        await _soon(self.client.create(PODS, pod, namespace=NAMESPACE) for pod in pods)

    async def create_nodes(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        await _soon(self.client.create(NODES, each) for each in nodes)

    async def nodes_ready(self, count: int) -> None:
        """Returns when so many take pods."""
        async with asyncio.timeout(180):
            while True:
                nodes = (await self.client.list_all(NODES)).items
                if sum(each.ready and not each.taints for each in nodes) >= count:
                    return
                await asyncio.sleep(0.5)

    async def unschedulable(self, count: int) -> None:
        """Returns when the scheduler has tried so many, in vain."""
        await self.until(lambda: sum(pod.unschedulable_since is not None for pod in self.pods.values()) >= count)

    async def until(self, true: Any, seconds: float = 180.0) -> None:
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 (of several things that change)
                await asyncio.sleep(0.05)

    async def settled(self, count: Any, most: int, quiet: float = 15.0, seconds: float = 300.0) -> int:
        """The count once it is the most there can be, or has not changed for so long."""
        loop = asyncio.get_running_loop()
        last, since, end = count(), loop.time(), loop.time() + seconds
        while last < most and loop.time() < end and (not last or loop.time() - since < quiet):
            await asyncio.sleep(0.1)
            if (now := count()) != last:
                last, since = now, loop.time()
        return int(last)

    def bound(self) -> int:
        return sum(pod.node is not None for pod in self.pods.values())

    @contextmanager
    def operator(self, environment: Mapping[str, str], lease: float | None = None) -> Iterator[OperatorProcess]:
        """`forebay run` under its generated roles. Killed at the end. `lease`: seconds, where others than usual."""
        world = World(self.rig)
        create(self.rig, {"kind": "Namespace", "metadata": {"name": world.home}})
        world.grant("bench-operator")
        kubeconfig = self.rig.kubeconfig_for("bench-operator")
        process = OperatorProcess(self.rig, "bench-operator", kubeconfig, world.home, environment, lease=lease)
        process.start()
        try:
            yield process
        finally:
            process.stop()


async def _soon(acts: Iterable[Awaitable[object]]) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(act: Awaitable[object]) -> None:
        async with turns:
            await act

    await asyncio.gather(*map(in_turn, acts))


@asynccontextmanager
async def bench_cluster() -> AsyncIterator[BenchCluster]:
    """A control plane of its own, with our kinds and a namespace, and somebody who watches the pods."""
    with Rig.start(Tier.CLUSTER) as rig:
        install_definitions(rig)
        create(rig, {"kind": "Namespace", "metadata": {"name": NAMESPACE}})
        create(rig, {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}})
        client = rig_client(rig)
        try:
            async with Informer(client.transport, rig.url, PODS) as pods:
                await pods.wait_synced()
                yield BenchCluster(rig, client, pods)
        finally:
            await client.close()
