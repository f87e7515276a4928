"""Writes of the startup taint to nodes, and of its toleration to the pods that they were launched for."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from forebay.api.names import STARTUP_TAINT
from forebay.demand.startup_taint import AddToleration, OpenNode, ReserveNode, startup_taint
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Invalid, KubeError, NotFound, TooManyRequests
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS
from forebay.model.nodes import Node
from forebay.model.requirements import Taint
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

#: Tries to change the taints of a node within one tick, and the seconds between them.
_TRIES: Final = 5
_RETRY_AFTER: Final = 0.05
#: How long a pod whose toleration was refused counts as one that cannot have it.
_REFUSED_FOR: Final = timedelta(minutes=5)

JsonPatch = list[dict[str, Any]]


class RefusedTolerations:
    """Pods to which the API server refused a toleration, as under a policy that forbids changing pods.

    Kept by this process only: the next one tries once more.
    """

    def __init__(self) -> None:
        self._until: dict[str, datetime] = {}

    def add(self, uid: str, now: datetime) -> None:
        self._until[uid] = now + _REFUSED_FOR

    def current(self, now: datetime) -> frozenset[str]:
        """UIDs of the pods."""
        if self._until:
            self._until = {uid: until for uid, until in self._until.items() if until > now}
        return frozenset(self._until)


class StartupTaints:
    """Applies decisions about startup taints. `client` has a connection of its own: see `Operator`."""

    def __init__(
        self, client: Client, views: Views, refused: RefusedTolerations, clock: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._views = views
        self._refused = refused
        self._clock = clock

    async def reserve(self, decision: ReserveNode) -> None:
        """Puts the taints on the node. An error is only logged: the launch that follows must not wait for it."""
        taints = (startup_taint(decision.record), *decision.others)
        try:
            await self._change(decision.node, lambda node: _reserved(node, taints))
        except (KubeError, TransportError) as error:
            log.warning("node not reserved", node=decision.node.name, error=str(error))

    async def open(self, decision: OpenNode) -> None:
        await self._change(decision.node, _opened)

    async def add_toleration(self, decision: AddToleration) -> None:
        """Adds the toleration, which also makes the scheduler retry this pod and no other."""
        pod, taint = decision.pod, startup_taint(decision.record)
        toleration = {"key": taint.key, "operator": "Equal", "value": taint.value}
        operations: JsonPatch = [{"op": "test", "path": "/metadata/uid", "value": pod.uid}]
        if pod.shape.tolerations:
            operations.append({"op": "add", "path": "/spec/tolerations/-", "value": toleration})
        else:
            operations.append({"op": "test", "path": "/spec/tolerations", "value": None})
            operations.append({"op": "add", "path": "/spec/tolerations", "value": [toleration]})
        try:
            changed = await self._client.patch(PODS, pod.name, writes.json_patch(operations), pod.namespace)
        except NotFound:
            return
        except (Conflict, TooManyRequests):
            raise
        except KubeError as error:
            # Without it the pod waits until its node is open to all.
            log.warning("toleration not added", pod="/".join(pod.key), error=str(error))
            self._refused.add(pod.uid, self._clock())
        else:
            self._views.pods.observe(changed)

    async def _change(self, node: Node, change: Callable[[Node], JsonPatch]) -> None:
        """Changes taints by a JSON patch that tests only the startup taint, so that it does not conflict with other
        writers: most writes to a node come in its first seconds.
        """
        for _ in range(_TRIES):
            same = {"op": "test", "path": "/metadata/uid", "value": node.uid}
            patch = writes.json_patch([same, *change(node)])
            try:
                changed = await self._client.patch(NODES, node.name, patch)
            except Invalid:
                # Another taint was added or removed, and the informer will show it in a moment.
                await asyncio.sleep(_RETRY_AFTER)
                node = self._views.nodes.get(node.key) or node
            else:
                self._views.nodes.observe(changed)
                return


def _reserved(node: Node, taints: Iterable[Taint]) -> JsonPatch:
    """The first startup taint is replaced, any other removed, and what is missing added."""
    ours, *others = taints
    found = _startup_taints_at(node)
    operations = [each for at in reversed(found[1:]) for each in _removed(at)]
    for at in found[:1]:
        operations += [_same(at), {"op": "replace", "path": f"/spec/taints/{at}", "value": _written(ours)}]
    present = {(each.key, each.effect) for each in node.taints}
    lacking = [each for each in others if (each.key, each.effect) not in present]
    if not found:
        lacking.insert(0, ours)
    if node.taints:
        operations += ({"op": "add", "path": "/spec/taints/-", "value": _written(each)} for each in lacking)
    else:
        operations.append({"op": "test", "path": "/spec/taints", "value": None})
        operations.append({"op": "add", "path": "/spec/taints", "value": [_written(each) for each in lacking]})
    return operations


def _opened(node: Node) -> JsonPatch:
    return [each for at in reversed(_startup_taints_at(node)) for each in _removed(at)]


def _startup_taints_at(node: Node) -> list[int]:
    return [at for at, each in enumerate(node.taints) if each.key == STARTUP_TAINT]


def _same(at: int) -> dict[str, Any]:
    return {"op": "test", "path": f"/spec/taints/{at}/key", "value": STARTUP_TAINT}


def _removed(at: int) -> JsonPatch:
    return [_same(at), {"op": "remove", "path": f"/spec/taints/{at}"}]


def _written(taint: Taint) -> dict[str, str]:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": str(taint.effect)}
