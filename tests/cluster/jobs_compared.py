"""The same Jobs on a node of KWOK and at a conformance server of RunPod, and how each of them ended.

What is compared of a Job is its whole status but for times, and how its pods ended. What is left is compared with
nothing: no container, no registry credential, and a ledger that is the bill.
"""

import asyncio
import base64
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from fractions import Fraction
from typing import Any

import msgspec

from forebay.api.codec import decode
from forebay.api.gpu_instance import GPU_INSTANCE
from forebay.api.names import OPERATOR_LEASE, OPERATOR_NAME, OPERATOR_NAMESPACE
from forebay.budgets.bill_shares import billed
from forebay.net.clock import now
from forebay.net.serve import serving
from forebay.providers.runpod.offers import COUNTS
from forebay.simulate.market_responses import MarketCall
from tests.cluster.faulty_runpod import FaultyRunpod
from tests.cluster.operators import OperatorProcess, leaders_killed, until, until_progress_ends
from tests.cluster.test_offload import KEY, configure, job
from tests.cluster.test_rbac import account_of
from tests.cluster.unpaced_runpod import NAME, installed
from tests.cluster.worlds import FOREBAY
from tests.contract.providers.runpod.server import REGISTRIES, RunpodCloud, gpu
from tests.rig import Rig, RigFailed
from tests.rig.parts import PLAY

LOCAL, REMOTE = "local", "remote"
_TAINT = {"key": "test.forebay.dev/local", "value": "yes", "effect": "NoSchedule"}
_FAIL_JOB = {
    "rules": [{"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}}]
}
_TWO_SUFFICE = {"rules": [{"succeededCount": 2}]}
#: Seconds without a change. An order whose outcome is unknown is made again after two minutes, three times at the most.
_PATIENCE = 400.0
#: Seconds. On a busy machine a leader loses a shorter one again and again, and that without being killed.
_LEASE = 2.0
#: Kinds of Jobs: how long they run, how they end, and their spec.
KINDS: tuple[dict[str, Any], ...] = (
    {"runs": "2s", "pulls": True},
    {"runs": "2s", "exit_code": 3},
    {"runs": "1s", "completionMode": "Indexed", "completions": 3, "parallelism": 3},
    {"runs": "10h", "then": "delete"},
    {"runs": "1s", "suspend": True, "then": "resume"},
    {"runs": "2s", "exit_code": 42, "backoffLimit": 3, "podFailurePolicy": _FAIL_JOB},
    {"runs": "10h", "then": "suspend"},
    {"runs": "1s", "completions": 3, "parallelism": 2},
    {"runs": "10h", "then": "delete-foreground", "pulls": True, "parallelism": 2, "completions": 2},
    {"runs": "10h", "activeDeadlineSeconds": 6},
    {"runs": "2s", "exit_code": 1, "completionMode": "Indexed", "completions": 2, "parallelism": 1},
    {"runs": "1s", "exit_code": 5, "backoffLimit": 1},
    {"runs": "1s", "completionMode": "Indexed", "completions": 5, "parallelism": 1, "successPolicy": _TWO_SUFFICE},
)


def manifest(number: int, namespace: str) -> dict[str, Any]:
    """The Job of that number; in `LOCAL` it runs on KWOK's node, elsewhere at the provider."""
    spec = dict(KINDS[number % len(KINDS)])
    spec.pop("then", None)
    pulls = spec.pop("pulls", False)
    runs, exit_code = spec.pop("runs"), spec.pop("exit_code", 0)
    made = job(f"job-{number:02}", runs=runs, exit_code=exit_code, **spec)
    template = made["spec"]["template"]
    template["metadata"] = {"annotations": {PLAY["RUN_FOR"]: runs, PLAY["EXIT_CODE"]: str(exit_code)}}
    if pulls:
        template["spec"]["imagePullSecrets"] = [{"name": "registry"}]
    if namespace == LOCAL:
        del made["metadata"]["annotations"]
        template["spec"]["tolerations"] = [{"key": _TAINT["key"], "operator": "Exists"}]
    return made


class JobsOfNamespace:
    """Submits the Jobs to one namespace and does with each what its kind says."""

    def __init__(self, rig: Rig, namespace: str, count: int) -> None:
        self._rig = rig
        self._namespace = namespace
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self.count = count
        self.results: dict[str, Any] = {}
        #: Status of each Job when it was last read.
        self.seen: dict[str, str] = {}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await asyncio.to_thread(self._rig.call, method, path, body)

    async def run(self) -> dict[str, Any]:
        """How each Job ended, by name."""
        await self._prepare()
        async with asyncio.TaskGroup() as all_of_them:
            for number in range(self.count):
                all_of_them.create_task(self._follow(number))
        return self.results

    async def _prepare(self) -> None:
        await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        entry = {"auth": base64.b64encode(b"robot:planted-registry-password-5e").decode()}
        config = json.dumps({"auths": {"https://index.docker.io/v1/": entry}}).encode()
        data = {".dockerconfigjson": base64.b64encode(config).decode()}
        secret = {"metadata": {"name": "registry"}, "type": "kubernetes.io/dockerconfigjson", "data": data}
        await self.call("POST", f"/api/v1/namespaces/{self._namespace}/secrets", secret)
        # As the documentation asks of users: the operator may read this Secret.
        roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self._namespace}"
        rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["registry"], "verbs": ["get"]}
        await self.call("POST", f"{roles}/roles", {"metadata": {"name": "registry"}, "rules": [rule]})
        binding = {
            "metadata": {"name": "registry"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "registry"},
            "subjects": [{"kind": "ServiceAccount", "name": OPERATOR_NAME, "namespace": OPERATOR_NAMESPACE}],
        }
        await self.call("POST", f"{roles}/rolebindings", binding)
        for number in range(self.count):
            await self.call("POST", self._jobs, manifest(number, self._namespace))

    async def _follow(self, number: int) -> None:
        name, then = f"job-{number:02}", KINDS[number % len(KINDS)].get("then")
        if then == "resume":
            await self._until(lambda found: "Suspended" in _true(found), name)
            await self._suspend(name, suspended=False)
        elif then is not None:
            wanted = KINDS[number % len(KINDS)].get("parallelism", 1)
            await self._until(lambda found: found["status"].get("ready") == wanted, name)
        if then == "suspend":
            await self._suspend(name, suspended=True)
            await self._until(lambda found: "Suspended" in _true(found) and not found["status"].get("active"), name)
        elif then in {"delete", "delete-foreground"}:
            policy = "Foreground" if then == "delete-foreground" else "Background"
            await self.call("DELETE", f"{self._jobs}/{name}?propagationPolicy={policy}")
            await self._until(lambda found: not found, name)
        else:
            await self._until(lambda found: _true(found) & {"Complete", "Failed"}, name)
        self.results[name] = await self._result(name)

    async def _suspend(self, name: str, *, suspended: bool) -> None:
        while True:
            found = await self.call("GET", f"{self._jobs}/{name}")
            found["spec"]["suspend"] = suspended
            try:
                await self.call("PUT", f"{self._jobs}/{name}", found)
            except RigFailed as failure:
                if ": 409 " not in str(failure):
                    raise
            else:
                return

    async def _until(self, holds: Any, name: str) -> None:
        async def asked() -> bool:
            await asyncio.sleep(0.2)
            found = await self._job(name)
            self.seen[name] = json.dumps(found.get("status", {}), sort_keys=True)
            return bool(holds(found)) if found or holds({}) is True else False

        await until_progress_ends(asked, self.progress, f"{self._namespace}/{name}", _PATIENCE)

    def progress(self) -> object:
        return len(self.results), dict(self.seen)

    async def _job(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = await self.call("GET", f"{self._jobs}/{name}")
        except RigFailed as failure:
            if ": 404 " not in str(failure):
                raise
            return {}
        found.setdefault("status", {})
        return found

    async def _result(self, name: str) -> dict[str, Any]:
        async def still() -> tuple[Any, ...]:
            """Pods that are on their way out are gone in the end, and their Job knows it."""
            status = (await self._job(name)).get("status")
            listed = (await self.call("GET", f"{self._pods}?labelSelector=job-name={name}"))["items"]
            leaving = any("deletionTimestamp" in each["metadata"] for each in listed)
            return () if leaving or (status or {}).get("terminating") else (status, listed)

        status, pods = await until(still, f"pods of {name} go", 400)
        return {"status": None if status is None else _timeless(status), "pods": sorted(map(_end_of, pods))}


def _true(found: dict[str, Any]) -> set[str]:
    conditions = found.get("status", {}).get("conditions", ())
    return {each["type"] for each in conditions if each["status"] == "True"}


def _timeless(status: dict[str, Any]) -> dict[str, Any]:
    """The status without times, and without the names that the control plane chose."""
    kept = {key: each for key, each in status.items() if key not in {"startTime", "completionTime"}}
    kept["conditions"] = sorted(
        (
            {key: each for key, each in one.items() if not key.startswith("last")}
            for one in status.get("conditions", ())
        ),
        key=lambda each: each["type"],
    )
    text = json.dumps(kept, sort_keys=True)
    return dict(json.loads(re.sub(rf"(?:{LOCAL}|{REMOTE})/(job-\d+)(-\d+)?-[a-z0-9]{{5}}", r"\1", text)))


def _end_of(pod: dict[str, Any]) -> str:
    index = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
    containers = pod["status"].get("containerStatuses") or [{}]
    ended = containers[0].get("state", {}).get("terminated", {})
    shown = (index, pod["status"].get("phase"), ended.get("exitCode"), ended.get("reason"))
    return json.dumps(shown)


class Comparison(msgspec.Struct, kw_only=True):
    """What came of it."""

    jobs: int
    #: By name of each Job that ended differently: locally, remotely.
    differences: dict[str, Any]
    containers: int
    #: Containers and registry credentials that are left.
    left: int
    bill_usd: float
    ledger_usd: float
    #: Containers that no GPUInstance has been billed for, or for less: when they ran, with the bill and the ledger.
    unbilled: list[str]
    kills: int
    faults: int
    violations: list[str]

    @property
    def cents_apart(self) -> float:
        return abs(self.ledger_usd - self.bill_usd) * 100


async def compare_jobs(
    rig: Rig,
    count: int,
    *,
    kills: bool = False,
    faults: float = 0.0,
    harsh: bool = False,
    trace: Callable[[str], None] | None = None,
) -> Comparison:
    """Runs `count` Jobs in both places at once, with definitions installed and nothing else on the rig.

    `trace` is told every few seconds what has not ended yet.
    """
    cloud = RunpodCloud(gpu("NVIDIA A40", price="0.39", memory=48, boot=0.5), key=KEY, enforces_limits=False)
    faulty = FaultyRunpod(cloud, harsh=harsh)
    local, remote = (JobsOfNamespace(rig, name, count) for name in (LOCAL, REMOTE))
    await asyncio.to_thread(_local_node, rig)
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(serving(faulty.answer))
        fallen = await stack.enter_async_context(
            _operators(rig, base, kills=kills, progress=lambda: _seen(cloud, remote))
        )
        await until(lambda: _catalogue_read(cloud), "the catalogue is read")
        faulty.faults = faults
        if trace is not None:
            tracing = asyncio.create_task(_traced(remote, cloud, fallen, faulty, trace))
            stack.callback(tracing.cancel)
        results = await asyncio.gather(local.run(), remote.run())
        suspended = [f"job-{each:02}" for each in range(count) if KINDS[each % len(KINDS)].get("then") == "suspend"]
        for name in suspended:
            await remote.call("DELETE", f"/apis/batch/v1/namespaces/{REMOTE}/jobs/{name}?propagationPolicy=Background")
        records = await until_progress_ends(
            lambda: _all_gone(remote), lambda: _seen(cloud, remote), "every container is proven gone", 240
        )
        await until(lambda: _no_credentials(cloud), "registry credentials are deleted", 400)
    bill, ledger, unbilled = _books(cloud, records)
    return Comparison(
        jobs=count,
        differences={
            name: (each, results[1].get(name)) for name, each in results[0].items() if each != results[1].get(name)
        },
        containers=len(cloud.instances),
        left=len(cloud.running) + len(cloud.others[REGISTRIES]),
        bill_usd=float(bill),
        ledger_usd=float(ledger),
        unbilled=unbilled,
        kills=len(fallen),
        faults=faulty.failed,
        violations=list(cloud.violations),
    )


async def _traced(
    jobs: JobsOfNamespace, cloud: RunpodCloud, fallen: set[str], faulty: FaultyRunpod, trace: Callable[[str], None]
) -> None:
    began = now()
    while True:
        await asyncio.sleep(5)
        records = [each.get("status", {}) for each in (await jobs.call("GET", f"{FOREBAY}/gpuinstances"))["items"]]
        states = Counter(each.get("state", "new") for each in records)
        said = (each.get("message", "") for each in records if each.get("state") != "Gone")
        left = sorted({f"job-{each:02}" for each in range(jobs.count)} - jobs.results.keys())
        trace(
            f"{(now() - began).total_seconds():4.0f} s: {len(fallen)} kills, {faulty.failed} faults, {dict(states)}, "
            f"{len(cloud.running)} containers, {len(cloud.others[REGISTRIES])} credentials, not ended: {' '.join(left)}"
        )
        for sentence, number in Counter(re.sub(r"\S*\d\S*", "*", each) for each in said).most_common():
            trace(f"       {number:3} x {sentence}")


def _seen(cloud: RunpodCloud, jobs: JobsOfNamespace) -> object:
    return len(cloud.instances), len(cloud.running), jobs.progress()


async def _all_gone(jobs: JobsOfNamespace) -> list[Any]:
    records: list[Any] = (await jobs.call("GET", f"{FOREBAY}/gpuinstances"))["items"]
    await asyncio.sleep(0.2)
    return records if all(each.get("status", {}).get("state") == "Gone" for each in records) else []


async def _catalogue_read(cloud: RunpodCloud) -> bool:
    return sum(each.asked == MarketCall.OFFERS for each in cloud.calls) >= len(COUNTS)


async def _no_credentials(cloud: RunpodCloud) -> bool:
    return not cloud.others[REGISTRIES]


def _books(cloud: RunpodCloud, records: Sequence[Any]) -> tuple[Fraction, Fraction, list[str]]:
    """Dollars of the bill and of the ledger, and containers that the ledger has less for."""
    paid: dict[str, Fraction] = {}
    spans: dict[str, str] = {}
    for each in records:
        record = decode(GPU_INSTANCE, msgspec.json.encode(each))
        span = billed(record)
        if span is not None and span.end is not None and record.status is not None:
            owner = record.status.instance_id or ""
            paid[owner] = Fraction(span.rate, 10**24) * (span.end - span.start) / 3600
            spans[owner] = f"{span.start} to {span.end} s, {record.status.reason}: {record.status.message}"
    less = [
        f"{each}; ledger: {spans.get(each.instance, 'nothing')}"
        for each in cloud.billed
        if paid.get(each.instance, Fraction(0)) < each.dollars(now())
    ]
    return cloud.bill(), sum(paid.values(), start=Fraction(0)), less


def _local_node(rig: Rig) -> None:
    amounts = {"cpu": "500", "memory": "1Ti", "pods": "500", "nvidia.com/gpu": "500"}
    metadata = {"name": "local-node", "annotations": {"kwok.x-k8s.io/node": "fake"}}
    node = {"metadata": metadata, "spec": {"taints": [_TAINT]}, "status": {"capacity": amounts, "allocatable": amounts}}
    rig.call("POST", "/api/v1/nodes", node)


@asynccontextmanager
async def _operators(rig: Rig, base: str, *, kills: bool, progress: Any) -> AsyncIterator[set[str]]:
    """One operator, or two of which the leader is killed again and again."""
    options = ("--secret", "runpod", "--offload", "on")
    kubeconfig = await asyncio.to_thread(account_of, rig, *options)
    await asyncio.to_thread(configure, rig, base, NAME)
    environment = installed(rig.directory / "beside")
    replicas = [
        OperatorProcess(rig, name, kubeconfig, OPERATOR_NAMESPACE, environment, lease=_LEASE if kills else None)
        for name in ("first", "second")[: 2 if kills else 1]
    ]
    async with AsyncExitStack() as stack:
        for each in replicas:
            each.start()
            stack.callback(each.stop)
            await until(each.is_ready, f"{each.user} is ready")
        if kills:
            yield await stack.enter_async_context(leaders_killed(replicas, lambda: _holder(rig), progress))
        else:
            yield set()


async def _holder(rig: Rig) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/{OPERATOR_LEASE}"
    found = await asyncio.to_thread(rig.call, "GET", path)
    return str(found["spec"].get("holderIdentity") or "")
