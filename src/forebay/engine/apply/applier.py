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

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import CLASS_FINALIZER
from forebay.api.parts import Truth
from forebay.demand.refusal import RecordRefusal
from forebay.demand.startup_taint import AddToleration, OpenNode, ReserveNode
from forebay.engine.apply.budgets import BudgetActions
from forebay.engine.apply.capacity_conditions import CapacityConditions
from forebay.engine.apply.events import Events
from forebay.engine.apply.join_credentials import JoinCredentials
from forebay.engine.apply.launches import Launches
from forebay.engine.apply.nodes import NodeActions
from forebay.engine.apply.published import PublishedObjects
from forebay.engine.apply.records import MAX_CONCURRENT, Records
from forebay.engine.apply.startup_taints import StartupTaints
from forebay.engine.counts import Counts
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from forebay.kube.lease import Elector
from forebay.kube.own_kinds import GPU_NODE_CLASSES, GPU_NODE_POOLS, NODE_PROVISIONERS
from forebay.kube.right_of_way import RightOfWay
from forebay.kube.signing_requests import approve
from forebay.kube.types import reference
from forebay.lifecycle.node_certificates import ApproveCertificate, ReportMisuse
from forebay.lifecycle.steps import (
    Adopt,
    DeleteNode,
    DeleteRecord,
    DeleteResources,
    Drain,
    Launch,
    Terminate,
    Uncordon,
    WriteStatus,
)
from forebay.model.reasons import Reason
from forebay.net.transport import TransportError
from forebay.reconcile.decisions import (
    CreateInstance,
    Decision,
    OwnerEvent,
    PodEvent,
    Publish,
    ReportCapacity,
    ReportClass,
    ReportPool,
    ReportProvisioner,
    SetClassFinalizer,
    SyncNode,
    Unpublish,
    UnreadableInstance,
    subject,
)
from forebay.reconcile.group_reports import BAD_TRUTHS

log = structlog.get_logger(__name__)


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


#: States of machines that are on their way out.
_LEAVING: Final = frozenset({InstanceState.DRAINING, InstanceState.TERMINATING, InstanceState.GONE})


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
        join_credentials: JoinCredentials,
        conditions: CapacityConditions,
        budgets: BudgetActions,
        startup_taints: StartupTaints,
        way: RightOfWay,
        clock: Callable[[], datetime],
        counts: Counts | None = None,
    ) -> None:
        self._counts = counts or Counts()
        self._client = client
        self._views = views
        self._events = events
        self._launches = launches
        self._join_credentials = join_credentials
        self._records = Records(client, views)
        self._nodes = NodeActions(client, views, events)
        self._startup_taints = startup_taints
        self._budgets = budgets
        self._conditions = conditions
        self._published = PublishedObjects(client, views, clock)
        self._elector = elector
        self._clock = clock
        self._way = way
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def apply(self, decisions: Iterable[Decision]) -> ApplyResult:
        by_subject: defaultdict[tuple[str, str, str], list[Decision]] = defaultdict(list)
        for decision in decisions:
            by_subject[subject(decision)].append(decision)
        with self._way.claimed():
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
            case DeleteResources() | ApproveCertificate() | ReportMisuse():
                await self._join(decision)
            case DeleteRecord():
                await self._records.delete(decision.record)
            case SetClassFinalizer():
                await self._set_class_finalizer(decision)
            case Publish() | Unpublish():
                await self._published.apply(decision)
            case Uncordon() | DeleteNode() | SyncNode():
                await self._nodes.act(decision)
            case ReserveNode():
                await self._startup_taints.reserve(decision)
            case AddToleration():
                await self._startup_taints.add_toleration(decision)
            case OpenNode():
                await self._startup_taints.open(decision)
            case RecordRefusal():
                await self._nodes.record_refusal(decision)
            case PodEvent():
                self._events.pod_event(decision)
            case OwnerEvent():
                self._events.owner_event(decision)
            case UnreadableInstance():
                self._events.unreadable_instance(decision)
            case ReportCapacity():
                self._conditions.report(decision)
            case ReportPool():
                await self._report_pool(decision)
            case ReportClass():
                await self._report_class(decision)
            case ReportProvisioner():
                await self._report_provisioner(decision)
            case _:
                await self._budgets.act(decision)

    async def _write_status(self, step: WriteStatus) -> None:
        if self._nodes.ends_a_drain(step) and await self._nodes.still_in_use(step.record, step.given_up):
            return
        record = await self._records.write(step.record, step.status)
        # A record without a status is Requested, and its creation was recorded as such.
        if step.status.state is not step.record.state:
            self._events.transition(record, step.reason, step.sentence)
            self._count(step)
        elif step.reason is Reason.PROVIDER_NOT_CONFIGURED:
            # No state of the record tells that nobody can end the machine. Written once.
            self._events.transition(record, step.reason, step.sentence)

    def _count(self, step: WriteStatus) -> None:
        """Counts a machine that became Ready, or began to leave."""
        before, after, provider = step.record.state, step.status.state, step.record.spec.provider
        if after is InstanceState.READY and before is InstanceState.JOINED:
            requested = step.record.metadata.creation_timestamp
            took = (self._clock() - requested).total_seconds() if requested is not None else 0.0
            self._counts.ready[provider] += 1
            self._counts.ready_seconds[provider] = self._counts.ready_seconds.get(provider, 0.0) + took
        elif after in _LEAVING and before not in _LEAVING:
            self._counts.terminations[step.reason] += 1

    async def _join(self, decision: DeleteResources | ApproveCertificate | ReportMisuse) -> None:
        match decision:
            case DeleteResources():
                self._join_credentials.delete(decision)
            case ApproveCertificate():
                approved = await approve(self._client, decision.request, decision.reason, decision.sentence)
                self._views.signing_requests.observe(approved)
                self._events.transition(decision.record, decision.reason, decision.sentence)
            case ReportMisuse():
                for node in decision.nodes:
                    await self._nodes.cordon(node)
                record = await self._records.write(decision.record, decision.status)
                self._events.transition(record, decision.reason, decision.sentence)

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
        before = self._views.pools.get((decision.namespace, decision.name))
        # A merge patch keeps what it does not name.
        gone = dict.fromkeys(before.status.resources if before is not None and before.status is not None else ())
        patch = writes.merge_patch(
            {
                "metadata": {"uid": decision.uid, "resourceVersion": str(decision.resource_version)},
                "status": {
                    "observedGeneration": decision.generation,
                    "conditions": decision.conditions,
                    "nodeCount": decision.node_count,
                    "hourlyCost": decision.hourly_cost,
                    "resources": {**gone, **{name: str(count) for name, count in decision.resources.items()}},
                    "offers": decision.offers,
                    "lastDecisions": decision.last_decisions,
                },
            }
        )
        pool = await self._client.patch(GPU_NODE_POOLS, decision.name, patch, decision.namespace, subresource="status")
        self._views.pools.observe(pool)
        earlier = () if before is None or before.status is None else before.status.conditions
        self._events.condition(
            reference(GPU_NODE_POOLS, pool), earlier, decision.conditions, decision.reason, decision.sentence
        )

    async def _report_provisioner(self, decision: ReportProvisioner) -> None:
        patch = writes.merge_patch(
            {
                "metadata": {"uid": decision.uid, "resourceVersion": str(decision.resource_version)},
                "status": {
                    "observedGeneration": decision.generation,
                    "conditions": decision.conditions,
                    **decision.figures,
                },
            }
        )
        before = self._views.provisioners.get(("", decision.name))
        changed = await self._client.patch(NODE_PROVISIONERS, decision.name, patch, subresource="status")
        self._views.provisioners.observe(changed)
        earlier = () if before is None or before.status is None else before.status.conditions
        for each in decision.conditions:
            own = [condition for condition in earlier if condition.type == each.type]
            regarding, bad = reference(NODE_PROVISIONERS, changed), BAD_TRUTHS.get(each.type, Truth.FALSE)
            self._events.condition(regarding, own, [each], Reason(each.reason), each.message, bad=bad)

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
