"""Writes the class and the pool that show the machines of environment variables."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from forebay.kube.own_kinds import GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.kube.resources import Resource
from forebay.net.transport import TransportError
from forebay.reconcile.decisions import Publish, Unpublish
from forebay.reconcile.environment_class import Published

log = structlog.get_logger(__name__)

#: Time between two attempts after a failure: the machines are used all the same, so there is no hurry.
_RETRY: Final = timedelta(minutes=1)


class PublishedObjects:
    """Applies `Publish` and `Unpublish`. A failure is logged and holds up nothing else."""

    def __init__(self, client: Client, views: Views, clock: Callable[[], datetime]) -> None:
        self._client = client
        self._views = views
        self._clock = clock
        self._not_before: dict[tuple[str, str], datetime] = {}

    async def apply(self, decision: Publish | Unpublish) -> None:
        """Raises `Conflict`, `NotFound` or `AlreadyExists` where the views do not show the object as it is yet."""
        target = decision.wanted if isinstance(decision, Publish) else decision.published
        now = self._clock()
        if now < self._not_before.get(target.key, now):
            return
        error: str | None = None
        try:
            if isinstance(decision, Unpublish):
                await self._unpublish(decision.published)
            elif (await self._publish(decision)).spec != decision.wanted.spec:
                error = (
                    "the API server does not store all its fields: apply the CustomResourceDefinitions of this release"
                )
        except (Conflict, NotFound, AlreadyExists):
            raise
        except (KubeError, TransportError) as refusal:
            error = str(refusal)
        if error is not None:
            self._not_before[target.key] = now + _RETRY
            log.warning("machines of environment variables not published", object=target.metadata.name, error=error)

    async def _publish(self, decision: Publish) -> GPUNodeClass | GPUNodePool:
        wanted, published = decision.wanted, decision.published
        written: GPUNodeClass | GPUNodePool
        if isinstance(wanted, GPUNodeClass):
            written = await self._write(GPU_NODE_CLASSES, wanted, published)
            self._views.classes.observe(written)
        else:
            written = await self._write(GPU_NODE_POOLS, wanted, published)
            self._views.pools.observe(written)
        done = "machines of environment variables published" if published is None else "published object set back"
        log.info(done, object=wanted.metadata.name)
        return written

    async def _write(
        self, resource: Resource[Published], wanted: Published, published: GPUNodeClass | GPUNodePool | None
    ) -> Published:
        if published is None:
            return await self._client.create(resource, wanted)
        patch = writes.json_patch(_set_back(wanted, published))
        return await self._client.patch(resource, published.metadata.name, patch, published.metadata.namespace)

    async def _unpublish(self, published: GPUNodeClass | GPUNodePool) -> None:
        name, uid = published.metadata.name, published.metadata.uid
        if isinstance(published, GPUNodeClass):
            await self._client.delete(GPU_NODE_CLASSES, name, uid=uid)
        else:
            await self._client.delete(GPU_NODE_POOLS, name, published.metadata.namespace, uid=uid)
        log.info("published object deleted", object=name)


def _set_back(wanted: GPUNodeClass | GPUNodePool, published: GPUNodeClass | GPUNodePool) -> list[dict[str, Any]]:
    """Replaces the spec as a whole, because a merge would keep what somebody has added."""
    metadata = published.metadata
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
        {"op": "replace", "path": "/spec", "value": msgspec.to_builtins(wanted.spec)},
    ]
