"""The accounting of budgets on its own: what it leaves behind, and what it knows before its ledgers are read."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

from forebay.api.names import USAGE_FINALIZER
from forebay.embedded.api.conditions import with_status_condition
from forebay.embedded.api.kinds import CONFIG_MAP_KIND, NODE_KIND, POD_KIND
from forebay.embedded.controllers import register_node
from forebay.engine.counts import Counts
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.ledger.store import LedgerStore
from forebay.net.clock import now
from tests.engine.views_world import watched_cluster
from tests.unit.demand.builders import running


async def test_who_stops_leading_keeps_only_deletions_for_the_next_time_and_stores_what_is_left():
    async with watched_cluster() as watched:
        views = watched.views
        accounting = BudgetAccounting(
            views, LedgerStore(watched.client, "kube-system"), clock=now, still_leader=lambda: True, counts=Counts()
        )
        assert accounting.update(now()) is None, "the stored ledgers are not read yet"
        assert accounting.unrecorded_cost() == frozenset()
        keeping = asyncio.ensure_future(accounting.run())
        await asyncio.sleep(1)
        assert accounting.update(now()) is not None
        assert views.pod_changes.followed
        views.pod_changes.add(running())
        assert len(views.pod_changes.take()) == 1
        keeping.cancel()
        await asyncio.wait({keeping})
        assert not views.pod_changes.followed
        views.pod_changes.add(running())
        assert views.pod_changes.take() == []
        await accounting.finish(5.0)


class Accounted:
    """A cluster with a budget of all pods of team a, and the accounting of one leader after the other."""

    def __init__(self, watched):
        self.watched, self.store, self.views = watched, watched.store, watched.views
        register_node(self.store, "n1", allocatable={"cpu": 8, "pods": 10, "nvidia.com/gpu": 8})

    def budget(self, **spec):
        kind = self.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        quota = {"gpuHours": 100, "windowHours": 24}
        body = {"selector": {"matchLabels": {"team": "a"}}, "quota": quota, "enforcement": {"action": "Evict"}, **spec}
        return self.store.create(kind, {"metadata": {"name": "team-a", "namespace": "default"}, "spec": body})

    def runs(self, name, **metadata):
        """A pod that runs from now on; its UID."""
        container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        labelled = {"name": name, "namespace": "default", "labels": {"team": "a"}, **metadata}
        pod = self.store.create(POD_KIND, {"metadata": labelled, "spec": {"containers": [container], "nodeName": "n1"}})
        state = {"running": {"startedAt": self.store.timestamp()}}
        shown = {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        status = {"phase": "Running", "startTime": self.store.timestamp(), "containerStatuses": [shown]}
        self.store.update(POD_KIND, {**pod, "status": status}, subresource="status")
        return pod["metadata"]["uid"]

    def silence(self, name):
        """The kubelet of a node has died, and the control plane has noticed."""
        node = self.store.get(NODE_KIND, None, name)
        dead = {**node["metadata"], "annotations": {"embedded.forebay.dev/kubelet": "dead"}}
        node = self.store.update(NODE_KIND, {**node, "metadata": dead})
        said = {"type": "Ready", "status": "Unknown", "reason": "Heartbeat", "message": ""}
        status = with_status_condition(node["status"], said, self.store.timestamp())
        self.store.update(NODE_KIND, {**node, "status": status}, subresource="status")

    async def machine_that_ran(self, name="box", days_ago=0):
        """A GPUInstance that cost something for a minute and is gone; its UID."""
        kind = self.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        spec = {"provider": "webhook", "delivers": "Power", "hourlyPrice": "2", "node": {"name": name}}
        spec["nodeClassName"] = f"class-of-{name}"
        made = self.store.create(kind, {"metadata": {"name": name}, "spec": spec})
        await asyncio.sleep(60)
        ended = now() - timedelta(days=days_ago)
        begin, end = (ended - timedelta(seconds=60)).isoformat(), ended.isoformat()
        status = {"state": "Gone", "since": end, "billedFrom": begin, "billedUntil": end, "nodeName": name}
        self.store.update(kind, {**made, "status": status}, subresource="status")
        await asyncio.sleep(1)
        return made["metadata"]["uid"]

    def ledgers(self):
        labelled = (each["metadata"] for each in self.store.list(CONFIG_MAP_KIND))
        return sorted(each["name"] for each in labelled if "forebay.dev/ledger" in each.get("labels", {}))

    def accounting(self):
        store = LedgerStore(self.watched.client, "kube-system")
        return BudgetAccounting(self.views, store, clock=now, still_leader=lambda: True, counts=Counts())

    @asynccontextmanager
    async def leader(self, every=1):
        """Accounting that is updated every second, until it dies."""
        accounting = self.accounting()

        async def ticks():
            while True:
                accounting.update(now())
                await asyncio.sleep(every)

        tasks = asyncio.ensure_future(accounting.run()), asyncio.ensure_future(ticks())
        yield accounting
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@asynccontextmanager
async def accounted():
    async with watched_cluster() as watched:
        yield Accounted(watched)


def ran(accounting, uid):
    """Seconds that the ledger of the budget has of a pod, which has ended."""
    (interval,) = accounting.accounts.get(("default", "team-a")).ledger.intervals(uid)
    return interval.end - interval.start


async def test_a_pod_that_is_deleted_after_its_leader_has_died_counts_until_then():
    async with accounted() as it:
        it.budget()
        async with it.leader():
            uid = it.runs("train")
            await asyncio.sleep(300)
        await asyncio.sleep(20)
        it.store.delete(POD_KIND, "default", "train", grace=0)
        await asyncio.sleep(40)
        async with it.leader() as later:
            await asyncio.sleep(5)
            assert abs(ran(later, uid) - 320) <= 2


async def test_what_the_last_leader_has_recorded_of_a_deleted_pod_holds_although_the_next_hears_of_it_late():
    async with accounted() as it:
        it.budget()
        async with it.leader() as first:
            uid = it.runs("train")
            await asyncio.sleep(300)
            (seen,) = it.views.pods.values()
            it.store.delete(POD_KIND, "default", "train", grace=0)
            await asyncio.sleep(60)
            recorded = ran(first, uid)
            assert abs(recorded - 300) <= 2
        # The watch of a standby was a minute behind.
        it.views.pod_changes.change(seen, None)
        async with it.leader() as later:
            await asyncio.sleep(5)
            assert ran(later, uid) == recorded


async def test_a_pod_whose_kubelet_does_not_say_that_it_ended_loses_the_finalizer_a_minute_after_its_grace():
    async with accounted() as it:
        it.budget(accounting="Exact")
        async with it.leader() as accounting:
            uid = it.runs("train", finalizers=[USAGE_FINALIZER])
            await asyncio.sleep(300)
            assert accounting.update(now()).recorded == (), "it runs"
            it.store.delete(POD_KIND, "default", "train", grace=30)
            await asyncio.sleep(85)
            assert accounting.update(now()).recorded == (), "the kubelet has another five seconds"
            await asyncio.sleep(15)
            assert [each.uid for each in accounting.update(now()).recorded] == [uid]
            assert timedelta(seconds=388) <= timedelta(seconds=ran(accounting, uid)) <= timedelta(seconds=394)


async def test_cost_is_unrecorded_until_the_ledgers_are_read_and_then_only_where_it_is_not_stored():
    async with accounted() as it:
        uid = await it.machine_that_ran()
        assert it.accounting().unrecorded_cost() == {uid}
        async with it.leader() as accounting:
            await asyncio.sleep(30)
            assert accounting.unrecorded_cost() == frozenset()


async def test_no_ledger_is_deleted_before_it_is_known_what_they_are_for():
    async with accounted() as it:
        await it.machine_that_ran()
        async with it.leader():
            await asyncio.sleep(60)
        ledgers = it.ledgers()
        assert ledgers, "what the machine cost"
        reading = asyncio.ensure_future(it.accounting().run())
        await asyncio.sleep(3600)
        assert it.ledgers() == ledgers
        reading.cancel()
        await asyncio.wait({reading})


async def test_a_pod_on_a_machine_that_is_proven_off_counts_until_then_and_on_while_its_node_is_heard_of():
    async with accounted() as it:
        it.budget()
        async with it.leader() as accounting:
            uid = it.runs("train")
            await it.machine_that_ran("n1")
            await asyncio.sleep(30)
            ledger = accounting.accounts.get(("default", "team-a")).ledger
            assert uid in ledger.running, "the node is Ready: another machine has its name"
            it.silence("n1")
            await asyncio.sleep(5)
            assert uid not in ledger.running
            assert abs(ran(accounting, uid) - 60) <= 2, "the record says since when it is off"


async def test_ledgers_are_compacted_every_ten_minutes():
    async with accounted() as it:
        it.budget()
        async with it.leader(every=20) as accounting:
            uids = []
            for number in range(4):
                uids.append(it.runs(f"train-{number}"))
                await asyncio.sleep(60)
                it.store.delete(POD_KIND, "default", f"train-{number}", grace=0)
            ledger = accounting.accounts.get(("default", "team-a")).ledger
            await asyncio.sleep(23 * 3600)
            assert all(ledger.intervals(uid) for uid in uids), "exact for a day"
            await asyncio.sleep(2 * 3600)
            assert not any(ledger.intervals(uid) for uid in uids)


async def test_what_a_machine_cost_is_forgotten_after_a_month():
    async with accounted() as it:
        await it.machine_that_ran("old", days_ago=40)
        await it.machine_that_ran("new", days_ago=20)
        async with it.leader() as accounting:
            await asyncio.sleep(60)
            for name in ("old", "new"):
                it.store.delete(it.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance"), None, name)
            await asyncio.sleep(1200)
            bill = accounting.bill_accounting.bill
            assert [key.node_class for key in bill.ledgers] == ["class-of-new"]
            assert len(it.ledgers()) == 2, "beside the bill, how far machines are billed"
