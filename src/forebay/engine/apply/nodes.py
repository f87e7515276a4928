"""Writes to nodes and their pods: cordon, drain, uncordon, labels and taints, nominations."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final

import structlog

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import CORDONED_ANNOTATION, REFUSED_CONDITION, STARTUP_TAINT
from forebay.demand.nomination import NominatePods, tolerates_startup_taint
from forebay.demand.refusal import RecordRefusal
from forebay.engine.apply.events import Events
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, TooManyRequests
from forebay.kube.eviction import evict_pod
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS
from forebay.kube.types import reference
from forebay.lifecycle.cordon import cordon_is_ours, cordon_time
from forebay.lifecycle.steps import Drain, WriteStatus
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.requirements import Effect, Taint
from forebay.model.workloads import Pod
from forebay.net import clock
from forebay.net.transport import TransportError
from forebay.reconcile.decisions import SyncNode

log = structlog.get_logger(__name__)

#: Nodes whose pods are nominated at the same time; each has a few pods.
_MAX_CONCURRENT: Final = 8
#: Tries to change the startup taint within one tick, and the seconds between them.
_TAINT_TRIES: Final = 5
_TAINT_RETRY_AFTER: Final = 0.05


class NodeActions:
    """Applies decisions about nodes. `nomination_client` writes nominations and startup taints only: see `Operator`."""

    def __init__(self, client: Client, nomination_client: Client, views: Views, events: Events) -> None:
        self._client = client
        self._nomination_client = nomination_client
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._views = views
        self._events = events

    async def drain(self, step: Drain) -> None:
        if not step.node.unschedulable:
            await self._patch(
                step.node, {"spec": {"unschedulable": True}, "metadata": _cordoned(cordon_time(clock.now()))}
            )
        failed: KubeError | TransportError | None = None
        for pod in step.evict:
            try:
                await self._evict(pod, step)
            except (KubeError, TransportError) as error:
                # A pod that cannot be evicted (an admission policy, or two disruption budgets for it) must not keep the
                # others from being evicted.
                self._blocked(pod, step, str(error))
                failed = error
        if failed is not None:
            raise failed

    async def _evict(self, pod: Pod, step: Drain) -> None:
        try:
            await evict_pod(self._client, pod.name, pod.namespace, uid=pod.uid)
        except TooManyRequests as error:
            if not error.by_disruption_budget:
                raise
            self._blocked(pod, step, error.message)
        except (NotFound, Conflict):
            # Deleted, or another pod of that name.
            return
        else:
            self._events.about(reference(PODS, pod), step.reason, step.sentence)

    def _blocked(self, pod: Pod, step: Drain, why: str) -> None:
        sentence = f"Pod {pod.namespace}/{pod.name} could not be evicted from node {step.node.name}: {why}"
        self._events.about(reference(NODES, step.node), Reason.EVICTION_BLOCKED, sentence, warning=True)

    async def uncordon(self, node: Node) -> None:
        """Uncordons the node if Forebay cordoned it; a cordon by somebody else stays."""
        if cordon_is_ours(node):
            await self._patch(node, {"spec": {"unschedulable": None}, "metadata": _cordoned(None)})

    def ends_a_drain(self, step: WriteStatus) -> bool:
        before = step.record.status.state if step.record.status is not None else None
        return before is InstanceState.DRAINING and step.status.state is InstanceState.TERMINATING

    async def still_in_use(self, record: GPUInstance, given_up: Collection[str] = ()) -> bool:
        """Whether pods still run on the node, by a fresh list: before a termination the informer may be a moment late.
        Pods whose UIDs are in `given_up` do not count: the decision has accepted their loss.
        """
        if record.spec.node is None:
            return False
        page = await self._client.list_all(PODS, fields=f"spec.nodeName={record.spec.node.name}")
        for pod in page.items:
            self._views.pods.observe(pod)
        return any(pod.occupies_node and pod.uid not in given_up for pod in page.items)

    async def sync(self, decision: SyncNode) -> None:
        """Writes labels, and adds and removes taints as the node should have them."""
        changes: dict[str, Any] = {"metadata": {"labels": dict(decision.labels)}}
        if decision.taints or decision.remove:
            kept = (each for each in decision.node.taints if each not in decision.remove)
            changes["spec"] = {"taints": _written((*kept, *decision.taints))}
        await self._patch(decision.node, changes)

    async def nominate(self, decision: NominatePods) -> None:
        """Nominates the pods. While the node keeps its startup taint, only they tolerate it and can be bound there."""
        async with self._slots:
            if decision.reserve:
                taint = {"key": STARTUP_TAINT, "value": decision.taint_value, "effect": str(Effect.NO_SCHEDULE)}
                await self._change_startup_taint(decision.node, taint)
            admitted = await asyncio.gather(*(self._admit(pod, decision) for pod in decision.pods))
            if decision.untaint or not all(admitted):
                await self._change_startup_taint(decision.node, None)

    async def _admit(self, pod: Pod, decision: NominatePods) -> bool:
        """Nominates one pod. Returns False where it gets no toleration, so that the startup taint must go for it."""
        await self._set_nominated_node(pod, decision.node.name)
        return not decision.reserve or await self._add_toleration(pod, decision)

    async def _add_toleration(self, pod: Pod, decision: NominatePods) -> bool:
        """Adds a toleration for the startup taint of this one node, which also makes the scheduler retry this pod and
        no other. Returns False where the API server refuses it, as under a policy that forbids changing pods.
        """
        if tolerates_startup_taint(pod, decision.record):
            return True
        toleration = {"key": STARTUP_TAINT, "operator": "Equal", "value": decision.taint_value}
        same = {"op": "test", "path": "/metadata/uid", "value": pod.uid}
        operations: list[dict[str, Any]]
        if pod.shape.tolerations:
            operations = [same, {"op": "add", "path": "/spec/tolerations/-", "value": toleration}]
        else:
            none = {"op": "test", "path": "/spec/tolerations", "value": None}
            operations = [same, none, {"op": "add", "path": "/spec/tolerations", "value": [toleration]}]
        try:
            changed = await self._nomination_client.patch(PODS, pod.name, writes.json_patch(operations), pod.namespace)
        except NotFound:
            return True
        except (Invalid, Forbidden) as error:
            log.warning("toleration not added", pod="/".join(pod.key), node=decision.node.name, error=str(error))
            return False
        self._views.pods.observe(changed)
        return True

    async def _change_startup_taint(self, node: Node, taint: dict[str, str] | None) -> None:
        """Replaces or removes the startup taint by a JSON patch that tests only this taint, so that it does not
        conflict with other writers: most writes to a node come in its first seconds.
        """
        for _ in range(_TAINT_TRIES):
            operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": node.uid}]
            for at in reversed([at for at, each in enumerate(node.taints) if each.key == STARTUP_TAINT]):
                path = f"/spec/taints/{at}"
                operations.append({"op": "test", "path": f"{path}/key", "value": STARTUP_TAINT})
                operations.append(
                    {"op": "replace", "path": path, "value": taint} if taint else {"op": "remove", "path": path}
                )
            try:
                changed = await self._nomination_client.patch(NODES, node.name, writes.json_patch(operations))
            except Invalid:
                # Another taint was added or removed, and the informer will show it in a moment.
                await asyncio.sleep(_TAINT_RETRY_AFTER)
                node = self._views.nodes.get(node.key) or node
            else:
                self._views.nodes.observe(changed)
                return

    async def _set_nominated_node(self, pod: Pod, node: str) -> None:
        patch = writes.merge_patch({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}})
        try:
            nominated = await self._nomination_client.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
        except (NotFound, Conflict, Invalid):
            # Deleted, another pod of that name, or bound meanwhile: no nomination is needed.
            return
        self._views.pods.observe(nominated)
        sentence = f"Node {node} is ready for this pod. The scheduler tries it first."
        self._events.about(reference(PODS, pod), Reason.NOMINATED, sentence)

    async def record_refusal(self, decision: RecordRefusal) -> None:
        """Writes the condition, and takes back the nomination in the same write."""
        pod, holds = decision.pod, decision.message is not None
        condition = {
            "type": REFUSED_CONDITION,
            "status": "True" if holds else "False",
            "reason": str(Reason.SCHEDULER_REFUSES) if holds else "Resolved",
            "message": decision.message or "",
            "lastTransitionTime": clock.now().isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        status: dict[str, Any] = {"conditions": [condition]}
        if decision.clear_nomination:
            status["nominatedNodeName"] = None
        patch = writes.strategic_merge_patch({"metadata": {"uid": pod.uid}, "status": status})
        changed = await self._client.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
        self._views.pods.observe(changed)

    async def _patch(self, node: Node, changes: dict[str, Any]) -> None:
        # The resource version guards lists (taints), which a merge patch replaces as a whole.
        metadata = {**changes.get("metadata", {}), "uid": node.uid, "resourceVersion": str(node.resource_version)}
        patch = writes.merge_patch({**changes, "metadata": metadata})
        self._views.nodes.observe(await self._client.patch(NODES, node.name, patch))


def _cordoned(value: str | None) -> dict[str, Any]:
    return {"annotations": {CORDONED_ANNOTATION: value}}


def _written(taints: Iterable[Taint]) -> list[dict[str, str]]:
    return [{"key": each.key, "value": each.value, "effect": str(each.effect)} for each in taints]
