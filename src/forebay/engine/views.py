"""The informers of the operator, one per kind it watches."""

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
from forebay.api.node_provisioner import NodeProvisioner
from forebay.budgets.claims import ClaimedGPUs
from forebay.engine.pod_changes import PodChanges
from forebay.engine.pods_by_node import PodsByNode
from forebay.engine.wake import WakeEvent
from forebay.kube.backoff import Backoff
from forebay.kube.devices import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from forebay.kube.informer import Informer
from forebay.kube.jobs import JOBS, Job
from forebay.kube.node_usage import NodeUsage
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import (
    GPU_INSTANCES,
    GPU_NODE_CLASSES,
    GPU_NODE_POOLS,
    GPU_WORKLOAD_BUDGETS,
    NODE_PROVISIONERS,
)
from forebay.kube.pod_disruption_budgets import POD_DISRUPTION_BUDGETS
from forebay.kube.pod_indexes import pod_indexes
from forebay.kube.pods import PODS, PodDecoder, changes_more_than_capacity
from forebay.kube.signing_requests import SIGNING_REQUESTS
from forebay.kube.types import NAMESPACES, Namespace
from forebay.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from forebay.model.nodes import Node
from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.signing_requests import KUBELET_CLIENT_SIGNER, SigningRequest
from forebay.model.workloads import Pod
from forebay.net.transport import Transport


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """One informer per kind. Each wakes the reconcile loop when it changes."""

    #: Set whenever an informer changes.
    wake: WakeEvent
    nodes: Informer[Node]
    pods: Informer[Pod]
    #: Reads those pods; of which of them it reads when they ran is for the budget accounting to say.
    pod_decoder: PodDecoder
    namespaces: Informer[Namespace]
    classes: Informer[GPUNodeClass]
    pools: Informer[GPUNodePool]
    provisioners: Informer[NodeProvisioner]
    instances: Informer[GPUInstance]
    budgets: Informer[GPUWorkloadBudget]
    #: Only requests for kubelets' client certificates.
    signing_requests: Informer[SigningRequest]
    #: Only Jobs that Forebay has suspended for a budget.
    paused_jobs: Informer[Job]
    #: GPUs by dynamic resource allocation. All three are empty where the cluster does not serve that.
    resource_slices: Informer[ResourceSlice]
    device_classes: Informer[DeviceClass]
    resource_claims: Informer[ResourceClaim]
    #: Looked at before pods are moved to save cost. Changes of them wake nobody.
    pod_disruption_budgets: Informer[PodDisruptionBudget]
    #: Resources and host ports in use on each node.
    used: NodeUsage
    pods_by_node: PodsByNode
    #: Read by the accounting of budgets.
    pod_changes: PodChanges
    claimed_gpus: ClaimedGPUs

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (
            self.nodes,
            self.pods,
            self.namespaces,
            self.classes,
            self.pools,
            self.provisioners,
            self.instances,
            self.budgets,
            self.signing_requests,
            self.paused_jobs,
            self.resource_slices,
            self.device_classes,
            self.resource_claims,
            self.pod_disruption_budgets,
        )

    def error(self) -> str | None:
        """Why the views must not be acted on now; None while all are complete and current."""
        for informer in self.informers:
            kind = informer.resource.plural
            if not informer.synced:
                return f"{kind} are not listed yet: {informer.last_error or 'listing'}"
            if informer.stale:
                why = informer.last_error or "nothing received from the API server"
                return f"{kind} are {informer.staleness:.0f} s old: {why}"
        return None


@asynccontextmanager
async def watching(
    transport: Transport,
    server: str,
    *,
    clock: Callable[[], datetime],
    gpu_resources: Collection[str] | None = None,
    budgets: bool = True,
    rng: random.Random | None = None,
) -> AsyncIterator[Views]:
    """Informers that run for the duration of the `async with` block. They start unsynced: see `Views.error`.

    Without `budgets` no Job is read: no account has the right to.
    """
    wake = WakeEvent()
    used, pods_by_node, pod_changes, claimed_gpus = NodeUsage(), PodsByNode(), PodChanges(clock), ClaimedGPUs()
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
            handlers=(used, pods_by_node, pod_changes),
            wake=wake,
            matters=changes_more_than_capacity,
            backoff=Backoff(rng),
        ),
        pod_decoder=pod_decoder,
        namespaces=Informer(transport, server, NAMESPACES, wake=wake, backoff=Backoff(rng)),
        classes=Informer(transport, server, GPU_NODE_CLASSES, wake=wake, backoff=Backoff(rng)),
        pools=Informer(transport, server, GPU_NODE_POOLS, wake=wake, backoff=Backoff(rng)),
        provisioners=Informer(transport, server, NODE_PROVISIONERS, wake=wake, backoff=Backoff(rng)),
        instances=Informer(transport, server, GPU_INSTANCES, wake=wake, backoff=Backoff(rng)),
        budgets=Informer(transport, server, GPU_WORKLOAD_BUDGETS, wake=wake, backoff=Backoff(rng)),
        signing_requests=Informer(
            transport,
            server,
            SIGNING_REQUESTS,
            field_selector=f"spec.signerName={KUBELET_CLIENT_SIGNER}",
            wake=wake,
            backoff=Backoff(rng),
        ),
        paused_jobs=Informer(
            transport,
            server,
            JOBS,
            label_selector=PAUSED_LABEL,
            disabled=not budgets,
            wake=wake,
            backoff=Backoff(rng),
        ),
        resource_slices=Informer(transport, server, RESOURCE_SLICES, optional=True, wake=wake, backoff=Backoff(rng)),
        device_classes=Informer(transport, server, DEVICE_CLASSES, optional=True, wake=wake, backoff=Backoff(rng)),
        resource_claims=Informer(
            transport,
            server,
            RESOURCE_CLAIMS,
            optional=True,
            handlers=(claimed_gpus,),
            wake=wake,
            backoff=Backoff(rng),
        ),
        pod_disruption_budgets=Informer(transport, server, POD_DISRUPTION_BUDGETS, backoff=Backoff(rng)),
        used=used,
        pods_by_node=pods_by_node,
        pod_changes=pod_changes,
        claimed_gpus=claimed_gpus,
    )
    async with AsyncExitStack() as stack:
        for informer in views.informers:
            await stack.enter_async_context(informer)
        yield views
