"""Takes Forebay's marks off a cluster, so that nothing waits for it when it is gone.

In this order: nobody may be left with a machine that nobody will end; no operator may put marks on again; no API server
may; then pods, Jobs, classes and records are let go. Each step may be repeated, and the whole begun anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.meta import Object
from forebay.api.names import (
    BUDGET_GATE,
    CLASS_FINALIZER,
    INSTANCE_FINALIZER,
    OPERATOR_LEASE,
    PAUSED_AT_ANNOTATION,
    PAUSED_BY_ANNOTATION,
    PAUSED_LABEL,
    PAUSED_RATE_ANNOTATION,
    USAGE_FINALIZER,
)
from forebay.install.admission_policies import API, KIND, admission_policies
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Invalid, NotFound
from forebay.kube.jobs import JOBS
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_CLASSES
from forebay.kube.pods import PODS
from forebay.kube.resources import AnyObject, Resource
from forebay.kube.types import LEASES, Lease, micro_time
from forebay.model.workloads import Pod
from forebay.net import clock

Owned = TypeVar("Owned", bound=Object)

#: Held in the operators' stead. As long as this they wait before they act again: for whoever removes them then.
HOLDER: Final = "forebay-uninstall"
HELD_FOR: Final = 120
#: Seconds until a leader that has lost its lease has surely noticed.
NOTICED_AFTER: Final = 15.0
#: API servers notice that a policy is gone a moment later.
_AGAIN_AFTER: Final = 2.0
_ROUNDS: Final = 30
_AT_ONCE: Final = 16
_NAMED: Final = 5
_GROUP, _, _VERSION = API.partition("/")


class MachinesAreOn(Exception):
    """What stands in the way, and what to do."""

    def __init__(self, records: Sequence[GPUInstance]) -> None:
        names = [each.metadata.name for each in records[:_NAMED]]
        more = f" and {len(records) - _NAMED} more" if len(records) > _NAMED else ""
        many = "1 machine is" if len(records) == 1 else f"{len(records)} machines are"
        super().__init__(
            f"{many} not shown to be off ({', '.join(names)}{more}), and without Forebay nobody would end "
            f"{'it' if len(records) == 1 else 'them'}. Delete the pods and then the records (kubectl delete "
            "gpuinstances --all), which the operator does when each machine is off; or leave them to yourself with "
            "--leave-machines"
        )


class NotLetGo(Exception):
    """One sentence without its full stop: what could not be freed."""


class Uninstalled(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    policies: int = 0
    pods: int = 0
    jobs: int = 0
    classes: int = 0
    records: int = 0
    #: Names of machines that stay on.
    machines: list[str] = []


class Uninstaller:
    """`namespaces` are those in which an operator has, or had, its lease; `say` is told each step."""

    def __init__(
        self,
        client: Client,
        namespaces: Iterable[str],
        *,
        say: Callable[[str], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._namespaces = list(namespaces)
        self._say = say
        self._pause = pause
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def run(self, *, leave_machines: bool = False) -> Uninstalled:
        """Raises `MachinesAreOn` before anything is touched, and `NotLetGo`."""
        if not leave_machines:
            await self._no_machines()
        await self._halt()
        if not leave_machines:
            try:
                await self._no_machines()
            except MachinesAreOn:
                await self._resume_operators()
                raise
        policies = await self._delete_policies()
        pods = await self._free_pods()
        jobs = await self._resume_jobs()
        classes = await self._free_classes()
        records, machines = await self._forget_records()
        return Uninstalled(policies=policies, pods=pods, jobs=jobs, classes=classes, records=records, machines=machines)

    async def _records(self) -> list[GPUInstance]:
        try:
            return (await self._client.list_all(GPU_INSTANCES)).items
        except NotFound:
            return []

    async def _no_machines(self) -> None:
        live = [each for each in await self._records() if each.state is not InstanceState.GONE]
        if live:
            raise MachinesAreOn(sorted(live, key=lambda each: each.metadata.name))

    async def _halt(self) -> None:
        held = [each for each in self._namespaces if await self._take_lease(each)]
        if held:
            self._say("Operators are halted: their lease is held in their stead.")
            await self._pause(NOTICED_AFTER)

    async def _take_lease(self, namespace: str) -> bool:
        """Whether somebody had it, who must notice."""
        while True:
            try:
                lease = await self._client.get(LEASES, OPERATOR_LEASE, namespace)
            except NotFound:
                return False
            before = lease.spec.holder_identity or ""
            try:
                await self._write_lease(lease, HOLDER, HELD_FOR)
            except Conflict:
                continue
            return before not in {"", HOLDER}

    async def _resume_operators(self) -> None:
        for namespace in self._namespaces:
            try:
                lease = await self._client.get(LEASES, OPERATOR_LEASE, namespace)
                if lease.spec.holder_identity == HOLDER:
                    await self._write_lease(lease, "", 1)
            except (NotFound, Conflict):
                continue

    async def _write_lease(self, lease: Lease, holder: str, seconds: int) -> None:
        now = micro_time(clock.now())
        spec = msgspec.structs.replace(
            lease.spec, holder_identity=holder, lease_duration_seconds=seconds, acquire_time=now, renew_time=now
        )
        await self._client.update(LEASES, Lease(metadata=lease.metadata, spec=spec))

    async def _delete_policies(self) -> int:
        """Bindings first: a policy without one does nothing."""
        deleted = 0
        for each in sorted(admission_policies(), key=lambda each: not each["kind"].endswith("Binding")):
            try:
                await self._client.delete(_policy_kind(each["kind"]), each["metadata"]["name"])
                deleted += 1
            except NotFound:
                continue
        if deleted:
            self._say("Admission policies are deleted: new pods get neither finalizer nor gate.")
        return deleted

    async def _free_pods(self) -> int:
        freed: set[str] = set()
        left: list[Pod] = []
        for _ in range(_ROUNDS):
            left = [pod for pod in (await self._client.list_all(PODS)).items if _is_marked(pod)]
            await asyncio.gather(*map(self._free_pod, left))
            freed.update(pod.uid for pod in left)
            await self._pause(_AGAIN_AFTER)
            if not left:
                break
        else:
            names = ", ".join("/".join(pod.key) for pod in left[:_NAMED])
            raise NotLetGo(f"pods get marks of Forebay again and again ({names}): look for an operator that still runs")
        if freed:
            self._say(f"{len(freed)} pods are freed of the finalizer {USAGE_FINALIZER} and the gate {BUDGET_GATE}.")
        return len(freed)

    async def _free_pod(self, pod: Pod) -> None:
        # By name of the entry, not by the list as it was seen: others may change theirs meanwhile.
        change: dict[str, Any] = {
            "metadata": {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [USAGE_FINALIZER]},
        }
        if BUDGET_GATE in pod.shape.scheduling_gates:
            change["spec"] = {"schedulingGates": [{"$patch": "delete", "name": BUDGET_GATE}]}
        async with self._turns:
            try:
                await self._client.patch(PODS, pod.name, writes.strategic_merge_patch(change), pod.namespace)
            except (NotFound, Conflict, Invalid):
                return  # gone, or another by now: the next look shows it

    async def _resume_jobs(self) -> int:
        notes = dict.fromkeys((PAUSED_BY_ANNOTATION, PAUSED_AT_ANNOTATION, PAUSED_RATE_ANNOTATION))
        jobs = (await self._client.list_all(JOBS, labels=PAUSED_LABEL)).items
        for job in jobs:
            metadata = {"uid": job.uid, "labels": {PAUSED_LABEL: None}, "annotations": notes}
            patch = writes.merge_patch({"metadata": metadata, "spec": {"suspend": False}})
            try:
                await self._client.patch(JOBS, job.metadata.name, patch, job.metadata.namespace)
            except (NotFound, Conflict):
                continue
        if jobs:
            self._say(f"{len(jobs)} Jobs that waited for a budget go on.")
        return len(jobs)

    async def _free_classes(self) -> int:
        try:
            classes = (await self._client.list_all(GPU_NODE_CLASSES)).items
        except NotFound:
            return 0
        held = [each for each in classes if CLASS_FINALIZER in each.metadata.finalizers]
        for each in held:
            await self._without(GPU_NODE_CLASSES, each, CLASS_FINALIZER)
        if held:
            self._say(f"{len(held)} GPUNodeClasses may be deleted.")
        return len(held)

    async def _forget_records(self) -> tuple[int, list[str]]:
        """Only of what is gone. A record of a machine that is on is all that anybody knows of it."""
        records = await self._records()
        gone = [each for each in records if each.state is InstanceState.GONE]
        for each in gone:
            await self._without(GPU_INSTANCES, each, INSTANCE_FINALIZER)
        return len(gone), sorted(each.metadata.name for each in records if each not in gone)

    async def _without(self, resource: Resource[Owned], held: Owned, finalizer: str) -> None:
        kept = [each for each in held.metadata.finalizers if each != finalizer]
        metadata = {
            "uid": held.metadata.uid,
            "resourceVersion": held.metadata.resource_version,
            "finalizers": kept or None,
        }
        try:
            await self._client.patch(resource, held.metadata.name, writes.merge_patch({"metadata": metadata}))
        except NotFound:
            return


def _is_marked(pod: Pod) -> bool:
    return USAGE_FINALIZER in pod.finalizers or (BUDGET_GATE in pod.shape.scheduling_gates and pod.node is None)


def _policy_kind(kind: str) -> Resource[AnyObject]:
    plural = "mutatingadmissionpolicies" if kind == KIND else "mutatingadmissionpolicybindings"
    return Resource(group=_GROUP, version=_VERSION, plural=plural, kind=kind, namespaced=False, type=AnyObject)
