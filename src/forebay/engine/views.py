"""What the operator watches, and the snapshot that is taken of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.engine.snapshot import Snapshot
from forebay.kube.informer import Informer
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.kube.pods import PODS, pod_indexes
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.net.transport import Transport


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """One informer per kind, all waking the same loop."""

    #: Set whenever any of them changes.
    wake: asyncio.Event
    nodes: Informer[Node]
    pods: Informer[Pod]
    classes: Informer[GPUNodeClass]
    pools: Informer[GPUNodePool]

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (self.nodes, self.pods, self.classes, self.pools)

    def trouble(self) -> str | None:
        """Why nothing may be concluded from these views now; None when all are whole and current."""
        for informer in self.informers:
            kind = informer.resource.plural
            if not informer.synced:
                return f"{kind} are not listed yet: {informer.last_error or 'listing'}"
            if informer.stale:
                return f"{kind} are {informer.staleness:.0f} s old: {informer.last_error or 'no word from the server'}"
        return None

    def snapshot(self, now: datetime) -> Snapshot:
        return Snapshot(now=now, classes=tuple(self.classes.values()), pools=tuple(self.pools.values()))


@asynccontextmanager
async def watching(transport: Transport, server: str) -> AsyncIterator[Views]:
    """The informers run while the block does. They start unsynced: nothing may be concluded before they are."""
    wake = asyncio.Event()
    views = Views(
        wake=wake,
        nodes=Informer(transport, server, NODES, wake=wake),
        pods=Informer(transport, server, PODS, indexes=pod_indexes(), wake=wake),
        classes=Informer(transport, server, GPU_NODE_CLASSES, wake=wake),
        pools=Informer(transport, server, GPU_NODE_POOLS, wake=wake),
    )
    async with views.nodes, views.pods, views.classes, views.pools:
        yield views
