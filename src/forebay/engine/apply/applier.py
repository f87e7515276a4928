"""Decisions become requests. A failure is data for the next tick, never the end of the loop.

Kubernetes is written to and waited for, concurrently across objects and in order for each. Providers are called by
errands beside the loop.
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

#: Each act under way has a connection of its own, and a new one costs the server more than the act.
AT_ONCE: Final = 16


class Outcome(NamedTuple):
    """Of how many objects. Either way they are decided about anew."""

    #: Kubernetes did not do what it was asked.
    failed: int
    #: Somebody else was faster, and the view does not show it yet.
    void: int


class _End(Enum):
    DONE = auto()
    VOID = auto()
    FAILED = auto()


class Applier:
    """Applies decisions for as long as this process leads."""

    def __init__(
        self,
        client: Client,
        views: Views,
        announcements: Events,
        launches: Launches,
        elector: Elector,
        *,
        opening: Client,
        actions: PendingEnforcement,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._views = views
        self._announcements = announcements
        self._launches = launches
        self._records = Records(client, views)
        self._nodes = NodeActions(client, opening, views, announcements)
        self._budgets = BudgetActions(client, views, announcements, actions, clock)
        self._elector = elector
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def apply(self, decisions: Iterable[Decision]) -> Outcome:
        by_subject: defaultdict[tuple[str, str, str], list[Decision]] = defaultdict(list)
        for decision in decisions:
            by_subject[subject(decision)].append(decision)
        ends = await asyncio.gather(*(self._in_order(about) for about in by_subject.values()))
        return Outcome(failed=ends.count(_End.FAILED), void=ends.count(_End.VOID))

    async def _in_order(self, decisions: list[Decision]) -> "_End":
        for decision in decisions:
            try:
                async with self._turns:
                    # Asked before each act: a process that was paused may have lost the lease without having been told.
                    if not self._elector.still_leader():
                        return _End.FAILED
                    await self._one(decision)
            except (Conflict, NotFound, AlreadyExists):
                # The object has changed, gone or come since the snapshot. The watch brings it, and another tick.
                return _End.VOID
            except (KubeError, TransportError) as error:
                _, namespace, name = subject(decision)
                about = f"{namespace}/{name}" if namespace else name
                log.warning("could not act", decision=type(decision).__name__, about=about, why=str(error))
                return _End.FAILED
            except Exception:
                # A fault of ours: it must not end the loop, nor leave others half done beside one that goes on.
                log.exception("an act broke", decision=type(decision).__name__, about="/".join(subject(decision)))
                return _End.FAILED
        return _End.DONE

    async def _one(self, decision: Decision) -> None:
        match decision:
            case CreateInstance() | Adopt():
                record = await self._records.create(decision.name, decision.spec, decision.status)
                self._announcements.transition(record, decision.reason, decision.sentence)
            case Launch():
                self._launches.launch(decision)
            case Terminate():
                # Not every way here leads through a drain, such as that of a machine which seems never to have joined.
                if not (decision.first and await self._nodes.still_in_use(decision.record, decision.given_up)):
                    self._launches.terminate(decision)
            case WriteStatus():
                await self._write(decision)
            case Drain():
                if decision.status is not None and decision.status != decision.record.status:
                    await self._records.write(decision.record, decision.status)
                await self._nodes.drain(decision)
            case Uncordon():
                await self._nodes.uncordon(decision.node)
            case DeleteRecord():
                await self._records.forget(decision.record)
            case SetClassFinalizer():
                await self._hold(decision)
            case SyncNode():
                await self._nodes.dress(decision)
            case NominatePods():
                await self._nodes.welcome(decision)
            case PodEvent():
                self._announcements.tell(decision)
            case ReportPool():
                await self._report_pool(decision)
            case ReportClass():
                await self._report_class(decision)
            case _:
                await self._budgets.act(decision)

    async def _write(self, step: WriteStatus) -> None:
        if self._nodes.ends_a_drain(step) and await self._nodes.still_in_use(step.record, step.given_up):
            return
        record = await self._records.write(step.record, step.status)
        before = step.record.status.state if step.record.status is not None else None
        if step.status.state is not before:
            self._announcements.transition(record, step.reason, step.sentence)

    async def _hold(self, decision: SetClassFinalizer) -> None:
        metadata = decision.node_class.metadata
        others = [each for each in metadata.finalizers if each != CLASS_FINALIZER]
        finalizers = [*others, CLASS_FINALIZER] if decision.present else others
        marks = {"uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": finalizers or None}
        changed = await self._client.patch(GPU_NODE_CLASSES, metadata.name, writes.merge_patch({"metadata": marks}))
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
        said = () if before is None or before.status is None else before.status.conditions
        self._announcements.condition(
            reference(GPU_NODE_POOLS, pool), said, decision.conditions, decision.reason, decision.sentence
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
        said = () if before is None or before.status is None else before.status.conditions
        self._announcements.condition(
            reference(GPU_NODE_CLASSES, changed), said, decision.conditions, decision.reason, decision.sentence
        )
