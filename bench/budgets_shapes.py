"""The accuracy of budgets for pods that are not as simple as the predecessor's: on a real control plane whose kubelet
is this script, so that it knows the truth, and in virtual time where an hour has to pass.

On the control plane, pods on a node that nobody else looks after: their statuses are written as a kubelet writes them.
- `restarts`: a container that ends and is started again three times; the pod holds its cores from first start to end
- `init`: an init container that asks for more than the container after it; the most counts for the whole time
- `several`: two containers that end at different times, beside a sidecar
- `labelled in`, `labelled out`: pods that a budget selects only from, or until, a moment in the midst of their run
- `overlapping`: a budget that selects the first two groups, all of which count for the budget of everything as well
Expected is what was used between the moments at which the page was asked for and answered. Bars are half a thousandth,
and 2 % for labels: a change of labels counts from the whole second in which Forebay sees it.

In virtual time: `window edge`, pods that leave the window of an hour, read every 17 seconds for three hours.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple

from budgets_harness import NAMESPACE, Load, Stage, new_budget, stage
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS
from on_the_rig import FOREBAY, BenchCluster
from tests.cluster.powered import rig_client

NODE = "by-hand"
_EACH = 5
_HEARTBEAT = 10.0
_LABELS_TOLERANCE = 0.02
_TOLERANCE = 0.0005


class Use(NamedTuple):
    """Cores in thousandths from one second to another; the end is None while it goes on."""

    milli: int
    start: float
    end: float | None


class Truth:
    """What pods have used, by budget, as this script made them."""

    def __init__(self) -> None:
        self._uses: dict[str, dict[str, Use]] = {}

    def begin(self, budgets: Sequence[str], pod: str, milli: int, at: float) -> None:
        for budget in budgets:
            self._uses.setdefault(budget, {})[pod] = Use(milli, at, None)

    def end(self, budgets: Sequence[str], pod: str, at: float) -> None:
        for budget in budgets:
            self._uses[budget][pod] = self._uses[budget][pod]._replace(end=at)

    def expected(self, budget: str, at: float) -> float:
        """Hours of a core until then."""
        total = Fraction(0)
        for use in self._uses.get(budget, {}).values():
            end = at if use.end is None else min(use.end, at)
            total += use.milli * max(Fraction(end) - Fraction(use.start), Fraction(0))
        return float(total / 1000 / 3600)


class Kubelet:
    """A kubelet of one node."""

    def __init__(self, client: Client, truth: Truth) -> None:
        self.truth = truth
        self._client = client

    async def heartbeat(self) -> None:
        while True:
            now = _stamp(time.time())
            ready = {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "",
                "lastTransitionTime": now,
            }
            patch = writes.merge_patch({"status": {"conditions": [{**ready, "lastHeartbeatTime": now}]}})
            await self._client.patch(NODES, NODE, patch, subresource="status")
            await asyncio.sleep(_HEARTBEAT)

    async def create(self, name: str, labels: dict[str, str], **spec: Any) -> None:
        whole = {"nodeName": NODE, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, **spec}
        await self._client.create(
            PODS, {"metadata": {"name": name, "labels": labels}, "spec": whole}, namespace=NAMESPACE
        )

    async def label(self, name: str, **labels: str | None) -> float:
        """The middle of the request, on this machine's clock."""
        before = time.time()
        patch = writes.merge_patch({"metadata": {"labels": labels}})
        await self._client.patch(PODS, name, patch, NAMESPACE)
        return (before + time.time()) / 2

    async def write(self, name: str, phase: str, *states: dict[str, Any], init: Sequence[dict[str, Any]] = ()) -> None:
        status = {
            "phase": phase,
            "containerStatuses": [_container(f"c{number}", state) for number, state in enumerate(states)],
            "initContainerStatuses": [_container(f"i{number}", state) for number, state in enumerate(init)],
        }
        await self._client.patch(PODS, name, writes.merge_patch({"status": status}), NAMESPACE, subresource="status")


def _container(name: str, state: dict[str, Any]) -> dict[str, Any]:
    image = {"image": "work:1", "imageID": "", "ready": "running" in state["state"], "restartCount": 0}
    return {"name": name, **image, **state}


def _asks(name: str, milli: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "work:1", "resources": {"requests": {"cpu": f"{milli}m"}}, **more}


def _running(start: int) -> dict[str, Any]:
    return {"state": {"running": {"startedAt": _stamp(start)}}}


def _ended(start: int, end: int) -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": 0, "startedAt": _stamp(start), "finishedAt": _stamp(end)}}}


WAITING: dict[str, Any] = {"state": {"waiting": {"reason": "PodInitializing"}}}


def _stamp(at: float) -> str:
    return f"{datetime.fromtimestamp(int(at), UTC):%Y-%m-%dT%H:%M:%SZ}"


async def _second() -> int:
    """The beginning of the next second, when it has come: as exact as a status can tell."""
    at = int(time.time()) + 1
    await asyncio.sleep(at - time.time())
    return at


async def restarts(kubelet: Kubelet, name: str) -> None:
    budgets = ("all", "overlapping")
    await kubelet.create(name, {"app": "shapes", "group": "restarts"}, containers=[_asks("c0", 100)])
    start = first = await _second()
    kubelet.truth.begin(budgets, name, 100, first)
    for run in range(4):
        last = {} if run == 0 else {"lastState": _ended(before, end)["state"]}  # noqa: F821 (of the run before)
        await kubelet.write(name, "Running", {**_running(start), **last, "restartCount": run})
        await asyncio.sleep(7)
        before, end = start, await _second()
        if run < 3:
            crashed = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": _ended(before, end)["state"]}
            await kubelet.write(name, "Running", {**crashed, "restartCount": run})
            await asyncio.sleep(4)
            start = await _second()
    kubelet.truth.end(budgets, name, end)
    await kubelet.write(name, "Succeeded", {**_ended(before, end), "restartCount": 3})


async def init(kubelet: Kubelet, name: str) -> None:
    budgets = ("all", "overlapping")
    spec = {"initContainers": [_asks("i0", 400)], "containers": [_asks("c0", 100)]}
    await kubelet.create(name, {"app": "shapes", "group": "init"}, **spec)
    first = await _second()
    kubelet.truth.begin(budgets, name, 400, first)
    await kubelet.write(name, "Pending", WAITING, init=[_running(first)])
    await asyncio.sleep(12)
    then = await _second()
    await kubelet.write(name, "Running", _running(then), init=[_ended(first, then)])
    await asyncio.sleep(20)
    end = await _second()
    kubelet.truth.end(budgets, name, end)
    await kubelet.write(name, "Succeeded", _ended(then, end), init=[_ended(first, then)])


async def several(kubelet: Kubelet, name: str) -> None:
    sidecar = _asks("i0", 50, restartPolicy="Always")
    spec = {"initContainers": [sidecar], "containers": [_asks("c0", 100), _asks("c1", 200)]}
    await kubelet.create(name, {"app": "shapes", "group": "several"}, **spec)
    first = await _second()
    kubelet.truth.begin(("all",), name, 350, first)
    await kubelet.write(name, "Pending", WAITING, WAITING, init=[_running(first)])
    await asyncio.sleep(2)
    then = await _second()
    await kubelet.write(name, "Running", _running(then), _running(then), init=[_running(first)])
    await asyncio.sleep(10)
    one = await _second()
    await kubelet.write(name, "Running", _ended(then, one), _running(then), init=[_running(first)])
    await asyncio.sleep(20)
    other = await _second()
    end = other + 1
    await asyncio.sleep(1)
    kubelet.truth.end(("all",), name, end)
    await kubelet.write(name, "Succeeded", _ended(then, one), _ended(then, other), init=[_ended(first, end)])


async def labelled_in(kubelet: Kubelet, name: str) -> None:
    await kubelet.create(name, {"group": "labels"}, containers=[_asks("c0", 100)])
    first = await _second()
    await kubelet.write(name, "Running", _running(first))
    await asyncio.sleep(10)
    kubelet.truth.begin(("labels",), name, 100, await kubelet.label(name, team="labels"))
    await asyncio.sleep(30)
    end = await _second()
    kubelet.truth.end(("labels",), name, end)
    await kubelet.write(name, "Succeeded", _ended(first, end))


async def labelled_out(kubelet: Kubelet, name: str) -> None:
    await kubelet.create(name, {"group": "labels", "team": "labels"}, containers=[_asks("c0", 100)])
    first = await _second()
    kubelet.truth.begin(("labels",), name, 100, first)
    await kubelet.write(name, "Running", _running(first))
    await asyncio.sleep(15)
    # Before the operator is killed: a change while it is down counts as if it had always been so (docs/budgets.md).
    kubelet.truth.end(("labels",), name, await kubelet.label(name, team=None))
    await asyncio.sleep(25)
    await kubelet.write(name, "Succeeded", _ended(first, await _second()))


#: Budget, its selector, and how near it must be.
BUDGETS: dict[str, tuple[dict[str, Any], float]] = {
    "all": ({"matchLabels": {"app": "shapes"}}, _TOLERANCE),
    "overlapping": (
        {"matchExpressions": [{"key": "group", "operator": "In", "values": ["restarts", "init"]}]},
        _TOLERANCE,
    ),
    "labels": ({"matchLabels": {"team": "labels"}}, _LABELS_TOLERANCE),
}


@asynccontextmanager
async def _by_hand(world: BenchCluster) -> AsyncIterator[Kubelet]:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    client = rig_client(world.rig)
    try:
        labels = {"kubernetes.io/hostname": NODE}
        made = {"metadata": {"name": NODE, "labels": labels}, "status": {"capacity": amounts, "allocatable": amounts}}
        await client.create(NODES, made)
        kubelet = Kubelet(client, Truth())
        heart = asyncio.create_task(kubelet.heartbeat())
        try:
            yield kubelet
        finally:
            heart.cancel()
    finally:
        await client.close()


async def shapes() -> list[dict[str, Any]]:
    """Looked at while everything runs, after the operator was killed in the midst of it, and when all has ended."""
    async with stage(Load(count=0)) as it, _by_hand(it.world) as kubelet:
        for name, (selector, _) in BUDGETS.items():
            it.world.rig.call(
                "POST", f"{FOREBAY}/namespaces/{NAMESPACE}/gpuworkloadbudgets", new_budget(name, selector)
            )
        for name in BUDGETS:
            await it.leads(budget=name)
        it.began = time.time()
        kinds: tuple[Callable[[Kubelet, str], Any], ...] = (restarts, init, several, labelled_in, labelled_out)
        async with asyncio.TaskGroup() as tasks:
            for number in range(_EACH):
                for kind in kinds:
                    tasks.create_task(kind(kubelet, f"{kind.__name__.replace('_', '-')}-{number}"))
            await it.at(25)
            found = [await _look(it, kubelet.truth, "running", name) for name in BUDGETS]
            it.kill()
            it.operator.start()
        for name in BUDGETS:
            await it.leads(budget=name)
        await asyncio.sleep(6)
        return [*found, *[await _look(it, kubelet.truth, "ended", name) for name in BUDGETS]]


async def _look(it: Stage, truth: Truth, moment: str, budget: str) -> dict[str, Any]:
    before = time.time()
    said = await it.consumed(budget)
    after = time.time()
    if said is None:
        raise TimeoutError(f"{budget}: the operator does not lead")
    at = (before + after) / 2
    shown, expected, tolerance = it.shown(budget), truth.expected(budget, at), BUDGETS[budget][1]
    ratio = said / expected
    least, most = truth.expected(budget, before), truth.expected(budget, after)
    met = least * (1 - tolerance) <= said <= most * (1 + tolerance)
    name = f"{budget}, {moment}"
    print(
        f"{name:<22} {at - it.began:6.1f} s  /metrics {said:.6f} of {expected:.6f}: {ratio:.4f}  .status {shown:.3f}: "
        f"{shown / expected:.3f}: {'met' if met else 'MISSED'}"
    )
    return {
        "name": name,
        "expected": expected,
        "reported": said,
        "accuracy": max(0.0, min(ratio, 1.0)),
        "signed_error": said - expected,
        "unclamped": ratio,
        "status": {"reported": shown, "accuracy": max(0.0, min(shown / expected, 1.0))},
        "met": met,
    }


def window_edge() -> list[dict[str, Any]]:
    """In virtual time, on the embedded cluster: an hour that moves over what ten pods used."""
    from forebay.simulate.virtual_time import run

    return run(_window_edge())


async def _window_edge() -> list[dict[str, Any]]:
    from prometheus_client import CollectorRegistry

    from forebay.engine.budget_metrics import BudgetCollector
    from forebay.net import clock
    from tests.engine.budget_world import operator, used, world

    errors: list[float] = []
    shown: list[float] = []
    async with world() as it, operator(it) as made:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BudgetCollector(lambda: made.budget_accounting, clock.now))
        it.budget("edge", window=1, action="AlertOnly")
        uses: dict[str, Use] = {}
        for number in range(10):
            it.pod(f"p{number}", 1 + number % 3, runs=f"{3 + 5 * number}m")
        for _ in range(3 * 3600 // 17):
            await asyncio.sleep(17)
            now = clock.now().timestamp()
            for number in range(10):
                (container,) = it.the_pod(f"p{number}")["status"].get("containerStatuses", [{"state": {}}])
                times = container["state"].get("running") or container["state"].get("terminated")
                if times:
                    end = times.get("finishedAt")
                    uses[f"p{number}"] = Use(
                        1000 * (1 + number % 3), _time(times["startedAt"]), None if end is None else _time(end)
                    )
            expected = sum(
                use.milli * max((now if use.end is None else use.end) - max(use.start, now - 3600), 0)
                for use in uses.values()
            )
            labels = {"namespace": "default", "name": "edge"}
            said = registry.get_sample_value("gwb_consumed_gpu_hours", labels)
            assert said is not None
            errors.append(abs(said - expected / 1000 / 3600))
            shown.append(abs(used(it.status("edge")) - expected / 1000 / 3600))
    met = max(errors) < 1e-6
    print(
        f"{'window edge':<22} {len(errors)} readings in 3 h: /metrics wrong by {max(errors):.9f} GPU-h at most, "
        f".status by {max(shown):.4f}: {'met' if met else 'MISSED'}"
    )
    return [
        {
            "name": "window edge",
            "expected": 0.0,
            "reported": max(errors),
            "accuracy": None,
            "signed_error": max(errors),
            "status": {"signed_error": max(shown)},
            "met": met,
        }
    ]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
