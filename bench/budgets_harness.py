"""The accuracy of budgets on a real control plane, as the predecessor measured its own: its scenarios and its formula.

Pods start at t_i = i/rate and run for `runtime`; at T they have used sum(gpus x (min(T, t_i + runtime) - t_i))/3600. No
kubelet starts a pod at the moment it is asked for, nor tells times in parts of a second: so each snapshot has two
expectations, this formula's and the same sum over the times that the containers' own statuses tell. Pods ask for 0.1
cores, and cores are counted.

Each snapshot has two readings as well, each with its own bar:
- by the predecessor's instrument, `.status.consumedGpuHours` (in thousandths, as old as the last write) divided by the
  formula: at least what the predecessor published, where it did;
- `gwb_consumed_gpu_hours` of /metrics divided by the containers' times: 1.000.
"""

import asyncio
import json
import queue
import ssl
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from fractions import Fraction
from http.client import HTTPSConnection
from typing import Any, NamedTuple

from forebay.install.admission_policies import admission_policies
from forebay.kube.pods import PODS
from forebay.model.quantities import GpuHours
from forebay.simulate.power import Powered
from on_the_rig import FOREBAY, Administrator, BenchCluster, OperatorProcess, bench_cluster, node
from tests.rig import RigFailed
from tests.rig.parts import PLAY

NAMESPACE, BUDGET = "bench", "bench"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MILLI = 100
_PODS_PER_NODE = 100
_ENDED = frozenset({"Succeeded", "Failed"})
#: Seconds between two looks at what somebody else must do.
_LOOK = 0.1


class Load(NamedTuple):
    count: int = 50
    rate: int = 10
    runtime: int = 30
    #: As soon as it has ended.
    deleted: bool = False

    def expected(self, at: float) -> Fraction:
        """The predecessor's, in hours of a core."""
        seconds = Fraction(0)
        for number in range(self.count):
            start = Fraction(number, self.rate)
            seconds += max(min(Fraction(at), start + self.runtime) - start, Fraction(0))
        return seconds * MILLI / 1000 / 3600

    def pod(self, number: int) -> dict[str, Any]:
        container = {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": f"{MILLI}m"}}}
        about = {"labels": {"app": "bench"}, "annotations": {PLAY["RUN_FOR"]: f"{self.runtime}s"}}
        spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
        return {
            "metadata": {"name": f"bench-{number:04}", **about},
            "spec": {**spec, "terminationGracePeriodSeconds": 1},
        }


class Kubelet:
    """What the kubelet has told of every pod: read from a watch of its own, in a thread, with nothing of Forebay's."""

    def __init__(self, cluster: BenchCluster, *, delete: bool) -> None:
        self.starts: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.gone: set[str] = set()
        self.told_twice = 0
        self._rig = cluster.rig
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        #: The version that the watch has come to.
        self._seen = "0"
        threading.Thread(target=self._read, daemon=True).start()
        if delete:
            threading.Thread(target=self._delete, daemon=True).start()

    def _connect(self) -> HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self._rig.ca_file))
        context.load_cert_chain(*self._rig.client_certificate)
        host, _, port = self._rig.url.removeprefix("https://").rpartition(":")
        return HTTPSConnection(host, int(port), context=context)

    def _read(self) -> None:
        # Ends with the control plane. A server ends the watch of whoever is slow, as this is beside all else.
        with suppress(OSError):
            while True:
                connection = self._connect()
                path = f"/api/v1/namespaces/{NAMESPACE}/pods?watch=true&resourceVersion={self._seen}"
                connection.request("GET", path)
                answer = connection.getresponse()
                while line := answer.readline():
                    self._note(json.loads(line))
                connection.close()

    def _note(self, event: dict[str, Any]) -> None:
        pod = event["object"]
        if event["type"] == "ERROR":
            raise RuntimeError(f"the watch of the pods has lost its place: {pod}")
        uid = pod["metadata"]["uid"]
        self._seen = pod["metadata"]["resourceVersion"]
        for container in pod["status"].get("containerStatuses", ()):
            state = container["state"]
            ran = state.get("running") or state.get("terminated") or {}
            if "startedAt" in ran:
                started = _second(ran["startedAt"])
                self.starts[uid] = min(started, self.starts.get(uid, started))
            if pod["status"]["phase"] in _ENDED and "finishedAt" in ran:
                if uid not in self.ends:
                    self._ended.put(pod["metadata"]["name"])
                # Told twice where the kubelet's write met another one; the last word holds.
                finished = _second(ran["finishedAt"])
                self.told_twice += self.ends.get(uid, finished) != finished
                self.ends[uid] = finished
        if event["type"] == "DELETED":
            self.gone.add(uid)

    def _delete(self) -> None:
        administrator = Administrator(self._rig)
        with suppress(OSError):
            while True:
                path = f"/api/v1/namespaces/{NAMESPACE}/pods/{self._ended.get()}"
                with suppress(RigFailed):
                    administrator.call("DELETE", path, {"gracePeriodSeconds": 0})

    def expected(self, at: float) -> Fraction:
        """Hours of a core until then, from the containers' own times."""
        total = Fraction(0)
        for uid, start in list(self.starts.items()):
            total += max(min(Fraction(at), Fraction(self.ends.get(uid, at))) - start, Fraction(0))
        return total * MILLI / 1000 / 3600


class Stage:
    """A cluster with enough nodes, a budget, and the operator as a process."""

    def __init__(self, world: BenchCluster, operator: OperatorProcess, kubelet: Kubelet, load: Load) -> None:
        self.operator = operator
        self.kubelet = kubelet
        self.load = load
        self.kills = 0
        self.began = self.submitted_in = 0.0
        self.world = world
        self._administrator = Administrator(world.rig)

    async def submit(self) -> None:
        """Each pod at its time."""
        self.began = time.time()
        turns = asyncio.Semaphore(32)

        async def one(number: int) -> None:
            async with turns:
                await self.world.client.create(PODS, self.load.pod(number), namespace=NAMESPACE)

        async with asyncio.TaskGroup() as tasks:
            for number in range(self.load.count):
                await asyncio.sleep(max(0.0, self.began + number / self.load.rate - time.time()))
                tasks.create_task(one(number))
        self.submitted_in = time.time() - self.began

    async def at(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, self.began + seconds - time.time()))

    async def until(self, true: Any, what: str, within: float) -> None:
        deadline = time.monotonic() + within
        while not true():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {within:.0f} s: {what}")
            await asyncio.sleep(_LOOK)

    async def leads(self, within: float = 60.0, budget: str = BUDGET) -> None:
        """Wait until the operator counts: the budget has figures, and its label for the admission policies."""
        deadline = time.monotonic() + within
        while await self.consumed(budget) is None or not self.status(budget).get("conditions"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the operator does not lead within {within:.0f} s")
            await asyncio.sleep(_LOOK)

    def status(self, budget: str = BUDGET) -> dict[str, Any]:
        path = f"{FOREBAY}/namespaces/{NAMESPACE}/gpuworkloadbudgets/{budget}"
        found: dict[str, Any] = self._administrator.call("GET", path).get("status", {})
        return found

    def shown(self, budget: str = BUDGET) -> float:
        """What the status shows."""
        return float(GpuHours.parse(self.status(budget)["consumedGpuHours"]).hours)

    async def consumed(self, budget: str = BUDGET) -> float | None:
        """As the operator reckons it when it is asked; None while it does not lead."""
        _, text = await self.operator.page("/metrics")
        for line in text.splitlines():
            if line.startswith("gwb_consumed_gpu_hours{") and f'name="{budget}"' in line:
                return float(line.rpartition(" ")[2])
        return None

    async def shown_while(self, first: float, last: float) -> dict[str, float]:
        """The predecessor's reading every half second from one moment to another: least, mean and most."""
        ratios = []
        while (at := time.time() - self.began) < last:
            if at >= first:
                ratios.append(self.shown() / float(self.load.expected(at)))
            await asyncio.sleep(0.5)
        return {"least": min(ratios), "mean": sum(ratios) / len(ratios), "most": max(ratios)}

    async def snapshot(self, name: str, peer: float | None = None, tolerance: float = 0.0005) -> dict[str, Any]:
        before = time.time()
        said = await self.consumed()
        at = (before + time.time()) / 2
        if said is None:
            raise TimeoutError(f"{name}: the operator does not lead")
        shown = self.shown()
        expected, formula = self.kubelet.expected(at), self.load.expected(at - self.began)
        ratio, as_peer = said / float(expected), shown / float(formula)
        met = abs(ratio - 1) <= tolerance and len(self.kubelet.starts) == self.load.count
        print(
            f"{name:<16} {at - self.began:6.1f} s  /metrics {said:.6f} of {float(expected):.6f} by containers' times: "
            f"{ratio:.3f}  .status {shown:.3f} of {float(formula):.6f} by the formula: {as_peer:.3f}"
            + (f" (predecessor {peer})" if peer is not None else "")
            + f": {'met' if met else 'MISSED'}"
        )
        return {
            "name": name,
            "expected": float(expected),
            "reported": said,
            "accuracy": max(0.0, min(ratio, 1.0)),
            "signed_error": said - float(expected),
            "at_s": at - self.began,
            "pods": len(self.kubelet.starts),
            "unclamped": ratio,
            "formula": {
                "expected": float(formula),
                "accuracy": max(0.0, min(said / float(formula), 1.0)),
                "signed_error": said - float(formula),
            },
            "status": {
                "reported": shown,
                "expected": float(formula),
                "accuracy": max(0.0, min(as_peer, 1.0)),
                "signed_error": shown - float(formula),
                "of_containers": shown / float(expected),
                "predecessor": peer,
            },
            "kills": self.kills,
            "met": met,
        }

    def kill(self) -> None:
        self.kills += 1
        self.operator.stop()

    def close(self) -> None:
        self._administrator.close()


@asynccontextmanager
async def stage(load: Load, *, accounting: str = "Observed", lease: float | None = None) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(bench_cluster())
        if accounting == "Exact":
            install_policies(world.rig)
        nodes = min(load.count, load.rate * (load.runtime + 20)) // _PODS_PER_NODE + 1
        amounts = {"cpu": "64", "memory": "64Gi"}
        await world.create_nodes(node(Powered(name=f"n{each}", gpus=0, allocatable=amounts)) for each in range(nodes))
        await world.nodes_ready(nodes)
        world.rig.call(
            "POST", f"{FOREBAY}/namespaces/{NAMESPACE}/gpuworkloadbudgets", new_budget(accounting=accounting)
        )
        operator = stack.enter_context(world.operator({}, lease))
        made = Stage(world, operator, Kubelet(world, delete=load.deleted), load)
        stack.callback(made.close)
        await made.leads()
        # Until the API server's policies know the budget by its new label.
        await asyncio.sleep(1)
        yield made


def install_policies(rig: Any) -> None:
    for each in admission_policies():
        plural = "mutatingadmissionpolicybindings" if each["kind"].endswith("Binding") else "mutatingadmissionpolicies"
        rig.call("POST", f"{ADMISSION}/{plural}", each)


def new_budget(
    name: str = BUDGET, selector: dict[str, Any] | None = None, accounting: str = "Observed"
) -> dict[str, Any]:
    spec = {
        "selector": selector or {"matchLabels": {"app": "bench"}},
        "quota": {"gpuHours": "1", "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
        "gpuResourceName": "cpu",
        "accounting": accounting,
    }
    return {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": name},
        "spec": spec,
    }


def _second(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


async def bench(*, deleted: bool = False) -> list[dict[str, Any]]:
    """50 pods, looked at when all have ended."""
    async with stage(Load(deleted=deleted)) as it:
        await it.submit()
        await it.at(45)
        if deleted:
            await it.until(lambda: len(it.kubelet.gone) == it.load.count, "all pods are deleted", 30)
        return [await it.snapshot("bench deleted" if deleted else "bench", None if deleted else 0.960)]


async def chaos() -> list[dict[str, Any]]:
    """50 pods; looked at while they run, then the operator is killed and another started, and after their end."""
    async with stage(Load(runtime=60)) as it:
        await it.submit()
        early = await it.shown_while(10, 15)
        found = await it.snapshot("chaos before", 0.688)
        late = await it.shown_while(15, 20)
        between = {"least": min(early["least"], late["least"]), "mean": (early["mean"] + late["mean"]) / 2}
        print(
            f"{'':<16} .status by the formula between 10 and 20 s: {between['mean']:.3f} on average, "
            f"{between['least']:.3f} at least"
        )
        found = [{**found, "status": {**found["status"], "between_10_and_20_s": between}}]
        it.kill()
        it.operator.start()
        await it.at(120)
        return [*found, await it.snapshot("chaos after", 0.996)]


async def down() -> list[dict[str, Any]]:
    """The operator is away for a minute, in which all pods end and are deleted. They are kept for it (`Exact`)."""
    async with stage(Load(deleted=True), accounting="Exact") as it:
        await it.submit()
        await it.at(15)
        it.kill()
        await it.at(74)
        ended = len(it.kubelet.ends)
        await it.at(75)
        it.operator.start()
        await it.leads()
        await it.until(lambda: len(it.kubelet.gone) == it.load.count, "all pods are let go", 60)
        found = await it.snapshot("down 60 s")
        return [{**found, "ended_meanwhile": ended, "met": found["met"] and ended == it.load.count}]


async def killed(count: int = 5_000, rate: int = 100, every: float = 5.0) -> list[dict[str, Any]]:
    """Killed every five seconds, and started again at once, until all pods have ended; each is deleted when it has.

    The lease is short (`tests/cluster/hasty_operator.py`): under the usual fifteen seconds nobody would lead meanwhile.
    """
    async with stage(Load(count, rate, runtime=10, deleted=True), accounting="Exact", lease=2.0) as it:
        submitting = asyncio.create_task(it.submit())
        while not submitting.done() or len(it.kubelet.ends) < count:
            await asyncio.sleep(every)
            it.kill()
            it.operator.start()
        await submitting
        ended = time.time() - it.began
        await it.leads()
        await it.until(lambda: len(it.kubelet.gone) == count, "all pods are let go", 300)
        found = await it.snapshot("kill -9", tolerance=0.001)
        gone = time.time() - it.began
        print(
            f"{'':<16} {it.kills} kills; {count:,} pods created in {it.submitted_in:.0f} s, ended after {ended:.0f} s, "
            f"let go after {gone:.0f} s"
        )
        return [{**found, "submitted_s": it.submitted_in, "ended_s": ended, "let_go_s": gone}]
