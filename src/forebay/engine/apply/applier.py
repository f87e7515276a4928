"""Applies the decisions of a tick. A failure is data for the next tick, never the end of the loop.

Writes to Kubernetes are awaited: concurrent across objects, in order for each object. Calls to providers run in tasks
of their own (`provider_calls`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import Enum, auto
from typing import Final, NamedTuple

import structlog

from forebay.api.names import CLASS_FINALIZER
from forebay.demand.nomination import NominatePods
from forebay.demand.refusal import RecordRefusal
from forebay.engine.apply.budgets import BudgetActions
from forebay.engine.apply.events import Events
from forebay.engine.apply.launches import Launches
from forebay.engine.apply.nodes import NodeActions
from forebay.engine.apply.pending_enforcement import PendingEnforcement
from forebay.engine.apply.records import Records
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from forebay.kube.lease import Elector
from forebay.kube.own_kinds import GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.kube.types import reference
from forebay.lifecycle.steps import Adopt, DeleteRecord, Drain, Launch, Terminate, Uncordon, WriteStatus
from forebay.net.transport import TransportError
from forebay.reconcile.decisions import (
    CreateInstance,
    Decision,
    PodEvent,
    ReportClass,
    ReportPool,
    SetClassFinalizer,
    SyncNode,
    subject,
)

log = structlog.get_logger(__name__)

#: Objects written to at the same time. Each write in flight needs a connection, and opening one costs the API server
#: more than the write.
MAX_CONCURRENT: Final = 16


class ApplyResult(NamedTuple):
    """Number of objects whose decisions were not all applied. The next tick decides about them again."""

    #: A write failed.
    failed: int
    #: Another writer changed the object first, and the informer does not show the change yet.
    conflicts: int


class _Result(Enum):
    DONE = auto()
    CONFLICT = auto()
    FAILED = auto()


class Applier:
    """Applies decisions while this process leads."""

    def __init__(
        self,
        client: Client,
        views: Views,
        events: Events,
        launches: Launches,
        elector: Elector,
        *,
        nomination_client: Client,
        actions: PendingEnforcement,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._views = views
        self._events = events
        self._launches = launches
        self._records = Records(client, views)
        self._nodes = NodeActions(client, nomination_client, views, events)
        self._budgets = BudgetActions(client, views, events, actions, clock)
        self._elector = elector
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def apply(self, decisions: Iterable[Decision]) -> ApplyResult:
        by_subject: defaultdict[tuple[str, str, str], list[Decision]] = defaultdict(list)
        for decision in decisions:
            by_subject[subject(decision)].append(decision)
        results = await asyncio.gather(*(self._in_order(each) for each in by_subject.values()))
        return ApplyResult(failed=results.count(_Result.FAILED), conflicts=results.count(_Result.CONFLICT))

    async def _in_order(self, decisions: list[Decision]) -> _Result:
        for decision in decisions:
            try:
                async with self._slots:
                    # Checked before each write: a process that was suspended may have lost the Lease without noticing.
                    if not self._elector.still_leader():
                        return _Result.FAILED
                    await self._apply(decision)
            except (Conflict, NotFound, AlreadyExists):
                # The object was changed, deleted or created after the snapshot. The watch will wake the loop.
                return _Result.CONFLICT
            except (KubeError, TransportError) as error:
                log.warning("decision not applied", **_log_keys(decision), error=str(error))
                return _Result.FAILED
            except Exception:
                # A bug must not end the loop, nor cancel the writes to other objects.
                log.exception("decision not applied", **_log_keys(decision))
                return _Result.FAILED
        return _Result.DONE

    async def _apply(self, decision: Decision) -> None:
        match decision:
            case CreateInstance() | Adopt():
                record = await self._records.create(decision.name, decision.spec, decision.status)
                self._events.transition(record, decision.reason, decision.sentence)
            case Launch():
                self._launches.launch(decision)
            case Terminate():
                # Not every termination follows a drain: a machine whose node seems never to have registered has none.
                if not (decision.first and await self._nodes.still_in_use(decision.record, decision.given_up)):
                    self._launches.terminate(decision)
            case WriteStatus():
                await self._write_status(decision)
            case Drain():
                if decision.status is not None and decision.status != decision.record.status:
                    await self._records.write(decision.record, decision.status)
                await self._nodes.drain(decision)
            case Uncordon():
                await self._nodes.uncordon(decision.node)
            case DeleteRecord():
                await self._records.delete(decision.record)
            case SetClassFinalizer():
                await self._set_class_finalizer(decision)
            case SyncNode():
                await self._nodes.sync(decision)
            case NominatePods():
                await self._nodes.nominate(decision)
            case RecordRefusal():
                await self._nodes.record_refusal(decision)
            case PodEvent():
                self._events.pod_event(decision)
            case ReportPool():
                await self._report_pool(decision)
            case ReportClass():
                await self._report_class(decision)
            case _:
                await self._budgets.act(decision)

    async def _write_status(self, step: WriteStatus) -> None:
        if self._nodes.ends_a_drain(step) and await self._nodes.still_in_use(step.record, step.given_up):
            return
        record = await self._records.write(step.record, step.status)
        # A record without a status is Requested, and its creation was recorded as such.
        if step.status.state is not step.record.state:
            self._events.transition(record, step.reason, step.sentence)

    async def _set_class_finalizer(self, decision: SetClassFinalizer) -> None:
        metadata = decision.node_class.metadata
        others = [each for each in metadata.finalizers if each != CLASS_FINALIZER]
        finalizers = [*others, CLASS_FINALIZER] if decision.present else others
        changes = {"uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": finalizers or None}
        changed = await self._client.patch(GPU_NODE_CLASSES, metadata.name, writes.merge_patch({"metadata": changes}))
        if decision.present or others:
            self._views.classes.observe(changed)
        else:
            self._views.classes.observe_deleted(decision.node_class.key, metadata.uid)

    async def _report_pool(self, decision: ReportPool) -> None:
        patch = writes.merge_patch(
            {
                "metadata": {"uid": decision.uid, "resourceVersion": str(decision.resource_version)},
                "status": {
                    "observedGeneration": decision.generation,
                    "conditions": decision.conditions,
                    "nodeCount": decision.node_count,
                    "hourlyCost": decision.hourly_cost,
                },
            }
        )
        before = self._views.pools.get((decision.namespace, decision.name))
        pool = await self._client.patch(GPU_NODE_POOLS, decision.name, patch, decision.namespace, subresource="status")
        self._views.pools.observe(pool)
        earlier = () if before is None or before.status is None else before.status.conditions
        self._events.condition(
            reference(GPU_NODE_POOLS, pool), earlier, decision.conditions, decision.reason, decision.sentence
        )

    async def _report_class(self, decision: ReportClass) -> None:
        patch = writes.merge_patch(
            {
                "metadata": {"uid": decision.uid, "resourceVersion": str(decision.resource_version)},
                "status": {
                    "observedGeneration": decision.generation,
                    "conditions": decision.conditions,
                    "activeNodes": decision.active_nodes,
                    "hourlyCost": decision.hourly_cost,
                    "offers": decision.offers,
                },
            }
        )
        before = self._views.classes.get(("", decision.name))
        changed = await self._client.patch(GPU_NODE_CLASSES, decision.name, patch, subresource="status")
        self._views.classes.observe(changed)
        earlier = () if before is None or before.status is None else before.status.conditions
        self._events.condition(
            reference(GPU_NODE_CLASSES, changed), earlier, decision.conditions, decision.reason, decision.sentence
        )


def _log_keys(decision: Decision) -> dict[str, str]:
    kind, namespace, name = subject(decision)
    return {
        "decision": type(decision).__name__,
        "kind": kind,
        "object": f"{namespace}/{name}" if namespace else name,
    }
