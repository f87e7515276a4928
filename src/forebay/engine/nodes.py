"""What is done to nodes and the pods on them: cordon and drain, open again, keep the plan's promise."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import structlog

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import STARTUP_TAINT
from forebay.demand.promise import Welcome
from forebay.engine.announcements import Announcements
from forebay.engine.decisions import Dress
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Invalid, KubeError, NotFound, TooManyRequests
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
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

_NOMINATIONS_AT_ONCE: Final = 8
#: After these the next tick looks again.
_OPENING_TRIES: Final = 5
#: Seconds.
_BETWEEN_TRIES: Final = 0.05
_BETWEEN_LOOKS: Final = 0.005
_LATELY: Final = 2.0
#: A watch that is later than this is not waited for.
_WATCH_LAG: Final = 0.5


class _Opened(NamedTuple):
    #: On the loop's clock: from then on it is the tick's business alone.
    until: float
    welcome: Welcome


class NodeActs:
    """`opening` is the client that nodes are opened with."""

    def __init__(self, client: Client, opening: Client, views: Views, announcements: Announcements) -> None:
        self._client = client
        self._opening = opening
        #: Every node that is opened makes the scheduler try the pods of all others, and a pod that it tries in vain
        #: loses its nomination. So nodes are opened one by one, each soon after its pods were nominated.
        self._one_by_one = asyncio.Lock()
        self._opened: list[_Opened] = []
        self._views = views
        self._announcements = announcements

    async def drain(self, step: Drain) -> None:
        if not step.node.unschedulable:
            await self._patch(
                step.node, {"spec": {"unschedulable": True}, "metadata": _cordoned(cordon_mark(clock.now()))}
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
        async with self._one_by_one:
            pods: Sequence[Pod] = decision.pods
            for _ in range(_OPENING_TRIES):
                await self._nominate_all(pods, decision.node.name)
                pods = [pod for pod in pods if self._lost_its_nomination(pod)]
                if not pods:
                    break
            if decision.untaint:
                await self._open(decision.node)
                self._opened.append(_Opened(asyncio.get_running_loop().time() + _LATELY, decision))
            await self._nominate_again()

    async def _nominate_again(self) -> None:
        """An attempt that the scheduler had begun before the node was opened still ends in vain. When many nodes are
        opened, the next tick would come too late for such a pod's place.
        """
        now = asyncio.get_running_loop().time()
        self._opened = [each for each in self._opened if each.until > now]
        lost = [
            (pod, each.welcome.node.name)
            for each in self._opened
            for pod in each.welcome.pods
            if self._lost_its_nomination(pod)
        ]
        await asyncio.gather(*(self._nominate(pod, node) for pod, node in lost[:_NOMINATIONS_AT_ONCE]))

    async def _nominate_all(self, pods: Sequence[Pod], node: str) -> None:
        """Returns when our watch has brought the nominations: so has the scheduler's, then, or will in a moment."""
        turns = asyncio.Semaphore(_NOMINATIONS_AT_ONCE)

        async def in_turn(pod: Pod) -> int:
            async with turns:
                return await self._nominate(pod, node)

        latest = max(await asyncio.gather(*(in_turn(pod) for pod in pods)), default=0)
        loop = asyncio.get_running_loop()
        end = loop.time() + _WATCH_LAG
        while self._views.pods.resource_version < latest and loop.time() < end:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(_BETWEEN_LOOKS)

    def _lost_its_nomination(self, pod: Pod) -> bool:
        """The scheduler has tried it meanwhile, in vain."""
        seen = self._views.pods.get(pod.key)
        return seen is not None and seen.uid == pod.uid and seen.node is None and seen.nominated_node is None

    async def _open(self, node: Node) -> None:
        """Takes our startup taint off and touches nothing else, so that it need not wait for what others write there:
        the first seconds of a node are its busiest.
        """
        for _ in range(_OPENING_TRIES):
            operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": node.uid}]
            for at in reversed([at for at, taint in enumerate(node.taints) if taint.key == STARTUP_TAINT]):
                operations.append({"op": "test", "path": f"/spec/taints/{at}/key", "value": STARTUP_TAINT})
                operations.append({"op": "remove", "path": f"/spec/taints/{at}"})
            try:
                opened = await self._opening.patch(NODES, node.name, writes.json_patch(operations))
            except Invalid:
                # Another taint has come or gone, and the watch is about to say so.
                await asyncio.sleep(_BETWEEN_TRIES)
                node = self._views.nodes.get(node.key) or node
            else:
                self._views.nodes.observe(opened)
                return

    async def _nominate(self, pod: Pod, node: str) -> int:
        """The version at which it is nominated; 0 where it cannot be any more."""
        patch = writes.merge({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}})
        try:
            nominated = await self._opening.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
        except (NotFound, Conflict, Invalid):
            # Gone, another pod of that name, or bound meanwhile: nothing to keep a place for.
            return 0
        self._views.pods.observe(nominated)
        sentence = f"Node {node}, obtained for this pod, is ready; the scheduler looks there first."
        self._announcements.about(reference(PODS, pod), Reason.NOMINATED, sentence)
        return nominated.resource_version

    async def _patch(self, node: Node, changes: dict[str, Any]) -> None:
        # The version guards lists (taints), which a merge patch replaces whole.
        metadata = {**changes.get("metadata", {}), "uid": node.uid, "resourceVersion": str(node.resource_version)}
        patch = writes.merge({**changes, "metadata": metadata})
        self._views.nodes.observe(await self._client.patch(NODES, node.name, patch))


def _cordoned(value: str | None) -> dict[str, Any]:
    return {"annotations": {CORDONED_ANNOTATION: value}}


def _written(taints: Iterable[Taint]) -> list[dict[str, str]]:
    return [{"key": each.key, "value": each.value, "effect": str(each.effect)} for each in taints]
