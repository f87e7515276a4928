"""What the operator watches of the cluster."""

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.engine.tenants import Tenants
from forebay.kube.backoff import Backoff
from forebay.kube.informer import Informer
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.kube.pods import PODS, pod_indexes
from forebay.kube.tally import Tally
from forebay.kube.types import NAMESPACES, Namespace
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.net.transport import Transport


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """One informer per kind, all waking the same loop."""

    #: Set whenever any of them changes.
    wake: asyncio.Event
    nodes: Informer[Node]
    pods: Informer[Pod]
    namespaces: Informer[Namespace]
    classes: Informer[GPUNodeClass]
    pools: Informer[GPUNodePool]
    instances: Informer[GPUInstance]
    #: What the pods on each node hold.
    used: Tally
    tenants: Tenants

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (self.nodes, self.pods, self.namespaces, self.classes, self.pools, self.instances)

    def trouble(self) -> str | None:
        """Why nothing may be concluded from these views now; None when all are whole and current."""
        for informer in self.informers:
            kind = informer.resource.plural
            if not informer.synced:
                return f"{kind} are not listed yet: {informer.last_error or 'listing'}"
            if informer.stale:
                return f"{kind} are {informer.staleness:.0f} s old: {informer.last_error or 'no word from the server'}"
            # Deciding without a machine that is there but cannot be read could buy it a second time.
            if informer is self.instances and informer.undecodable:
                (_, name), why = next(iter(informer.undecodable.items()))
                return f"GPUInstance {name} cannot be read ({why}): correct or remove it, or update Forebay"
        return None


@asynccontextmanager
async def watching(
    transport: Transport,
    server: str,
    *,
    gpu_resources: Collection[str] | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[Views]:
    """The informers run while the block does. They start unsynced: nothing may be concluded before they are."""
    wake = asyncio.Event()
    used, tenants = Tally(), Tenants()
    views = Views(
        wake=wake,
        nodes=Informer(transport, server, NODES, wake=wake, backoff=Backoff(rng)),
        pods=Informer(
            transport,
            server,
            PODS,
            indexes=pod_indexes(gpu_resources),
            kept=(used, tenants),
            wake=wake,
            backoff=Backoff(rng),
        ),
        namespaces=Informer(transport, server, NAMESPACES, wake=wake, backoff=Backoff(rng)),
        classes=Informer(transport, server, GPU_NODE_CLASSES, wake=wake, backoff=Backoff(rng)),
        pools=Informer(transport, server, GPU_NODE_POOLS, wake=wake, backoff=Backoff(rng)),
        instances=Informer(transport, server, GPU_INSTANCES, wake=wake, backoff=Backoff(rng)),
        used=used,
        tenants=tenants,
    )
    async with AsyncExitStack() as stack:
        for informer in views.informers:
            await stack.enter_async_context(informer)
        yield views
