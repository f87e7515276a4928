"""`ClusterReader`: reads one cluster, for commands that only read. A missing object is a `UserError`."""

import os
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import NoReturn

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.names import OPERATOR_LEASE, OPERATOR_NAMESPACE
from forebay.api.node_provisioner import NodeProvisioner
from forebay.cli.parser import UserError
from forebay.demand.devices import devices_by_node, with_devices
from forebay.kube.client import Client
from forebay.kube.config import Config
from forebay.kube.connection import connected_client
from forebay.kube.devices import DEVICE_CLASSES, RESOURCE_SLICES
from forebay.kube.errors import Forbidden, NotFound
from forebay.kube.events import CONTROLLER
from forebay.kube.jobs import JOBS, Job
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_CLASSES, GPU_NODE_POOLS, NODE_PROVISIONERS
from forebay.kube.pods import PODS
from forebay.kube.resources import Resource, T
from forebay.kube.types import EVENTS, LEASES, Event, Lease
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.reporting.cluster_view import EventLine, JobView, Leader
from forebay.settings import Settings
from forebay.wiring.cluster import cluster_config
from forebay.wiring.logs import configure_logging


class ClusterReader:
    """Reads from one cluster. `namespace` is the default for objects named without one.

    Only the Lease in `operator_namespace` says who leads: whoever may write Leases in another namespace could claim to.
    """

    def __init__(self, client: Client, namespace: str, operator_namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.operator_namespace = operator_namespace

    async def pod(self, namespace: str, name: str) -> Pod:
        return await self._one(PODS, name, namespace)

    async def job(self, namespace: str, name: str) -> tuple[JobView, str]:
        """The Job, and its UID, which its pods have in their owner reference."""
        job = await self._one(JOBS, name, namespace)
        return _job_view(job), job.uid

    async def node(self, name: str) -> Node:
        return await self._one(NODES, name)

    async def record(self, name: str) -> GPUInstance:
        return await self._one(GPU_INSTANCES, name)

    async def provisioner(self, name: str) -> NodeProvisioner:
        return await self._one(NODE_PROVISIONERS, name)

    async def pods(self, namespace: str | None = None, *, node: str | None = None) -> list[Pod]:
        fields = "" if node is None else f"spec.nodeName={node}"
        return (await self.client.list_all(PODS, namespace, fields=fields)).items

    async def nodes(self) -> dict[str, Node]:
        """All nodes, with the GPUs that ResourceSlices show, where this user may read those."""
        nodes = {node.name: node for node in (await self.client.list_all(NODES)).items}
        try:
            slices = (await self.client.list_all(RESOURCE_SLICES)).items
            classes = (await self.client.list_all(DEVICE_CLASSES)).items if slices else []
        except (NotFound, Forbidden):
            return nodes
        devices = devices_by_node(slices, classes)
        return {name: with_devices(node, devices.get(name, {})) for name, node in nodes.items()}

    async def records(self) -> list[GPUInstance] | None:
        """All GPUInstances; None where Forebay's kinds are not installed."""
        return await self._installed(GPU_INSTANCES)

    async def pools(self) -> list[GPUNodePool] | None:
        """All GPUNodePools; None where Forebay's kinds are not installed."""
        return await self._installed(GPU_NODE_POOLS)

    async def classes(self) -> list[GPUNodeClass] | None:
        """All GPUNodeClasses; None where Forebay's kinds are not installed, or this user may not list them."""
        with suppress(Forbidden):
            return await self._installed(GPU_NODE_CLASSES)
        return None

    async def provisioners(self) -> list[NodeProvisioner] | None:
        """All NodeProvisioners; None where Forebay's kinds are not installed."""
        return await self._installed(NODE_PROVISIONERS)

    async def leaders(self) -> list[Leader] | None:
        """The leader in the operator's namespace, empty where no operator has run there; None where this user may not
        read its Lease.
        """
        try:
            return [_leader(await self.client.get(LEASES, OPERATOR_LEASE, self.operator_namespace))]
        except NotFound:
            return []
        except Forbidden:
            return None

    async def lease_namespaces(self) -> list[str] | None:
        """Namespaces that have a Lease of the operator's name, whoever wrote it; None where this user may not list
        Leases.
        """
        try:
            leases = (await self.client.list_all(LEASES, fields=f"metadata.name={OPERATOR_LEASE}")).items
        except Forbidden:
            return None
        return sorted(lease.metadata.namespace or "" for lease in leases)

    async def events(
        self, kind: str, namespace: str = "", name: str = "", *, uids: Container[str] | None = None
    ) -> list[EventLine] | None:
        """Forebay's events on objects of the kind, oldest first; None where this user may not list events.

        `uids`: only events on these objects. The API server keeps events for an hour by default, and an object of the
        same name may have ended within it: an owned machine gets a new GPUInstance each time it is powered on.
        """
        selectors = {"reportingController": CONTROLLER, "regarding.kind": kind}
        if name:
            selectors |= {"regarding.name": name}
        fields = ",".join(f"{field}={value}" for field, value in selectors.items())
        # Events on cluster-scoped objects are in namespace "default".
        in_namespace = namespace or ("default" if name else None)
        try:
            events = (await self.client.list_all(EVENTS, in_namespace, fields=fields)).items
        except Forbidden:
            return None
        about = [each for each in events if uids is None or not each.regarding.uid or each.regarding.uid in uids]
        return sorted((_event_line(event) for event in about), key=lambda each: each.at)

    async def _installed(self, resource: Resource[T]) -> list[T] | None:
        try:
            return (await self.client.list_all(resource)).items
        except NotFound:
            return None

    async def _one(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        try:
            return await self.client.get(resource, name, namespace)
        except NotFound:
            object_not_found(resource.kind, name, namespace)


def operator_namespace(settings: Settings, config: Config) -> str:
    """Namespace of the operator, with its Lease and its ledgers: the configured one, or that of this pod."""
    return settings.namespace or (config.namespace if config.in_pod else OPERATOR_NAMESPACE)


@asynccontextmanager
async def cluster_reader(settings: Settings) -> AsyncIterator[ClusterReader]:
    """A reader of the cluster that the settings name, closed at the end of the block."""
    redactor = configure_logging(settings)
    config = cluster_config(settings, os.environ)
    client = connected_client(config, redactor)
    try:
        yield ClusterReader(client, config.namespace, operator_namespace(settings, config))
    finally:
        await client.close()


def object_not_found(kind: str, name: str, namespace: str | None) -> NoReturn:
    """Raise the `UserError` for an object that does not exist."""
    if namespace is None:
        raise UserError(f'{kind} "{name}" not found')
    raise UserError(f'{kind} "{name}" not found in namespace "{namespace}"; choose another namespace with -n')


def _job_view(job: Job) -> JobView:
    namespace, name = job.key
    return JobView(
        namespace=namespace,
        name=name,
        annotations=job.metadata.annotations,
        suspended=job.spec.suspend,
        completions=job.spec.completions or job.spec.parallelism or 1,
        succeeded=job.status.succeeded,
        failed=job.status.failed,
    )


def _leader(lease: Lease) -> Leader:
    renewed = lease.spec.renew_time
    return Leader(
        namespace=lease.metadata.namespace or "",
        holder=lease.spec.holder_identity or "",
        renewed=None if renewed is None else datetime.fromisoformat(renewed),
        duration=timedelta(seconds=lease.spec.lease_duration_seconds or 0),
    )


def _event_line(event: Event) -> EventLine:
    about = event.regarding
    last = event.series.last_observed_time if event.series is not None else event.event_time
    at = datetime.fromisoformat(last) if last else event.metadata.creation_timestamp
    assert at is not None, "the API server sets creationTimestamp"
    return EventLine(
        about=f"{about.namespace}/{about.name}" if about.namespace else about.name,
        at=at,
        type=event.type,
        reason=event.reason,
        note=event.note,
        times=event.series.count if event.series is not None else 1,
    )
