"""Remote pods on a real control plane, over sockets and in real time: what `offload.py --only live` measures.

The operator is a process of its own, under its generated roles. RunPod's conformance server is in this process. Pods
are launched, and their logs opened, without RunPod's rate limits, which would take an hour for a thousand; what is
measured afterwards takes fewer requests than they allow, and these are counted.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.api.names import OPERATOR_NAMESPACE, VIRTUAL_NODE
from forebay.kube.jobs import JOBS
from forebay.model.workloads import Phase, Pod
from forebay.net.serve import serving
from forebay.net.transport import Request, Timeouts
from on_the_rig import NAMESPACE, BenchCluster, OperatorProcess, bench_cluster
from phased_runpod import NAME, add_to
from tests.cluster.test_offload import KEY, configure, job
from tests.cluster.test_rbac import account_of
from tests.cluster.worlds import FOREBAY

BENCH = Path(__file__).resolve().parent
FORCED = 15
READERS = 20
#: Seconds between two ends of containers, and between two lines of the logs that somebody follows.
END_EVERY, LINE_EVERY = 5.0, 0.25
LOOK = 0.01


async def live(
    pods: int, seconds: float, account: Callable[[], Any], percentile: Callable[..., float]
) -> dict[str, float]:
    cloud = account()
    cloud.key = KEY
    async with bench_cluster() as cluster, serving(cloud.answer) as base:
        kubeconfig = await asyncio.to_thread(account_of, cluster.rig, "--secret", "runpod", "--offload", "on")
        await asyncio.to_thread(configure, cluster.rig, base, NAME)
        beside = cluster.rig.directory / "beside"
        add_to(beside)
        paths = ":".join(map(str, (beside, BENCH, BENCH.parent)))
        operator = OperatorProcess(cluster.rig, "operator", kubeconfig, OPERATOR_NAMESPACE, {"PYTHONPATH": paths})
        operator.start()
        try:
            created = await _forced(cluster, cloud, percentile)
            return {**created, **await _crowd(cluster, cloud, pods, seconds, percentile)}
        finally:
            operator.stop()
            assert not cloud.violations, cloud.violations[:3]


async def _create(cluster: BenchCluster, name: str, pods: int, *, command: bool = True, forced: bool = False) -> None:
    made = job(name, runs="10000h", parallelism=pods, completions=pods)
    if forced:
        made["metadata"]["annotations"]["runpod.io/offload"] = "true"
    if not command:
        del made["spec"]["template"]["spec"]["containers"][0]["command"]
    await cluster.client.create(JOBS, made, namespace=NAMESPACE)


async def _forced(cluster: BenchCluster, cloud: Any, percentile: Callable[..., float]) -> dict[str, float]:
    await cluster.until(lambda: cloud.answered["list_gpus"] >= 4, 60)
    await asyncio.sleep(5)
    delays = []
    for number in range(FORCED):
        began = time.perf_counter()
        await _create(cluster, f"forced-{number}", 1, forced=True)
        while len(cloud.orders) <= number:  # noqa: ASYNC110 (of another thread's making)
            await asyncio.sleep(0.002)
        delays.append(time.perf_counter() - began)
        await asyncio.sleep(2)
    return {"live_create_ms": percentile(delays) * 1000, "live_create_p50_ms": percentile(delays, 0.5) * 1000}


async def _crowd(
    cluster: BenchCluster, cloud: Any, pods: int, seconds: float, percentile: Callable[..., float]
) -> dict[str, float]:
    await _create(cluster, "reports", pods - pods // 2)
    await _create(cluster, "plain", pods // 2, command=False)
    began = time.perf_counter()
    await cluster.until(lambda: len(_running(cluster)) >= pods + FORCED, 1800)
    await cluster.until(lambda: cloud.log_streams >= pods + FORCED, 600)
    launched = time.perf_counter() - began
    containers = await _containers(cluster)
    # What the crowd has caused does not count.
    await asyncio.sleep(30)
    people = sorted(name for name in containers if name.startswith("reports"))[:READERS]
    written: dict[str, float] = {}
    lags: list[float] = []
    readers = [asyncio.create_task(_follow(cluster, name, written, lags)) for name in people]
    await asyncio.sleep(5)
    start = asyncio.get_running_loop().time()
    writing = asyncio.create_task(_write(cloud, [containers[name] for name in people], written, seconds))
    ended = await _end(cluster, cloud, {name: each for name, each in containers.items() if name not in people}, seconds)
    await writing
    await asyncio.sleep(2)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    times = [at for at, _ in cloud.arrived if at >= start]
    busiest = max((sum(at <= each < at + 60 for each in times[first:]) for first, at in enumerate(times)), default=0)
    return {
        "live_requests_per_minute": busiest,
        "live_status_lag_s": percentile(ended["reports"]),
        "live_listed_lag_s": percentile(ended["plain"]),
        "live_log_lag_s": percentile(lags),
        "live_log_lines_missing": len(written) - len(lags),
        "live_launched_s": launched,
    }


def _running(cluster: BenchCluster) -> list[Pod]:
    return [each for each in cluster.pods.values() if each.node == VIRTUAL_NODE and each.phase is Phase.RUNNING]


async def _containers(cluster: BenchCluster) -> dict[str, str]:
    """Ids at RunPod by name of the pod, without those of forced Jobs."""
    records = (await asyncio.to_thread(cluster.rig.call, "GET", f"{FOREBAY}/gpuinstances"))["items"]
    found = {each["spec"]["pods"][0]["name"]: each["status"]["instanceID"] for each in records}
    return {name: each for name, each in found.items() if not name.startswith("forced")}


async def _follow(cluster: BenchCluster, pod: str, written: dict[str, float], lags: list[float]) -> None:
    """As `kubectl logs -f` asks: the API server asks the port of the virtual node."""
    url = f"{cluster.rig.url}/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log?follow=true"
    request = Request(method="GET", url=url, timeouts=Timeouts(connect=10, read=None, total=None))
    buffer = b""
    async with await cluster.client.transport.request(request) as response:
        assert response.ok, await response.read()
        async for chunk in response.chunks():
            *lines, buffer = (buffer + chunk).split(b"\n")
            now = time.perf_counter()
            lags += [now - written[text] for line in lines if (text := line.decode()) in written]


async def _write(cloud: Any, containers: list[str], written: dict[str, float], seconds: float) -> None:
    for number in range(int(seconds / LINE_EVERY)):
        line = f"line {number}"
        written[line] = time.perf_counter()
        cloud.write(containers[number % len(containers)], line)
        await asyncio.sleep(LINE_EVERY)


async def _end(cluster: BenchCluster, cloud: Any, containers: dict[str, str], seconds: float) -> dict[str, list[float]]:
    """Seconds from the end of a container to when whoever watches pods sees it, by whether it had a command."""
    lags: dict[str, list[float]] = {"reports": [], "plain": []}
    names = [sorted(name for name in containers if name.startswith(kind)) for kind in lags]
    in_turn = [name for pair in zip(*names, strict=False) for name in pair][: int(seconds / END_EVERY)]

    async def shown(name: str) -> None:
        began = time.perf_counter()
        cloud.exits(containers[name], 0)
        while (found := cluster.pods.get((NAMESPACE, name))) is None or found.phase is not Phase.SUCCEEDED:
            assert time.perf_counter() - began < 120, f"{name} never shows its end"
            await asyncio.sleep(LOOK)
        lags["reports" if name.startswith("reports") else "plain"].append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as together:
        for name in in_turn:
            together.create_task(shown(name))
            await asyncio.sleep(END_EVERY)
    return lags
