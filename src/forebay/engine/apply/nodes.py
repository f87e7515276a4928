"""What is done to nodes and the pods on them: cordon and drain, open again, keep the plan's promise."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final

import structlog

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import CORDONED_ANNOTATION, STARTUP_TAINT
from forebay.demand.nomination import NominatePods, is_let_through
from forebay.engine.apply.events import Events
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, TooManyRequests
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS
from forebay.kube.subresources import evict
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

#: With a few pods each.
_NODES_AT_ONCE: Final = 8
#: After these the next tick looks again.
_OPENING_TRIES: Final = 5
#: Seconds.
_BETWEEN_TRIES: Final = 0.05


class NodeActions:
    """`opening` is the client that nodes are opened with."""

    def __init__(self, client: Client, opening: Client, views: Views, announcements: Events) -> None:
        self._client = client
        self._opening = opening
        self._turns = asyncio.Semaphore(_NODES_AT_ONCE)
        self._views = views
        self._announcements = announcements

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
                # One that cannot be asked, for which a policy or two disruption budgets at once are enough, must not
                # keep the others from being asked.
                self._blocked(pod, step, str(error))
                failed = error
        if failed is not None:
            raise failed

    async def _evict(self, pod: Pod, step: Drain) -> None:
        try:
            await evict(self._client, pod.name, pod.namespace, uid=pod.uid)
        except TooManyRequests as error:
            if not error.by_disruption_budget:
                raise
            self._blocked(pod, step, error.message)
        except (NotFound, Conflict):
            # Gone, or another pod of that name.
            return
        else:
            self._announcements.about(reference(PODS, pod), step.reason, step.sentence)

    def _blocked(self, pod: Pod, step: Drain, why: str) -> None:
        sentence = f"{pod.namespace}/{pod.name} must leave node {step.node.name}, but {why}"
        self._announcements.about(reference(NODES, step.node), Reason.EVICTION_BLOCKED, sentence, warning=True)

    async def uncordon(self, node: Node) -> None:
        """Only a cordon of ours is taken back."""
        if cordon_is_ours(node):
            await self._patch(node, {"spec": {"unschedulable": None}, "metadata": _cordoned(None)})

    def ends_a_drain(self, step: WriteStatus) -> bool:
        before = step.record.status.state if step.record.status is not None else None
        return before is InstanceState.DRAINING and step.status.state is InstanceState.TERMINATING

    async def still_in_use(self, record: GPUInstance, given_up: Collection[str] = ()) -> bool:
        """Asked of the server itself, just before the point of no return: the view may be a moment late. Pods that
        were `given_up` with open eyes are no surprise.
        """
        if record.spec.node is None:
            return False
        page = await self._client.list_all(PODS, fields=f"spec.nodeName={record.spec.node.name}")
        for pod in page.items:
            self._views.pods.observe(pod)
        return any(pod.occupies_node and pod.uid not in given_up for pod in page.items)

    async def dress(self, decision: SyncNode) -> None:
        changes: dict[str, Any] = {"metadata": {"labels": dict(decision.labels)}}
        if decision.taints:
            changes["spec"] = {"taints": _written((*decision.node.taints, *decision.taints))}
        await self._patch(decision.node, changes)

    async def welcome(self, decision: NominatePods) -> None:
        """A node is closed to others before its pods are sent there, and opened after."""
        async with self._turns:
            if decision.keep:
                taint = {"key": STARTUP_TAINT, "value": decision.pass_value, "effect": str(Effect.NO_SCHEDULE)}
                await self._change_startup_taint(decision.node, taint)
            came = await asyncio.gather(*(self._send(pod, decision) for pod in decision.pods))
            if decision.untaint or not all(came):
                await self._change_startup_taint(decision.node, None)

    async def _send(self, pod: Pod, decision: NominatePods) -> bool:
        """False: it cannot be let through, as where a policy forbids to change pods. Then it needs an open door."""
        await self._nominate(pod, decision.node.name)
        return not decision.keep or await self._let_through(pod, decision)

    async def _let_through(self, pod: Pod, decision: NominatePods) -> bool:
        """Pods may be given tolerations at any time; this one is for a taint of one node only. It is also what makes
        the scheduler try the pod again, and no other.
        """
        if is_let_through(pod, decision.record):
            return True
        toleration = {"key": STARTUP_TAINT, "operator": "Equal", "value": decision.pass_value}
        same = {"op": "test", "path": "/metadata/uid", "value": pod.uid}
        operations: list[dict[str, Any]]
        if pod.shape.tolerations:
            operations = [same, {"op": "add", "path": "/spec/tolerations/-", "value": toleration}]
        else:
            none = {"op": "test", "path": "/spec/tolerations", "value": None}
            operations = [same, none, {"op": "add", "path": "/spec/tolerations", "value": [toleration]}]
        try:
            changed = await self._opening.patch(PODS, pod.name, writes.json_patch(operations), pod.namespace)
        except NotFound:
            return True
        except (Invalid, Forbidden) as error:
            log.warning("a pod cannot be let through to its node", pod=str(pod.key), error=str(error))
            return False
        self._views.pods.observe(changed)
        return True

    async def _change_startup_taint(self, node: Node, taint: dict[str, str] | None) -> None:
        """Touches nothing else, so that it need not wait for what others write there: the first seconds of a node are
        its busiest.
        """
        for _ in range(_OPENING_TRIES):
            operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": node.uid}]
            for at in reversed([at for at, each in enumerate(node.taints) if each.key == STARTUP_TAINT]):
                path = f"/spec/taints/{at}"
                operations.append({"op": "test", "path": f"{path}/key", "value": STARTUP_TAINT})
                operations.append(
                    {"op": "replace", "path": path, "value": taint} if taint else {"op": "remove", "path": path}
                )
            try:
                changed = await self._opening.patch(NODES, node.name, writes.json_patch(operations))
            except Invalid:
                # Another taint has come or gone, and the watch is about to say so.
                await asyncio.sleep(_BETWEEN_TRIES)
                node = self._views.nodes.get(node.key) or node
            else:
                self._views.nodes.observe(changed)
                return

    async def _nominate(self, pod: Pod, node: str) -> None:
        patch = writes.merge({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}})
        try:
            nominated = await self._opening.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
        except (NotFound, Conflict, Invalid):
            # Gone, another pod of that name, or bound meanwhile: nothing to keep a place for.
            return
        self._views.pods.observe(nominated)
        sentence = f"Node {node}, obtained for this pod, is ready; the scheduler looks there first."
        self._announcements.about(reference(PODS, pod), Reason.NOMINATED, sentence)

    async def _patch(self, node: Node, changes: dict[str, Any]) -> None:
        # The version guards lists (taints), which a merge patch replaces whole.
        metadata = {**changes.get("metadata", {}), "uid": node.uid, "resourceVersion": str(node.resource_version)}
        patch = writes.merge({**changes, "metadata": metadata})
        self._views.nodes.observe(await self._client.patch(NODES, node.name, patch))


def _cordoned(value: str | None) -> dict[str, Any]:
    return {"annotations": {CORDONED_ANNOTATION: value}}


def _written(taints: Iterable[Taint]) -> list[dict[str, str]]:
    return [{"key": each.key, "value": each.value, "effect": str(each.effect)} for each in taints]
