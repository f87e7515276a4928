"""Ledgers as ConfigMaps: written as they were left, or not at all; read as far as they can be."""

from contextlib import asynccontextmanager

import pytest

from forebay.budgets.ledger.ledger import Ledger
from forebay.embedded.api import kinds
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.ledger.store import ChunkConflict, LedgerKey, LedgerStore, Unit
from forebay.kube.client import Client
from forebay.net.in_process import InProcess

UID = "0b1c2d3e-0000-4000-8000-000000000001"
OTHER = "0b1c2d3e-0000-4000-8000-000000000002"
HOURS, DOLLARS = LedgerKey(UID, Unit.GPU_HOURS), LedgerKey(UID, Unit.DOLLARS)
ABOUT = ("team", "quota")
GPU = "nvidia.com/gpu"


@asynccontextmanager
async def cluster():
    async with EmbeddedCluster(seed=7) as found:
        yield found


def store_of(found):
    return LedgerStore(Client(InProcess(found.handler), "http://embedded"), "kube-system")


def ledger(uid=UID, *, ended=100):
    made = Ledger(uid)
    made.record("pod-1", 0, ended, 1000)
    return made


async def save(store, key, made, resource=None):
    for write in made.chunk_log.writes(1000):
        await store.write(key, write, ABOUT, resource)
        made.chunk_log.wrote(write)


def stored(found):
    return [each for each in found.store.list(kinds.CONFIG_MAP_KIND) if "forebay.dev/ledger" in _labels(each)]


def _labels(each):
    return each["metadata"].get("labels", {})


async def test_what_was_stored_is_read_by_the_next_process():
    async with cluster() as found:
        await save(store_of(found), HOURS, ledger())
        read = await store_of(found).load()
        again, damages = Ledger.load(UID, read[HOURS])
        assert damages == ()
        assert again.consumed(200 * 10**6, 200 * 10**6) == ledger().consumed(200 * 10**6, 200 * 10**6)


async def test_the_object_says_whose_ledger_it_holds():
    async with cluster() as found:
        await save(store_of(found), HOURS, ledger())
        (each,) = stored(found)
        assert _labels(each) == {"forebay.dev/ledger": "gpu-hours", "forebay.dev/budget-uid": UID}
        assert each["metadata"]["annotations"] == {"forebay.dev/budget": "team/quota"}


async def test_a_chunk_that_changes_is_written_over():
    async with cluster() as found:
        store, made = store_of(found), ledger()
        await save(store, HOURS, made)
        made.record("pod-2", 0, 50, 1000)
        await save(store, HOURS, made)
        assert len(stored(found)) == 1
        again, _ = Ledger.load(UID, (await store_of(found).load())[HOURS])
        assert again.intervals("pod-2") == made.intervals("pod-2")


async def test_hours_and_dollars_and_budgets_do_not_mix():
    async with cluster() as found:
        store = store_of(found)
        await save(store, HOURS, ledger())
        await save(store, DOLLARS, ledger(ended=7))
        await save(store, LedgerKey(OTHER, Unit.GPU_HOURS), ledger(OTHER))
        read = await store_of(found).load()
        assert set(read) == {HOURS, DOLLARS, LedgerKey(OTHER, Unit.GPU_HOURS)}
        assert Ledger.load(UID, read[DOLLARS])[0].intervals("pod-1")[0].end == 7


async def test_of_two_that_keep_the_same_ledger_neither_undoes_the_other():
    async with cluster() as found:
        mine, made = store_of(found), ledger()
        await save(mine, HOURS, made)
        theirs = store_of(found)
        other, _ = Ledger.load(UID, (await theirs.load())[HOURS])
        other.record("pod-2", 0, 50, 1000)
        await save(theirs, HOURS, other)
        made.record("pod-3", 0, 50, 1000)
        with pytest.raises(ChunkConflict):
            await save(mine, HOURS, made)
        again, _ = Ledger.load(UID, await mine.load_one(HOURS))
        assert again.intervals("pod-2")
        again.merge(made)
        await save(mine, HOURS, again)
        last, _ = Ledger.load(UID, (await store_of(found).load())[HOURS])
        assert last.intervals("pod-1")
        assert last.intervals("pod-2")
        assert last.intervals("pod-3")


async def test_a_first_write_does_not_take_the_place_of_a_chunk_that_is_there():
    async with cluster() as found:
        await save(store_of(found), HOURS, ledger())
        with pytest.raises(ChunkConflict):
            await save(store_of(found), HOURS, ledger(ended=50))


async def test_a_chunk_that_somebody_deleted_is_written_anew():
    async with cluster() as found:
        store, made = store_of(found), ledger()
        await save(store, HOURS, made)
        found.store.delete(kinds.CONFIG_MAP_KIND, "kube-system", stored(found)[0]["metadata"]["name"])
        made.record("pod-2", 0, 50, 1000)
        await save(store, HOURS, made)
        again, _ = Ledger.load(UID, (await store_of(found).load())[HOURS])
        assert again.intervals("pod-1")


async def test_a_damaged_chunk_is_read_as_one_and_the_others_count():
    async with cluster() as found:
        await save(store_of(found), HOURS, ledger())
        meta = {"name": f"forebay-ledger-{UID}-gpu-hours-000007", "namespace": "kube-system"}
        meta["labels"] = {"forebay.dev/ledger": "gpu-hours", "forebay.dev/budget-uid": UID}
        found.store.create(kinds.CONFIG_MAP_KIND, {"metadata": meta, "binaryData": {"chunk": "Z2FyYmFnZQ=="}})
        again, damages = Ledger.load(UID, (await store_of(found).load())[HOURS])
        assert [each.serial for each in damages] == [7]
        assert again.intervals("pod-1")


@pytest.mark.parametrize("name", ["notes", "notes-7", f"old-forebay-ledger-{UID}-gpu-hours-7"])
async def test_objects_with_our_label_that_are_not_ours_are_left_alone(name):
    async with cluster() as found:
        meta = {"name": name, "namespace": "kube-system", "labels": {"forebay.dev/ledger": "gpu-hours"}}
        found.store.create(kinds.CONFIG_MAP_KIND, {"metadata": meta})
        store = store_of(found)
        assert await store.load() == {}
        assert store.stored_keys() == ()


async def test_a_ledger_goes_with_its_budget():
    async with cluster() as found:
        store = store_of(found)
        await save(store, HOURS, ledger())
        await save(store, LedgerKey(OTHER, Unit.GPU_HOURS), ledger(OTHER))
        await store.delete_all(HOURS)
        assert [_labels(each)["forebay.dev/budget-uid"] for each in stored(found)] == [OTHER]
        assert store.stored_keys() == (LedgerKey(OTHER, Unit.GPU_HOURS),)


async def test_a_budget_of_the_same_name_goes_on_with_the_ledger_of_the_deleted_one_unless_it_is_reset():
    async with cluster() as found:
        await save(store_of(found), HOURS, ledger())
        await save(store_of(found), LedgerKey(OTHER, Unit.BILL), ledger(OTHER))
        store = store_of(found)
        await store.load()

        assert store.uid_for(ABOUT, "new", GPU, reset=False) == UID, "not that of the bill, written later"
        assert store.uid_for(ABOUT, "new", GPU, reset=True) == "new"
        assert store.uid_for(("team", "other"), "new", GPU, reset=False) == "new"
        assert store.uid_for(ABOUT, OTHER, GPU, reset=False) == OTHER, "its own is stored"
        assert store.subject(HOURS) == ABOUT
        assert store.subject(LedgerKey(OTHER, Unit.BILL)) is None


async def test_a_budget_that_counts_another_resource_does_not_go_on_with_the_ledger_of_the_deleted_one():
    async with cluster() as found:
        made = ledger()
        writer = store_of(found)
        await save(writer, HOURS, made, GPU)
        made.record("pod-2", 0, 100, 1000)
        await save(writer, HOURS, made, GPU)
        store = store_of(found)
        await store.load()

        assert store.uid_for(ABOUT, "new", "cpu", reset=False) == "new"
        assert store.uid_for(ABOUT, "new", GPU, reset=False) == UID
        assert store.subject(HOURS) == ABOUT, "a change of the chunk keeps the annotation"


async def test_the_ledger_that_was_written_last_is_gone_on_with():
    async with cluster() as found:
        await save(store_of(found), LedgerKey(OTHER, Unit.GPU_HOURS), ledger(OTHER))
        await save(store_of(found), HOURS, ledger())
        store = store_of(found)
        await store.load()

        assert store.uid_for(ABOUT, "new", GPU, reset=False) == UID
