"""Removes Forebay's finalizers, scheduling gates, pause requests and admission policies from a cluster.

The order matters: check that no machine is on, because without Forebay none would be powered off; stop operators, then
delete the admission policies, because both would add finalizers and gates again; then clean up pods, Jobs, classes,
records and the virtual node. Every step, and the whole, can be repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, Final, TypeVar

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.meta import Object
from forebay.api.names import (
    BUDGET_GATE,
    CLASS_FINALIZER,
    ENVIRONMENT_LABEL,
    INSTANCE_FINALIZER,
    OPERATOR_LEASE,
    PAUSE_REQUESTED_AT_ANNOTATION,
    PAUSE_REQUESTED_BY_ANNOTATION,
    PAUSED_AT_ANNOTATION,
    PAUSED_BY_ANNOTATION,
    PAUSED_LABEL,
    PAUSED_RATE_ANNOTATION,
    STARTUP_TAINT,
    USAGE_FINALIZER,
    VIRTUAL_NODE,
)
from forebay.install.admission_policies import admission_policies
from forebay.install.operator_policies import KIND as VALIDATING
from forebay.install.operator_policies import POLICIES
from forebay.kube import writes
from forebay.kube.admission import GROUP, VERSIONS
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Invalid, NotFound
from forebay.kube.jobs import JOBS
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.kube.pods import PODS
from forebay.kube.resources import AnyObject, Resource
from forebay.kube.types import LEASES, Lease, micro_time
from forebay.model.counts import counted
from forebay.model.workloads import Pod
from forebay.net import clock
from forebay.offload.virtual_node import LEASE_NAMESPACE
from forebay.reconcile.environment_class import Published, is_published

Owned = TypeVar("Owned", bound=Object)

#: Holder of the operators' Lease during the uninstallation, and the seconds until operators may act again: time for the
#: user to delete them.
LEASE_HOLDER: Final = "forebay-uninstall"
LEASE_SECONDS: Final = 120
#: Seconds within which a leader notices that it has lost its Lease.
LEADER_STOPS_WITHIN: Final = 15.0
#: Seconds between two passes over all pods: API servers notice a deleted policy a moment later.
_PASS_INTERVAL: Final = 2.0
_MAX_PASSES: Final = 30
#: Pods patched at the same time.
_MAX_CONCURRENT: Final = 16
#: Objects that an error names.
_MAX_NAMED: Final = 5
#: Annotations that ask whoever runs a pod to pause: nobody would take the request back.
_PAUSE_REQUESTS: Final = frozenset({PAUSE_REQUESTED_BY_ANNOTATION, PAUSE_REQUESTED_AT_ANNOTATION})


class MachinesRunning(Exception):
    """Machines that may be on, and what to do about them."""

    def __init__(self, records: Sequence[GPUInstance]) -> None:
        names = [each.metadata.name for each in records[:_MAX_NAMED]]
        more = f" and {len(records) - _MAX_NAMED} more" if len(records) > _MAX_NAMED else ""
        containers = sum(not each.spec.delivers.has_node for each in records)
        kinds = ((len(records) - containers, "machine"), (containers, "remote container"))
        what = " and ".join(counted(number, noun) for number, noun in kinds if number)
        super().__init__(
            f"{what} may still be on ({', '.join(names)}{more}), and without Forebay nothing powers off or terminates "
            f"{'it' if len(records) == 1 else 'them'}. Delete the GPU pods, and first the Jobs and other owners that "
            "would create them again, then run kubectl delete gpuinstances --all: the operator powers off or "
            "terminates each one and removes its record. Or use --leave-machines, and do that yourself"
        )


class UninstallError(Exception):
    """The uninstallation could not be completed. The text is one sentence without its full stop."""


class Uninstalled(msgspec.Struct, frozen=True, kw_only=True):
    """Number of objects cleaned up, by kind."""

    policies: int = 0
    pods: int = 0
    jobs: int = 0
    classes: int = 0
    #: Classes and pools that showed the machines of environment variables.
    published: int = 0
    records: int = 0
    #: Nodes that were still kept for the pods they were launched for.
    nodes: int = 0
    #: Nodes that stood for remote containers.
    virtual_nodes: int = 0
    #: Names of GPUInstances whose machines stay on.
    machines: list[str] = []


class Uninstaller:
    """Runs the uninstallation. `namespaces` are those of the operators' Leases; `progress` gets a sentence per step."""

    def __init__(
        self,
        client: Client,
        namespaces: Iterable[str],
        *,
        progress: Callable[[str], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._namespaces = list(namespaces)
        self._progress = progress
        self._pause = pause
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def run(self, *, leave_machines: bool = False) -> Uninstalled:
        """Raises `MachinesRunning` before anything is changed, and `UninstallError`."""
        if not leave_machines:
            await self._check_machines()
        await self._stop_operators()
        if not leave_machines:
            try:
                await self._check_machines()
            except MachinesRunning:
                await self._resume_operators()
                raise
        policies = await self._delete_policies()
        pods = await self._clean_pods()
        jobs = await self._resume_jobs()
        classes = await self._clean_classes()
        published = await self._delete_published()
        records, machines = await self._clean_records()
        opened = await self._open_nodes()
        virtual_nodes = await self._delete_virtual_node()
        return Uninstalled(
            policies=policies,
            pods=pods,
            jobs=jobs,
            classes=classes,
            published=published,
            records=records,
            nodes=opened,
            virtual_nodes=virtual_nodes,
            machines=machines,
        )

    async def _records(self) -> list[GPUInstance]:
        try:
            return (await self._client.list_all(GPU_INSTANCES)).items
        except NotFound:
            return []

    async def _check_machines(self) -> None:
        live = [each for each in await self._records() if each.state is not InstanceState.GONE]
        if live:
            raise MachinesRunning(sorted(live, key=lambda each: each.metadata.name))

    async def _stop_operators(self) -> None:
        held = [each for each in self._namespaces if await self._take_lease(each)]
        if held:
            self._progress(f"Operators stopped: {LEASE_HOLDER} holds their Lease.")
            await self._pause(LEADER_STOPS_WITHIN)

    async def _take_lease(self, namespace: str) -> bool:
        """Takes the operators' Lease. Returns whether an operator held it, which must now notice the loss."""
        while True:
            try:
                lease = await self._client.get(LEASES, OPERATOR_LEASE, namespace)
            except NotFound:
                return False
            before = lease.spec.holder_identity or ""
            try:
                await self._write_lease(lease, LEASE_HOLDER, LEASE_SECONDS)
            except Conflict:
                continue
            return before not in {"", LEASE_HOLDER}

    async def _resume_operators(self) -> None:
        for namespace in self._namespaces:
            try:
                lease = await self._client.get(LEASES, OPERATOR_LEASE, namespace)
                if lease.spec.holder_identity == LEASE_HOLDER:
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
        """Deletes bindings first: a policy without a binding has no effect."""
        deleted = 0
        bindings_first = sorted(admission_policies(), key=lambda each: not each["kind"].endswith("Binding"))
        # An older cluster serves only the older version; where both are served, both show the same objects.
        for each, version in product(bindings_first, VERSIONS):
            try:
                await self._client.delete(_policy_kind(each["kind"], version), each["metadata"]["name"])
                deleted += 1
            except NotFound:
                continue
        for name, kind in product(POLICIES, (f"{VALIDATING}Binding", VALIDATING)):
            try:
                await self._client.delete(_policy_kind(kind, VERSIONS[0]), name)
                deleted += 1
            except NotFound:
                continue
        if deleted:
            self._progress("Admission policies deleted: new pods get no finalizer and no gate.")
        return deleted

    async def _clean_pods(self) -> int:
        cleaned: set[str] = set()
        left: list[Pod] = []
        for _ in range(_MAX_PASSES):
            left = [pod for pod in (await self._client.list_all(PODS)).items if _needs_cleaning(pod)]
            await asyncio.gather(*map(self._clean_pod, left))
            cleaned.update(pod.uid for pod in left)
            await self._pause(_PASS_INTERVAL)
            if not left:
                break
        else:
            names = ", ".join("/".join(pod.key) for pod in left[:_MAX_NAMED])
            raise UninstallError(
                f"pods keep getting finalizers, gates or pause requests of Forebay ({names}): stop the operator that "
                "still runs"
            )
        if cleaned:
            self._progress(
                f"Finalizer {USAGE_FINALIZER}, gate {BUDGET_GATE} and pause requests removed from {len(cleaned)} pods."
            )
        return len(cleaned)

    async def _clean_pod(self, pod: Pod) -> None:
        # Deletes our entries only, instead of writing the whole list: others may change theirs meanwhile.
        change: dict[str, Any] = {
            "metadata": {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [USAGE_FINALIZER]},
        }
        if requests := _PAUSE_REQUESTS & pod.annotations.keys():
            change["metadata"]["annotations"] = dict.fromkeys(sorted(requests))
        if BUDGET_GATE in pod.shape.scheduling_gates:
            change["spec"] = {"schedulingGates": [{"$patch": "delete", "name": BUDGET_GATE}]}
        async with self._slots:
            try:
                await self._client.patch(PODS, pod.name, writes.strategic_merge_patch(change), pod.namespace)
            except (NotFound, Conflict, Invalid):
                return  # deleted, or replaced by another pod: the next pass lists it again

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
            self._progress(f"{counted(len(jobs), 'Job')} resumed, suspended for a budget until now.")
        return len(jobs)

    async def _clean_classes(self) -> int:
        try:
            classes = (await self._client.list_all(GPU_NODE_CLASSES)).items
        except NotFound:
            return 0
        held = [each for each in classes if CLASS_FINALIZER in each.metadata.finalizers]
        for each in held:
            await self._remove_finalizer(GPU_NODE_CLASSES, each, CLASS_FINALIZER)
        if held:
            self._progress(f"Finalizer removed from {counted(len(held), 'GPUNodeClass', 'GPUNodeClasses')}.")
        return len(held)

    async def _delete_published(self) -> int:
        """Deletes what operators published of their environment variables: the pools first, which name the classes."""
        deleted = 0
        for namespace in self._namespaces:
            deleted += await self._delete_published_of(GPU_NODE_POOLS, namespace, namespace)
            deleted += await self._delete_published_of(GPU_NODE_CLASSES, namespace)
        if deleted:
            self._progress("GPUNodeClass and GPUNodePool of the operator's environment variables deleted.")
        return deleted

    async def _delete_published_of(
        self, resource: Resource[Published], operator: str, namespace: str | None = None
    ) -> int:
        try:
            listed = await self._client.list_all(resource, namespace, labels=f"{ENVIRONMENT_LABEL}={operator}")
        except NotFound:
            return 0
        found = [each for each in listed.items if is_published(each, operator)]
        for each in found:
            try:
                await self._client.delete(resource, each.metadata.name, namespace, uid=each.metadata.uid)
            except (NotFound, Conflict):
                continue
        return len(found)

    async def _clean_records(self) -> tuple[int, list[str]]:
        """Removes the finalizer from records in state Gone. Other records stay: only they show what is still on."""
        records = await self._records()
        gone = [each for each in records if each.state is InstanceState.GONE]
        for each in gone:
            await self._remove_finalizer(GPU_INSTANCES, each, INSTANCE_FINALIZER)
        return len(gone), sorted(each.metadata.name for each in records if each not in gone)

    async def _open_nodes(self) -> int:
        """Removes the startup taint, which nobody else takes off: no other pod could run on such a node."""
        opened = 0
        for node in (await self._client.list_all(NODES)).items:
            # The last first, so that the places of the others stay.
            places = [at for at, taint in enumerate(node.taints) if taint.key == STARTUP_TAINT][::-1]
            patch = [
                step
                for at in places
                for step in (
                    {"op": "test", "path": f"/spec/taints/{at}/key", "value": STARTUP_TAINT},
                    {"op": "remove", "path": f"/spec/taints/{at}"},
                )
            ]
            if patch:
                with suppress(NotFound):
                    await self._client.patch(NODES, node.name, writes.json_patch(patch))
                    opened += 1
        if opened:
            self._progress(f"Taint {STARTUP_TAINT} removed from {counted(opened, 'node')}.")
        return opened

    async def _delete_virtual_node(self) -> int:
        """Deletes the node of remote pods and its Lease, unless pods still run there: they would be lost with it."""
        pods = (await self._client.list_all(PODS, fields=f"spec.nodeName={VIRTUAL_NODE}")).items
        running = [pod for pod in pods if not pod.phase.ended]
        if running:
            names = ", ".join("/".join(pod.key) for pod in running[:_MAX_NAMED])
            self._progress(f"Node {VIRTUAL_NODE} stays with {counted(len(running), 'unfinished pod')} ({names}).")
            return 0
        deleted = 0
        with suppress(NotFound):
            await self._client.delete(LEASES, VIRTUAL_NODE, LEASE_NAMESPACE)
        with suppress(NotFound):
            await self._client.delete(NODES, VIRTUAL_NODE)
            deleted = 1
            self._progress(f"Node {VIRTUAL_NODE} deleted. The cluster removes pods that have ended there.")
        return deleted

    async def _remove_finalizer(self, resource: Resource[Owned], held: Owned, finalizer: str) -> None:
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


def _needs_cleaning(pod: Pod) -> bool:
    return (
        USAGE_FINALIZER in pod.finalizers
        or (BUDGET_GATE in pod.shape.scheduling_gates and pod.node is None)
        or not _PAUSE_REQUESTS.isdisjoint(pod.annotations)
    )


def _policy_kind(kind: str, version: str) -> Resource[AnyObject]:
    plural = f"{kind.lower()}s" if kind.endswith("Binding") else f"{kind.lower().removesuffix('y')}ies"
    return Resource(group=GROUP, version=version, plural=plural, kind=kind, namespaced=False, type=AnyObject)
