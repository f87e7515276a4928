"""Writes to nodes and their pods: cordon, drain, uncordon, labels and taints, refusals."""

from collections.abc import Collection, Iterable
from typing import Any

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import CORDONED_ANNOTATION, REFUSED_CONDITION
from forebay.demand.maintenance import cordon_is_ours
from forebay.demand.refusal import RecordRefusal
from forebay.engine.apply.events import Events
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, KubeError, NotFound, TooManyRequests
from forebay.kube.eviction import evict_pod
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS
from forebay.kube.types import reference
from forebay.lifecycle.cordon import cordon_time
from forebay.lifecycle.steps import DeleteNode, Drain, Uncordon, WriteStatus
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.model.workloads import Pod
from forebay.net import clock
from forebay.net.transport import TransportError
from forebay.reconcile.decisions import SyncNode


class NodeActions:
    """Applies decisions about nodes."""

    def __init__(self, client: Client, views: Views, events: Events) -> None:
        self._client = client
        self._views = views
        self._events = events

    async def drain(self, step: Drain) -> None:
        await self.cordon(step.node)
        if step.reason is Reason.NODE_IDENTITY_MISMATCH:
            self._events.transition(step.record, step.reason, step.sentence)
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

    async def cordon(self, node: Node) -> None:
        if not node.unschedulable:
            await self._patch(node, {"spec": {"unschedulable": True}, "metadata": _cordoned(cordon_time(clock.now()))})

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

    async def act(self, decision: Uncordon | DeleteNode | SyncNode) -> None:
        match decision:
            case Uncordon():
                await self.uncordon(decision.node)
            case DeleteNode():
                await self._delete(decision)
            case SyncNode():
                await self._sync(decision)

    async def uncordon(self, node: Node) -> None:
        """Uncordons the node if Forebay cordoned it; a cordon by somebody else stays."""
        if cordon_is_ours(node):
            await self._patch(node, {"spec": {"unschedulable": None}, "metadata": _cordoned(None)})

    async def _delete(self, step: DeleteNode) -> None:
        await self._client.delete(NODES, step.node.name, uid=step.node.uid)
        self._views.nodes.observe_deleted(step.node.key, step.node.uid)
        self._events.transition(step.record, step.reason, step.sentence)

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

    async def _sync(self, decision: SyncNode) -> None:
        """Writes labels and annotations, and adds and removes taints as the node should have them."""
        changes: dict[str, Any] = {"metadata": {"labels": dict(decision.labels)}}
        if decision.annotations:
            changes["metadata"]["annotations"] = dict(decision.annotations)
        if decision.taints or decision.remove:
            kept = (each for each in decision.node.taints if each not in decision.remove)
            changes["spec"] = {"taints": _written((*kept, *decision.taints))}
        await self._patch(decision.node, changes)

    async def record_refusal(self, decision: RecordRefusal) -> None:
        """Writes the condition of the pod."""
        pod, holds = decision.pod, decision.message is not None
        condition = {
            "type": REFUSED_CONDITION,
            "status": "True" if holds else "False",
            "reason": str(Reason.SCHEDULER_REFUSES) if holds else "Resolved",
            "message": decision.message or "",
            "lastTransitionTime": clock.now().isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        patch = writes.strategic_merge_patch({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})
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
