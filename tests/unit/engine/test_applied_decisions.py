"""Decisions as the cluster sees them when they are applied: what is written, told by events, and counted."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState
from forebay.api.names import CLASS_FINALIZER
from forebay.api.parts import Condition, Truth
from forebay.embedded.api.kinds import EVENT_KIND
from forebay.engine.apply.applier import Applier, ApplyResult
from forebay.engine.apply.events import Events
from forebay.engine.counts import Counts
from forebay.kube.events import EventRecorder
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_CLASSES, GPU_NODE_POOLS, NODE_PROVISIONERS
from forebay.kube.right_of_way import RightOfWay
from forebay.lifecycle.steps import DeleteRecord, WriteStatus
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.net.clock import now
from forebay.reconcile.decisions import (
    CreateInstance,
    ReportClass,
    ReportPool,
    ReportProvisioner,
    SetClassFinalizer,
)
from tests.engine.views_world import watched_cluster
from tests.unit.demand.builders import NOW, record

S = InstanceState


class Applied:
    """An applier on its own, the objects that it writes, and the events that it records."""

    def __init__(self, watched, recorder):
        self.watched, self.client, self.views = watched, watched.client, watched.views
        self.leads, self.counts, self.seen = True, Counts(), 0
        self.applier = Applier(
            self.client,
            self.views,
            Events(recorder, self.views),
            None,
            self,
            startup_taints=None,
            way=RightOfWay(),
            conditions=None,
            budgets=None,
            join_credentials=None,
            clock=now,
            counts=self.counts,
        )

    def still_leader(self):
        return self.leads

    async def apply(self, *decisions):
        return await self.applier.apply(decisions)

    async def create(self, resource, spec, **metadata):
        made = await self.client.create(resource, {"metadata": {"name": "gpus", **metadata}, "spec": spec})
        await asyncio.sleep(1)
        return made

    async def told(self):
        """Type and reason of the events since the last question, by object."""
        await asyncio.sleep(2)
        found = sorted(self.watched.store.list(EVENT_KIND), key=lambda each: int(each["metadata"]["resourceVersion"]))
        new, self.seen = found[self.seen :], len(found)
        return [(each["involvedObject"]["kind"], each["type"], each["reason"]) for each in new]


@asynccontextmanager
async def applied():
    async with watched_cluster() as watched, EventRecorder(watched.client, instance="one") as recorder:
        yield Applied(watched, recorder)


def condition(status, reason, message="As said.", kind="Ready"):
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=NOW)


READY = condition(Truth.TRUE, Reason.PROVIDERS_READY)
FAILED = condition(Truth.FALSE, Reason.CHECK_FAILED)


def of(node_class, *conditions, **figures):
    return ReportClass(
        **{
            "name": "gpus",
            "uid": node_class.uid,
            "resource_version": node_class.resource_version,
            "generation": 1,
            "conditions": conditions,
            "active_nodes": 2,
            "hourly_cost": "2.5",
            "offers": 3,
            "reason": conditions[0].reason,
            "sentence": conditions[0].message,
            **figures,
        }
    )


CLASS = {"providers": [{"name": "simulated"}]}


async def test_an_event_on_a_class_says_when_a_condition_has_changed_and_not_when_only_figures_have():
    async with applied() as it:
        made = await it.create(GPU_NODE_CLASSES, CLASS)

        assert await it.apply(of(made, FAILED)) == ApplyResult(failed=0, conflicts=0)
        written = it.views.classes.get(("", "gpus")), await it.client.get(GPU_NODE_CLASSES, "gpus")
        for each in written:
            assert (each.status.active_nodes, each.status.hourly_cost, each.status.offers) == (2, "2.5", 3)
            assert each.status.conditions == (FAILED,), "at once, without waiting for the watch"
        assert await it.told() == [("GPUNodeClass", "Warning", "CheckFailed")]

        await it.apply(of(written[0], condition(Truth.FALSE, Reason.CHECK_FAILED, "Other words."), active_nodes=9))
        assert (await it.client.get(GPU_NODE_CLASSES, "gpus")).status.active_nodes == 9
        assert await it.told() == []

        await it.apply(of(it.views.classes.get(("", "gpus")), READY))
        assert await it.told() == [("GPUNodeClass", "Normal", "ProvidersReady")]


async def test_what_somebody_else_has_changed_or_deleted_meanwhile_is_a_conflict_and_nothing_is_written(capsys):
    async with applied() as it:
        made = await it.create(GPU_NODE_CLASSES, CLASS)
        await it.apply(of(made, READY))
        assert await it.apply(of(made, FAILED)) == ApplyResult(failed=0, conflicts=1)
        assert it.views.classes.get(("", "gpus")).status.conditions == (READY,)

        it.leads = False
        assert await it.apply(of(it.views.classes.get(("", "gpus")), FAILED)) == ApplyResult(failed=1, conflicts=0)
        it.leads = True
        it.watched.refuse(lambda request: request.method == "PATCH", 503)
        assert await it.apply(of(it.views.classes.get(("", "gpus")), FAILED)) == ApplyResult(failed=1, conflicts=0)
        assert "decision not applied" in capsys.readouterr().out
        it.watched.faults.clear()
        assert (await it.client.get(GPU_NODE_CLASSES, "gpus")).status.conditions == (READY,)


async def test_a_pool_forgets_resources_that_it_no_longer_has_and_tells_of_conditions_that_change():
    async with applied() as it:
        await it.create(GPU_NODE_POOLS, {"nodeClassRef": {"name": "c"}}, namespace="default")

        async def report(resources, told):
            seen = it.views.pools.get(("default", "gpus"))
            decision = ReportPool(
                namespace="default",
                name="gpus",
                uid=seen.uid,
                resource_version=seen.resource_version,
                generation=1,
                conditions=(told,),
                node_count=1,
                hourly_cost="1",
                resources=resources,
                offers=4,
                last_decisions=(),
                reason=told.reason,
                sentence=told.message,
            )
            assert await it.apply(decision) == ApplyResult(failed=0, conflicts=0)
            return (await it.client.get(GPU_NODE_POOLS, "gpus", "default")).status, await it.told()

        found = condition(Truth.TRUE, Reason.NODE_CLASS_FOUND)
        status, told = await report({"nvidia.com/gpu": 8, "amd.com/gpu": 1}, found)
        assert dict(status.resources) == {"nvidia.com/gpu": "8", "amd.com/gpu": "1"}
        assert (status.node_count, status.hourly_cost, status.offers) == (1, "1", 4)
        assert told == [("GPUNodePool", "Normal", "NodeClassFound")]
        status, told = await report({"nvidia.com/gpu": 4}, found)
        assert dict(status.resources) == {"nvidia.com/gpu": "4"}
        assert told == []
        _, told = await report({}, condition(Truth.FALSE, Reason.NODE_CLASS_NOT_FOUND))
        assert told == [("GPUNodePool", "Warning", "NodeClassNotFound")]


async def test_each_condition_of_a_provisioner_has_an_event_of_its_own_and_blocked_growth_is_a_warning():
    async with applied() as it:
        spec = {
            "existingInstanceGroupNames": ["a"],
            "minUnutilizedGPUNodes": 1,
            "provider": {"name": "simulated"},
        }
        await it.create(NODE_PROVISIONERS, spec)

        async def report(*conditions, size=3):
            seen = it.views.provisioners.get(("", "gpus"))
            decision = ReportProvisioner(
                name="gpus",
                uid=seen.uid,
                resource_version=seen.resource_version,
                generation=1,
                conditions=conditions,
                figures={"currentSize": size},
                reason=conditions[0].reason,
                sentence=conditions[0].message,
            )
            assert await it.apply(decision) == ApplyResult(failed=0, conflicts=0)
            assert (await it.client.get(NODE_PROVISIONERS, "gpus")).status.current_size == size
            return await it.told()

        ready = condition(Truth.TRUE, Reason.GROUPS_READY)
        blocked = condition(Truth.TRUE, Reason.COOLING_DOWN, kind="GrowthBlocked")
        grows = condition(Truth.FALSE, Reason.GROUP_GROWS, kind="GrowthBlocked")
        assert await report(ready) == [("NodeProvisioner", "Normal", "GroupsReady")]
        assert await report(ready, blocked) == [("NodeProvisioner", "Warning", "CoolingDown")]
        assert await report(ready, blocked, size=4) == []
        assert await report(ready, grows) == [("NodeProvisioner", "Normal", "GroupGrows")]
        assert await report(condition(Truth.FALSE, Reason.CHECK_FAILED), grows) == [
            ("NodeProvisioner", "Warning", "CheckFailed")
        ]


async def test_the_finalizer_of_a_class_comes_and_goes_beside_those_of_others():
    async with applied() as it:
        made = await it.create(GPU_NODE_CLASSES, CLASS, finalizers=["example.com/other"])
        await it.apply(SetClassFinalizer(node_class=made, present=True))
        seen = it.views.classes.get(("", "gpus"))
        assert set(seen.metadata.finalizers) == {"example.com/other", CLASS_FINALIZER}
        await it.client.delete(GPU_NODE_CLASSES, "gpus", uid=made.uid)
        await asyncio.sleep(1)

        await it.apply(SetClassFinalizer(node_class=it.views.classes.get(("", "gpus")), present=False))
        left = it.views.classes.get(("", "gpus"))
        assert left.metadata.finalizers == ["example.com/other"], "somebody else still needs it"


async def test_a_class_whose_last_finalizer_is_removed_is_gone_at_once():
    async with applied() as it:
        made = await it.create(GPU_NODE_CLASSES, CLASS, finalizers=[CLASS_FINALIZER])
        await it.client.delete(GPU_NODE_CLASSES, "gpus", uid=made.uid)
        await asyncio.sleep(1)
        await it.apply(SetClassFinalizer(node_class=it.views.classes.get(("", "gpus")), present=False))
        assert it.views.classes.get(("", "gpus")) is None


async def test_machines_that_become_ready_and_begin_to_leave_are_counted_once_each():
    async with applied() as it:
        spec = record("box", delivers=Delivery.POWER).spec
        create = CreateInstance(name="box", spec=spec, reason=Reason.CAPACITY_NEEDED, sentence="For a pod.")
        assert await it.apply(create) == ApplyResult(failed=0, conflicts=0)
        assert await it.told() == [("GPUInstance", "Normal", "CapacityNeeded")]

        async def to(state, reason):
            seen = it.views.instances.get(("", "box"))
            status = replace(seen.status or GPUInstanceStatus(), state=state, reason=reason, since=now())
            step = WriteStatus(record=seen, reason=reason, sentence="On.", status=status)
            assert await it.apply(step) == ApplyResult(failed=0, conflicts=0)
            return await it.told()

        assert await to(S.REQUESTED, Reason.CAPACITY_NEEDED) == [], "its creation was told"
        await to(S.JOINED, Reason.NODE_JOINED)
        await asyncio.sleep(60)
        assert await to(S.READY, Reason.NODE_READY) == [("GPUInstance", "Normal", "NodeReady")]
        assert it.counts.ready == {"webhook": 1}
        assert timedelta(seconds=60) <= timedelta(seconds=it.counts.ready_seconds["webhook"]) <= timedelta(seconds=90)
        assert it.counts.terminations == {}
        await to(S.DRAINING, Reason.IDLE)
        await to(S.READY, Reason.NODE_READY)
        assert it.counts.ready == {"webhook": 1}, "it was Ready before"
        await to(S.DRAINING, Reason.EXPIRED)
        await to(S.TERMINATING, Reason.EXPIRED)
        await to(S.GONE, Reason.TERMINATED)
        assert it.counts.terminations == {"Idle": 1, "Expired": 1}

        await it.apply(
            DeleteRecord(record=it.views.instances.get(("", "box")), reason=Reason.EXPIRED, sentence="An hour ago.")
        )
        assert it.views.instances.get(("", "box")) is None
        assert [each.metadata.name for each in (await it.client.list_all(GPU_INSTANCES)).items] == []
