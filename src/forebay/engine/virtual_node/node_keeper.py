"""Keeps the virtual node: its object, its status, and the Lease by which the control plane knows that it lives.

Only the leader does. The next one goes on within seconds, long before the Lease expires; and pods that are bound to the
node have tolerations without a time limit, so that even a longer pause evicts none.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NoReturn

import msgspec
import structlog

from forebay.api.meta import Object, ObjectMeta
from forebay.api.names import VIRTUAL_NODE
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, KubeError, NotFound
from forebay.kube.resources import Resource
from forebay.kube.types import LEASES, Lease, LeaseSpec, micro_time
from forebay.net.transport import TransportError
from forebay.offload.virtual_node import (
    LEASE_NAMESPACE,
    LEASE_SECONDS,
    RENEW_EVERY,
    LogEndpoint,
    node_status,
    virtual_node,
)

log = structlog.get_logger(__name__)

#: Most pods that may be bound to the node. No scheduler counts them; it is shown to people.
MOST_PODS: Final = 5000
#: Renewals of the Lease between two writes of an unchanged status.
_STATUS_EVERY: Final = 30


class WholeNode(Object, frozen=True):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


_NODES: Final = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False, type=WholeNode)


class VirtualNodeKeeper:
    """Keeps the virtual node while this process leads."""

    def __init__(
        self,
        client: Client,
        identity: str,
        still_leader: Callable[[], bool],
        clock: Callable[[], datetime],
        endpoint: Callable[[], LogEndpoint | None] = lambda: None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._still_leader = still_leader
        self._clock = clock
        self._endpoint = endpoint
        self._since: datetime | None = None
        self._rounds = 0
        self._published: LogEndpoint | None = None
        self._wake = asyncio.Event()

    async def run(self) -> NoReturn:
        while True:
            self._wake.clear()
            await self.keep()
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_EVERY.total_seconds()):
                    await self._wake.wait()

    def wake(self) -> None:
        """Starts the next round at once: the port was opened."""
        self._wake.set()

    async def keep(self) -> bool:
        """One round; whether it succeeded. A failed one is logged, and the next one does what it left undone."""
        if not self._still_leader():
            return False
        try:
            node = await self._node()
            if self._rounds % _STATUS_EVERY == 0 or not _is_ready(node) or self._published != self._endpoint():
                await self._write_status(node)
            await self._renew()
        except (KubeError, TransportError) as error:
            log.warning("virtual node not kept", node=VIRTUAL_NODE, error=str(error))
            self._rounds = 0
            return False
        self._rounds += 1
        return True

    async def _node(self) -> WholeNode:
        """The node, created where it is missing, with the labels and the taint that keep everything else away."""
        wanted = virtual_node()
        try:
            node = await self._client.get(_NODES, VIRTUAL_NODE)
        except NotFound:
            self._since, self._rounds = None, 0
            return await self._client.create(_NODES, wanted)
        labels, taint = wanted["metadata"]["labels"], wanted["spec"]["taints"][0]
        if not labels.items() <= node.metadata.labels.items():
            patch = writes.merge_patch({"metadata": {"labels": labels}})
            node = await self._client.patch(_NODES, VIRTUAL_NODE, patch)
        taints = node.spec.get("taints", [])
        if not any(each.get("key") == taint["key"] and each.get("effect") == taint["effect"] for each in taints):
            # The resourceVersion makes it a compare-and-swap: others (the node controller) write taints too.
            changes = {"metadata": {"resourceVersion": node.metadata.resource_version}}
            patch = writes.merge_patch({**changes, "spec": {"taints": [*taints, taint]}})
            node = await self._client.patch(_NODES, VIRTUAL_NODE, patch)
        return node

    async def _write_status(self, node: WholeNode) -> None:
        now = self._clock()
        if self._since is None or not _is_ready(node):
            self._since = now
        endpoint = self._endpoint()
        # That of the API server: tools that compare versions, such as kubeadm, expect one, and it is never too old.
        version = (await self._client.version()).git_version
        status = node_status(self._since, now, most_pods=MOST_PODS, endpoint=endpoint, version=version)
        patch = writes.strategic_merge_patch({"status": status})
        await self._client.patch(_NODES, VIRTUAL_NODE, patch, subresource="status")
        self._published = endpoint

    async def _renew(self) -> None:
        spec = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=LEASE_SECONDS,
            renew_time=micro_time(self._clock()),
        )
        try:
            lease = await self._client.get(LEASES, VIRTUAL_NODE, LEASE_NAMESPACE)
        except NotFound:
            metadata = ObjectMeta(name=VIRTUAL_NODE, namespace=LEASE_NAMESPACE)
            await self._client.create(LEASES, Lease(metadata=metadata, spec=spec))
            return
        try:
            await self._client.update(LEASES, Lease(metadata=lease.metadata, spec=spec))
        except Conflict:
            # Another replica has renewed it, which is as good.
            log.info("lease of the virtual node renewed by another replica", node=VIRTUAL_NODE)


def _is_ready(node: WholeNode) -> bool:
    return any(
        each.get("type") == "Ready" and each.get("status") == "True" for each in node.status.get("conditions", ())
    )
