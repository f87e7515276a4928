"""What the operator watches of the cluster."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.names import PAUSED_LABEL
from forebay.engine.pod_changes import PodChanges
from forebay.engine.pods_by_node import PodsByNode
from forebay.kube.backoff import Backoff
from forebay.kube.informer import Informer
from forebay.kube.jobs import JOBS, Job
from forebay.kube.node_usage import NodeUsage
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_CLASSES, GPU_NODE_POOLS, GPU_WORKLOAD_BUDGETS
from forebay.kube.pods import PODS, PodDecoder, pod_indexes
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
    #: Reads those pods; of which of them it reads when they ran is for the bookkeeper to say.
    pod_decoder: PodDecoder
    namespaces: Informer[Namespace]
    classes: Informer[GPUNodeClass]
    pools: Informer[GPUNodePool]
    instances: Informer[GPUInstance]
    budgets: Informer[GPUWorkloadBudget]
    #: Only those that were suspended for a budget.
    paused_jobs: Informer[Job]
    #: What the pods on each node hold.
    used: NodeUsage
    pods_by_node: PodsByNode
    #: For whoever keeps the books.
    news: PodChanges

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (
            self.nodes,
            self.pods,
            self.namespaces,
            self.classes,
            self.pools,
            self.instances,
            self.budgets,
            self.paused_jobs,
        )

    def error(self) -> str | None:
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
    clock: Callable[[], datetime],
    gpu_resources: Collection[str] | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[Views]:
    """The informers run while the block does. They start unsynced: nothing may be concluded before they are."""
    wake = asyncio.Event()
    used, pods_by_node, news = NodeUsage(), PodsByNode(), PodChanges(clock)
    pod_decoder = PodDecoder(timed=())
    views = Views(
        wake=wake,
        nodes=Informer(transport, server, NODES, wake=wake, backoff=Backoff(rng)),
        pods=Informer(
            transport,
            server,
            PODS,
            decoder=pod_decoder,
            indexes=pod_indexes(gpu_resources),
            handlers=(used, pods_by_node, news),
            wake=wake,
            backoff=Backoff(rng),
        ),
        pod_decoder=pod_decoder,
        namespaces=Informer(transport, server, NAMESPACES, wake=wake, backoff=Backoff(rng)),
        classes=Informer(transport, server, GPU_NODE_CLASSES, wake=wake, backoff=Backoff(rng)),
        pools=Informer(transport, server, GPU_NODE_POOLS, wake=wake, backoff=Backoff(rng)),
        instances=Informer(transport, server, GPU_INSTANCES, wake=wake, backoff=Backoff(rng)),
        budgets=Informer(transport, server, GPU_WORKLOAD_BUDGETS, wake=wake, backoff=Backoff(rng)),
        paused_jobs=Informer(transport, server, JOBS, label_selector=PAUSED_LABEL, wake=wake, backoff=Backoff(rng)),
        used=used,
        pods_by_node=pods_by_node,
        news=news,
    )
    async with AsyncExitStack() as stack:
        for informer in views.informers:
            await stack.enter_async_context(informer)
        yield views
