"""What is done to nodes and the pods on them: cordon and drain, open again, keep the plan's promise."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final

import structlog

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import STARTUP_TAINT
from forebay.demand.promise import Welcome
from forebay.engine.announcements import Announcements
from forebay.engine.decisions import Dress
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Invalid, NotFound, TooManyRequests
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS
from forebay.kube.subresources import evict
from forebay.kube.types import reference
from forebay.lifecycle.facts import CORDONED_ANNOTATION, cordon_is_ours, cordon_mark
from forebay.lifecycle.steps import Drain, Write
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.model.workloads import Pod
from forebay.net import clock

log = structlog.get_logger(__name__)

_NOMINATIONS_AT_ONCE: Final = 8


class NodeActs:
    """`opening` is the client that nodes are opened with."""

    def __init__(self, client: Client, opening: Client, views: Views, announcements: Announcements) -> None:
        self._client = client
        self._opening = opening
        #: Every node that is opened makes the scheduler try the pods of all others, and a pod that it tries in vain
        #: loses its nomination. So nodes are opened one by one, each soon after its pods were nominated.
        self._one_by_one = asyncio.Lock()
        self._views = views
        self._announcements = announcements

    async def drain(self, step: Drain) -> None:
        if not step.node.unschedulable:
            await self._patch(
                step.node, {"spec": {"unschedulable": True}, "metadata": _cordoned(cordon_mark(clock.now()))}
            )
        for pod in step.evict:
            await self._evict(pod, step)

    async def _evict(self, pod: Pod, step: Drain) -> None:
        try:
            await evict(self._client, pod.name, pod.namespace, uid=pod.uid)
        except TooManyRequests as error:
            if not error.by_disruption_budget:
                raise
            sentence = f"{pod.namespace}/{pod.name} must leave node {step.node.name}, but {error.message}"
            self._announcements.about(reference(NODES, step.node), Reason.EVICTION_BLOCKED, sentence, warning=True)
        except (NotFound, Conflict):
            # Gone, or another pod of that name.
            return
        else:
            self._announcements.about(reference(PODS, pod), step.reason, step.sentence)

    async def uncordon(self, node: Node) -> None:
        """Only a cordon of ours is taken back."""
        if cordon_is_ours(node):
            await self._patch(node, {"spec": {"unschedulable": None}, "metadata": _cordoned(None)})

    def ends_a_drain(self, step: Write) -> bool:
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
        return any(pod.is_tenant and pod.uid not in given_up for pod in page.items)

    async def dress(self, decision: Dress) -> None:
        changes: dict[str, Any] = {"metadata": {"labels": dict(decision.labels)}}
        if decision.taints:
            changes["spec"] = {"taints": _written((*decision.node.taints, *decision.taints))}
        await self._patch(decision.node, changes)

    async def welcome(self, decision: Welcome) -> None:
        """Nominate first, then open the node at once: pods that were not meant for it have no time in between."""
        turns = asyncio.Semaphore(_NOMINATIONS_AT_ONCE)

        async def in_turn(pod: Pod) -> None:
            async with turns:
                await self._nominate(pod, decision.node.name)

        async with self._one_by_one:
            await asyncio.gather(*(in_turn(pod) for pod in decision.pods))
            if decision.untaint:
                kept = _written(each for each in decision.node.taints if each.key != STARTUP_TAINT)
                await self._patch(decision.node, {"spec": {"taints": kept or None}}, self._opening)

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

    async def _patch(self, node: Node, changes: dict[str, Any], client: Client | None = None) -> None:
        # The version guards lists (taints), which a merge patch replaces whole.
        metadata = {**changes.get("metadata", {}), "uid": node.uid, "resourceVersion": str(node.resource_version)}
        patch = writes.merge({**changes, "metadata": metadata})
        self._views.nodes.observe(await (client or self._client).patch(NODES, node.name, patch))


def _cordoned(value: str | None) -> dict[str, Any]:
    return {"annotations": {CORDONED_ANNOTATION: value}}


def _written(taints: Iterable[Taint]) -> list[dict[str, str]]:
    return [{"key": each.key, "value": each.value, "effect": str(each.effect)} for each in taints]
