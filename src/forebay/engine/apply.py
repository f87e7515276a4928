"""Decisions become requests. A failure is data for the next tick, never the end of the loop."""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from forebay.api.parts import Truth
from forebay.engine.decisions import Decision, ReportPool
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, KubeError, NotFound
from forebay.kube.events import EventRecorder
from forebay.kube.lease import Elector
from forebay.kube.own_kinds import GPU_NODE_POOLS
from forebay.kube.types import reference
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

#: Each act under way has a connection of its own, and a new one costs the server more than the act.
AT_ONCE: Final = 16


class Applier:
    """Applies decisions, concurrently across objects, for as long as this process leads."""

    def __init__(self, client: Client, views: Views, recorder: EventRecorder, elector: Elector) -> None:
        self._client = client
        self._views = views
        self._recorder = recorder
        self._elector = elector
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def apply(self, decisions: Iterable[Decision]) -> int:
        """How many failed; they are decided anew with the next tick."""
        outcomes = await asyncio.gather(*(self._one(decision) for decision in decisions))
        return outcomes.count(False)

    async def _one(self, decision: Decision) -> bool:
        try:
            async with self._turns:
                # Asked before each act: a process that was paused may have lost the lease without having been told.
                if not self._elector.still_leader():
                    return False
                await self._report_pool(decision)
        except (Conflict, NotFound):
            # The pool has changed or gone since the snapshot. The watch brings its new state and another tick.
            return True
        except (KubeError, TransportError) as error:
            log.warning("could not report", pool=f"{decision.namespace}/{decision.name}", why=str(error))
            return False
        return True

    async def _report_pool(self, decision: ReportPool) -> None:
        patch = writes.merge(
            {
                "metadata": {"uid": decision.uid, "resourceVersion": str(decision.resource_version)},
                "status": {
                    "observedGeneration": decision.generation,
                    "conditions": decision.conditions,
                },
            }
        )
        pool = await self._client.patch(GPU_NODE_POOLS, decision.name, patch, decision.namespace, subresource="status")
        self._views.pools.observe(pool)
        bad = any(each.type == "NodeClassReady" and each.status is not Truth.TRUE for each in decision.conditions)
        self._recorder.event(
            reference(GPU_NODE_POOLS, pool),
            reason=decision.reason,
            note=decision.sentence,
            type="Warning" if bad else "Normal",
        )
