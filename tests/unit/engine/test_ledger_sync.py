"""Ledgers are kept stored: in an order that loses no cost, by the leader only, and again after failures."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import seconds
from forebay.embedded.api import kinds
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.ledger.store import LedgerKey, LedgerStore, Unit
from forebay.engine.ledger.sync import LedgerSync, TrackedLedger
from forebay.kube.client import Client
from forebay.net.in_process import InProcess
from tests.net.faults import Answer, Faulty

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = datetime(2030, 1, 1, 12, 1, tzinfo=UTC)


class World:
    """A cluster, ledgers by unit and owner, and what the operator knows."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.ledgers, self.leads, self.alive, self.woken = {}, True, None, 0
        self.now = NOW
        #: Parts of the names of objects whose writes fail, and every request.
        self.broken, self.requests = (), []
        self.unreadable = False
        #: Another replica takes over with the next write.
        self.loses_lease = False
        #: What happens while something is written.
        self.changes = None

    def faults(self, request):
        self.requests.append(request)
        if self.loses_lease and request.method != "GET":
            self.leads = False
        if self.changes is not None and request.method != "GET":
            self.changes()
        if request.method == "GET":
            return Answer(503) if self.unreadable else None
        text = request.url.encode() + (request.body or b"")
        return Answer(500) if any(each.encode() in text for each in self.broken) else None

    def sync(self):
        client = Client(Faulty(InProcess(self.cluster.handler), self.faults), "http://embedded")
        return LedgerSync(
            LedgerStore(client, "kube-system"),
            self.tracked,
            clock=lambda: self.now,
            still_leader=lambda: self.leads,
            live=lambda: self.alive,
            wake=self._wake,
        )

    def _wake(self):
        self.woken += 1

    def tracked(self):
        for key in self.ledgers:
            yield TrackedLedger(key, ("team", key.uid), self.ledgers[key], lambda new, key=key: self._put(key, new))

    def _put(self, key, new):
        self.ledgers[key] = new

    def record(self, uid, unit=Unit.GPU_HOURS, pod="pod-1", end=100):
        self.ledgers.setdefault(LedgerKey(uid, unit), Ledger(uid)).record(pod, 0, end, 1000)

    def chunks(self):
        return [
            each
            for each in self.cluster.store.list(kinds.CONFIG_MAP_KIND)
            if "forebay.dev/ledger" in each["metadata"].get("labels", {})
        ]

    def stored(self):
        """Units and owners of the stored chunks, in the order of their creation."""
        chunks = self.chunks()
        chunks.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        labels = [each["metadata"]["labels"] for each in chunks]
        return [(each["forebay.dev/ledger"], each["forebay.dev/budget-uid"]) for each in labels]

    def damage(self, uid, unit=Unit.GPU_HOURS, serial=7):
        meta = {"name": f"forebay-ledger-{uid}-{unit}-{serial:06}", "namespace": "kube-system"}
        meta["labels"] = {"forebay.dev/ledger": unit, "forebay.dev/budget-uid": uid}
        meta["annotations"] = {"forebay.dev/budget": f"team/{uid}"}
        self.cluster.store.create(kinds.CONFIG_MAP_KIND, {"metadata": meta, "binaryData": {"chunk": "Z2FyYmFnZQ=="}})


@asynccontextmanager
async def world():
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        yield World(cluster)


async def loaded(it):
    sync = it.sync()
    await sync.load()
    return sync


async def test_costs_are_stored_before_the_ledger_that_says_until_when_they_are_recorded():
    async with world() as it:
        sync = await loaded(it)
        for unit in (Unit.MACHINES, Unit.BILL, Unit.DOLLARS, Unit.GPU_HOURS):
            it.record("u1", unit)
        sync.schedule(NOW)
        await sync.store_next()
        assert [unit for unit, _ in it.stored()] == ["gpu-hours", "dollars", "spend", "machines"]
        assert (sync.waiting_since, sync.error) == (None, None)


@pytest.mark.parametrize(
    ("broken", "stored"),
    [
        ("dollars", ["gpu-hours"]),
        ("spend", ["gpu-hours", "dollars"]),
        ("machines", ["gpu-hours", "dollars", "spend"]),
        ("gpu-hours", ["dollars", "spend", "machines"]),
    ],
)
async def test_what_could_not_be_stored_holds_back_what_depends_on_it(broken, stored):
    async with world() as it:
        sync = await loaded(it)
        for unit in (Unit.GPU_HOURS, Unit.DOLLARS, Unit.BILL, Unit.MACHINES):
            it.record("u1", unit)
        it.broken = (f"-{broken}-",)
        sync.schedule(NOW)
        await sync.store_next()
        assert [unit for unit, _ in it.stored()] == stored
        assert sync.waiting_since == NOW
        assert "500" in sync.error
        it.broken = ()
        await sync.store_next()
        assert sorted(unit for unit, _ in it.stored()) == ["dollars", "gpu-hours", "machines", "spend"]
        assert (sync.waiting_since, sync.error) == (None, None)


async def test_changes_wait_since_they_were_first_seen():
    async with world() as it:
        sync = await loaded(it)
        it.record("u1")
        sync.schedule(NOW)
        it.record("u2")
        sync.schedule(LATER)
        assert sync.waiting_since == NOW
        it.broken = ("u1",)
        it.now = LATER
        await sync.store_next()
        assert sync.waiting_since == NOW, "u1 is not stored"
        it.broken = ()
        await sync.store_next()
        assert sync.waiting_since is None


async def test_many_ledgers_are_stored_in_rounds_of_64():
    async with world() as it:
        sync = await loaded(it)
        for count in range(70):
            it.record(f"u{count:02}")
        sync.schedule(NOW)
        await sync.store_next()
        assert len(it.stored()) == 64
        assert sync.waiting_since == NOW
        await sync.store_next()
        assert len(it.stored()) == 70
        assert sync.waiting_since is None


async def test_the_oldest_changes_are_stored_first():
    async with world() as it:
        sync = await loaded(it)
        for count in range(70):
            it.record(f"u{count:02}")
        every = it.ledgers
        it.ledgers = {key: ledger for key, ledger in every.items() if key.uid >= "u06"}
        sync.schedule(NOW)
        it.ledgers = every
        sync.schedule(LATER)
        await sync.store_next()
        assert {uid for _, uid in it.stored()} == {f"u{count:02}" for count in range(6, 70)}


async def test_who_no_longer_leads_stores_nothing_and_deletes_nothing():
    async with world() as it:
        sync = await loaded(it)
        it.record("u1")
        sync.schedule(NOW)
        await sync.store_next()
        it.record("u1", pod="pod-2")
        it.leads, it.alive = False, set()
        it.requests.clear()
        sync.schedule(NOW)
        await sync.store_next()
        await sync.store_rest()
        assert [each for each in it.requests if each.method != "GET"] == []
        assert sync.waiting_since == NOW


@pytest.mark.parametrize(("loses", "chunks"), [(False, 1), (True, 2)])
async def test_who_loses_the_lease_while_a_ledger_is_compacted_deletes_nothing_any_more(loses, chunks):
    async with world() as it:
        sync = await loaded(it)
        for number in range(20):
            it.record("u1", pod=f"pod-{number}")
        sync.schedule(NOW)
        await sync.store_next()
        assert len(it.stored()) == 1
        (ledger,) = it.ledgers.values()
        assert ledger.compact(10 * 24 * 3600, 365 * 24 * 3600, ())
        it.loses_lease = loses
        sync.schedule(NOW)
        await sync.store_next()
        assert len(it.stored()) == chunks, "the compacted chunk, and the replaced one where nobody deletes it"


async def test_before_the_stored_ledgers_are_read_nothing_is_stored_at_a_shutdown():
    async with world() as it:
        sync = it.sync()
        it.record("u1")
        assert not sync.ready
        assert list(sync.not_opened()) == []
        await sync.store_rest()
        assert it.stored() == []


async def test_a_shutdown_stores_what_is_left():
    async with world() as it:
        sync = await loaded(it)
        it.record("u1")
        await sync.store_rest()
        assert it.stored() == [("gpu-hours", "u1")]


async def test_reading_is_repeated_until_it_succeeds_and_wakes_the_loop():
    async with world() as it:
        it.unreadable, sync = True, it.sync()
        loading = asyncio.ensure_future(sync.load())
        await asyncio.sleep(3)
        assert not sync.ready
        assert "503" in sync.error
        assert it.woken == 0
        it.unreadable = False
        await loading
        assert sync.ready
        assert (sync.error, it.woken) == (None, 1)


async def test_a_ledger_that_somebody_else_has_written_is_read_again_and_merged():
    async with world() as it:
        first = await loaded(it)
        it.record("u1")
        mine = it.ledgers
        first.schedule(NOW)
        await first.store_next()

        it.ledgers = {}
        second = await loaded(it)
        theirs = second.open(("team", "u1"), "u1", Unit.GPU_HOURS)
        theirs.record("pod-2", 0, 50, 1000)
        it.ledgers = {LedgerKey("u1", Unit.GPU_HOURS): theirs}
        second.schedule(NOW)
        await second.store_next()

        it.ledgers = mine
        it.record("u1", pod="pod-3")
        first.schedule(NOW)
        await first.store_next()
        assert first.error is not None
        assert first.waiting_since == NOW, "it is not stored yet"
        await first.store_next()
        assert first.error is None
        (merged,) = it.ledgers.values()
        assert all(merged.intervals(f"pod-{count}") for count in (1, 2, 3))


async def test_ledgers_of_deleted_budgets_are_deleted_once_all_budgets_are_known():
    async with world() as it:
        sync = await loaded(it)
        it.record("u1")
        it.record("u2")
        sync.schedule(NOW)
        await sync.store_next()
        it.ledgers = {}
        sync.request_round()
        await sync.store_next()
        assert len(it.stored()) == 2, "nobody knows which budgets exist"
        it.alive = {"u2"}
        it.broken = ("u1",)
        sync.request_round()
        await sync.store_next()
        assert "500" in sync.error
        it.broken = ()
        await sync.store_next()
        assert it.stored() == [("gpu-hours", "u2")]
        assert sync.error is None


async def test_a_damaged_ledger_is_told_with_its_budget_in_one_sentence_for_both_units():
    async with world() as it:
        it.damage("u1", serial=3)
        it.damage("u1", Unit.DOLLARS, serial=4)
        it.damage("u2", Unit.BILL, serial=5)
        sync = await loaded(it)
        keys = [LedgerKey("u1", Unit.GPU_HOURS), LedgerKey("u1", Unit.DOLLARS), LedgerKey("u2", Unit.BILL)]
        for key in keys:
            it.ledgers[key] = sync.open(("team", key.uid), key.uid, key.unit)
        assert all(sync.is_damaged(key) for key in keys)
        (told,) = sync.damages.items()
        assert told[0] == ("team", "u1"), "the bill is no budget"
        assert "3" in told[1]
        assert "4" in told[1]
        sync.close(("team", "u1"))
        assert sync.damages == {}
        assert sync.is_damaged(keys[2])


async def test_a_damage_is_over_when_its_chunk_was_deleted():
    async with world() as it:
        it.damage("u1")
        sync = await loaded(it)
        key = LedgerKey("u1", Unit.GPU_HOURS)
        it.ledgers[key] = sync.open(("team", "u1"), "u1", Unit.GPU_HOURS)
        it.cluster.store.delete(kinds.CONFIG_MAP_KIND, "kube-system", "forebay-ledger-u1-gpu-hours-000007")
        await asyncio.sleep(61)
        woken = it.woken
        await sync.store_next()
        assert not sync.is_damaged(key)
        assert it.woken > woken, "what was damaged is told no longer"


async def test_a_chunk_that_somebody_deletes_is_written_again_within_a_minute_by_the_leader_only():
    async with world() as it:
        sync = await loaded(it)
        it.record("u1")
        sync.schedule(NOW)
        await sync.store_next()
        (chunk,) = [
            each["metadata"]["name"]
            for each in it.cluster.store.list(kinds.CONFIG_MAP_KIND)
            if "forebay-ledger" in each["metadata"]["name"]
        ]
        it.cluster.store.delete(kinds.CONFIG_MAP_KIND, "kube-system", chunk)
        it.leads = False
        await asyncio.sleep(61)
        await asyncio.wait_for(sync.store_next(), 70)
        assert (it.stored(), sync.rewritten) == ([], {})
        it.leads = True
        await asyncio.sleep(61)
        await sync.store_next()
        assert it.stored() == [("gpu-hours", "u1")]
        assert list(sync.rewritten) == [("team", "u1")]
        assert "the ConfigMap of chunk 1 of the ledger" in sync.rewritten["team", "u1"]


async def test_a_check_that_fails_says_so(capsys):
    async with world() as it:
        sync = await loaded(it)
        it.unreadable = True
        await asyncio.sleep(61)
        sync.request_round()
        await sync.store_next()
        assert "ledger check failed" in capsys.readouterr().out


async def test_ledgers_that_no_budget_has_opened_are_told_with_when_they_were_last_written():
    async with world() as it:
        sync = await loaded(it)
        it.record("u1")
        it.record("u2", Unit.BILL)
        sync.schedule(NOW)
        await sync.store_next()
        it.damage("u3")
        it.ledgers = {}
        later = await loaded(it)
        found = {uid: (subject, written) for subject, uid, written in later.not_opened()}
        assert found == {
            "u1": (("team", "u1"), seconds(NOW)),
            "u3": (("team", "u3"), 0),
        }, "the bill is no budget, and nothing of the last can be read"
        later.open(("team", "u1"), "u1", Unit.GPU_HOURS)
        assert [uid for _, uid, _ in later.not_opened()] == ["u3"]
        assert list(later.stored(Unit.BILL)) == [LedgerKey("u2", Unit.BILL)]


async def test_the_same_error_is_logged_once(capsys):
    async with world() as it:
        sync = await loaded(it)
        it.record("u1")
        it.broken = ("u1",)
        sync.schedule(NOW)
        for _ in range(3):
            await sync.store_next()
        assert capsys.readouterr().out.count("ledger write failed") == 1


@asynccontextmanager
async def storing(it):
    """A leader that has read the ledgers and stores them, round by round."""
    sync = it.sync()

    async def run():
        await sync.load()
        while True:
            await sync.store_next()

    running = asyncio.ensure_future(run())
    await asyncio.sleep(0.5)
    yield sync
    running.cancel()
    await asyncio.wait({running})


async def test_where_nothing_changes_nothing_is_done_but_a_check_a_minute():
    async with world() as it, storing(it) as sync:
        it.record("u1")
        sync.schedule(NOW)
        await asyncio.sleep(5)
        assert it.stored() == [("gpu-hours", "u1")]
        it.requests.clear()
        woken = it.woken
        await asyncio.sleep(600)
        assert len(it.requests) == 10
        assert it.woken - woken == 10, "each check may have news"


async def test_a_round_wakes_the_loop_which_tells_what_was_stored_and_what_was_not():
    async with world() as it, storing(it) as sync:
        it.record("u1")
        woken = it.woken
        sync.schedule(NOW)
        await asyncio.sleep(1.5)
        assert it.woken == woken + 1
        it.broken = ("u1",)
        it.record("u1", pod="pod-2")
        sync.schedule(NOW)
        it.requests.clear()
        await asyncio.sleep(20)
        assert "500" in sync.error
        assert 9 <= len(it.requests) <= 11, "every two seconds"
        it.broken = ()
        await asyncio.sleep(3)
        assert sync.error is None


async def test_each_change_is_stored_within_a_second_or_two():
    async with world() as it, storing(it) as sync:
        for number in range(10):
            it.record("u1", pod=f"pod-{number}")
            sync.schedule(NOW)
            await asyncio.sleep(1.1)
            assert sync.waiting_since is None


async def test_ledgers_of_budgets_that_were_deleted_before_this_process_began_are_deleted_at_once():
    async with world() as it:
        sync = await loaded(it)
        for uid in ("u1", "u2"):
            it.record(uid)
        sync.schedule(NOW)
        await sync.store_next()
        it.ledgers, it.alive = {}, {"u2"}
        async with storing(it) as later:
            await asyncio.sleep(1)
            assert it.stored() == [("gpu-hours", "u2")]
            assert list(later.stored(Unit.GPU_HOURS)) == [LedgerKey("u2", Unit.GPU_HOURS)]
            it.alive = set()
            later.close(("team", "u2"))
            await asyncio.sleep(2)
            assert it.stored() == []
            assert list(later.not_opened()) == []


@pytest.mark.parametrize("unit", list(Unit))
async def test_what_changes_while_its_ledger_is_written_waits_since_then(unit):
    async with world() as it:
        sync = await loaded(it)
        it.record("u1", unit)
        sync.schedule(NOW)
        it.now = LATER
        it.changes = lambda: it.record("u1", unit, pod="pod-2")
        await sync.store_next()
        assert sync.waiting_since == LATER


async def test_a_ledger_is_of_the_owner_that_it_was_opened_for():
    async with world() as it:
        sync = await loaded(it)
        assert sync.open(("team", "pool"), "u1", Unit.BILL, "team/pool").chunk_log.owner == "team/pool"
        assert sync.open(("team", "quota"), "u2", Unit.GPU_HOURS).chunk_log.owner == "u2"


async def test_what_happens_to_ledgers_is_in_the_log(capsys):
    async with world() as it:
        it.unreadable = True
        it.damage("u9")
        async with storing(it) as sync:
            assert "ledger read failed" in capsys.readouterr().out
            it.unreadable = False
            await asyncio.sleep(5)
            it.ledgers[LedgerKey("u9", Unit.GPU_HOURS)] = sync.open(("team", "u9"), "u9", Unit.GPU_HOURS)
            assert "ledger damaged" in capsys.readouterr().out
            it.record("u1")
            sync.schedule(NOW)
            await asyncio.sleep(5)
            (chunk,) = [each for each in it.chunks() if "u1" in each["metadata"]["name"]]
            it.cluster.store.delete(kinds.CONFIG_MAP_KIND, "kube-system", chunk["metadata"]["name"])
            await asyncio.sleep(61)
            assert "ledger chunk missing" in capsys.readouterr().out
            (chunk,) = [each for each in it.chunks() if "u1" in each["metadata"]["name"]]
            it.cluster.store.update(kinds.CONFIG_MAP_KIND, {**chunk, "data": {"by": "hand"}})
            it.record("u1", pod="pod-2")
            sync.schedule(NOW)
            await asyncio.sleep(5)
            assert "ledger conflict" in capsys.readouterr().out
