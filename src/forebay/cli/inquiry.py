"""One look at a cluster, for the commands that only read it. What is not there is an error of one sentence."""

import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, NoReturn

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.meta import Object
from forebay.cli.parser import UserError
from forebay.engine.permissions import LEASE
from forebay.kube.client import Client
from forebay.kube.connection import connected_client
from forebay.kube.errors import Forbidden, NotFound
from forebay.kube.events import CONTROLLER
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_POOLS
from forebay.kube.pods import PODS
from forebay.kube.resources import Resource, T
from forebay.kube.types import EVENTS, LEASES, Event, Lease
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.settings import Settings
from forebay.wiring import cluster_config, configure_logging


class JobSpec(msgspec.Struct, rename="camel", kw_only=True):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False


class JobStatus(msgspec.Struct, rename="camel", kw_only=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Job(Object):
    """As much of a Job as says what its pods are for."""

    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


JOBS: Final = Resource(group="batch", version="v1", plural="jobs", kind="Job", namespaced=True, type=Job)


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts, as the Lease says. Its age is reckoned between two clocks."""

    namespace: str
    #: "" where the last one has left and nobody has come.
    holder: str
    renewed: datetime | None
    duration: timedelta

    def acts(self, now: datetime) -> bool:
        return bool(self.holder) and self.renewed is not None and now - self.renewed <= self.duration


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What Forebay wrote on an object."""

    #: As namespace/name.
    about: str
    at: datetime
    type: str
    reason: str
    note: str
    times: int = 1


class Inquiry:
    """Answers from one cluster. `namespace` is where things are looked for that are named without one."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def pod(self, namespace: str, name: str) -> Pod:
        return await self._one(PODS, name, namespace)

    async def job(self, namespace: str, name: str) -> Job:
        return await self._one(JOBS, name, namespace)

    async def node(self, name: str) -> Node:
        return await self._one(NODES, name)

    async def record(self, name: str) -> GPUInstance:
        return await self._one(GPU_INSTANCES, name)

    async def pods(self, namespace: str | None = None, *, node: str | None = None) -> list[Pod]:
        fields = "" if node is None else f"spec.nodeName={node}"
        return (await self.client.list_all(PODS, namespace, fields=fields)).items

    async def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in (await self.client.list_all(NODES)).items}

    async def records(self) -> list[GPUInstance] | None:
        """None where Forebay's kinds are not installed."""
        return await self._installed(GPU_INSTANCES)

    async def pools(self) -> list[GPUNodePool] | None:
        return await self._installed(GPU_NODE_POOLS)

    async def leaders(self) -> list[Leader] | None:
        """One for each operator that was ever installed; None where this user may not see Leases."""
        try:
            leases = (await self.client.list_all(LEASES, fields=f"metadata.name={LEASE}")).items
        except Forbidden:
            return None
        return [_leader(lease) for lease in leases]

    async def said(self, kind: str, namespace: str = "", name: str = "") -> list[Said] | None:
        """What Forebay wrote on objects of the kind, oldest first; None where this user may not read events.

        The API server keeps events for an hour.
        """
        selectors = {"reportingController": CONTROLLER, "regarding.kind": kind}
        if name:
            selectors |= {"regarding.name": name}
        fields = ",".join(f"{field}={value}" for field, value in selectors.items())
        # Events on objects without a namespace are kept in "default".
        where = namespace or ("default" if name else None)
        try:
            events = (await self.client.list_all(EVENTS, where, fields=fields)).items
        except Forbidden:
            return None
        return sorted((_said(event) for event in events), key=lambda each: each.at)

    async def _installed(self, resource: Resource[T]) -> list[T] | None:
        try:
            return (await self.client.list_all(resource)).items
        except NotFound:
            return None

    async def _one(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        try:
            return await self.client.get(resource, name, namespace)
        except NotFound:
            absent(resource.kind, name, namespace)


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[Inquiry]:
    redactor = configure_logging(settings)
    config = cluster_config(settings, os.environ)
    client = connected_client(config, redactor)
    try:
        yield Inquiry(client, config.namespace)
    finally:
        await client.close()


def absent(kind: str, name: str, namespace: str | None) -> NoReturn:
    if namespace is None:
        raise UserError(f'there is no {kind} "{name}"')
    raise UserError(f'there is no {kind} "{name}" in namespace "{namespace}"; another is chosen with -n')


def tenants_by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.node is not None and pod.is_tenant:
            found[pod.node].append(pod)
    return found


def acting(leaders: Sequence[Leader] | None, now: datetime) -> bool | None:
    """Whether an operator is at work; None where that cannot be known."""
    return None if leaders is None else any(leader.acts(now) for leader in leaders)


def present(leaders: Sequence[Leader] | None, now: datetime) -> datetime:
    """Now, by the clock of the cluster where that is ahead of ours: ages must not be negative."""
    return max([now, *(leader.renewed for leader in leaders or () if leader.renewed is not None)])


def _leader(lease: Lease) -> Leader:
    renewed = lease.spec.renew_time
    return Leader(
        namespace=lease.metadata.namespace or "",
        holder=lease.spec.holder_identity or "",
        renewed=None if renewed is None else datetime.fromisoformat(renewed),
        duration=timedelta(seconds=lease.spec.lease_duration_seconds or 0),
    )


def _said(event: Event) -> Said:
    about = event.regarding
    last = event.series.last_observed_time if event.series is not None else event.event_time
    at = datetime.fromisoformat(last) if last else event.metadata.creation_timestamp
    assert at is not None, "the API server has dated it"
    return Said(
        about=f"{about.namespace}/{about.name}" if about.namespace else about.name,
        at=at,
        type=event.type,
        reason=event.reason,
        note=event.note,
        times=event.series.count if event.series is not None else 1,
    )
