"""Encoding of chunks, compaction, and damage that stays confined to one chunk."""

import base64
import random
import uuid

import pytest

from forebay.budgets.ledger.chunk_log import ChunkLog
from forebay.budgets.ledger.chunks import (
    CHUNK_VERSION,
    ENTRY_BYTES,
    FULL_BYTES,
    Chunk,
    UnreadableChunk,
    decode_chunk,
    encode_chunk,
)
from forebay.budgets.ledger.ledger import EXACT_PERIOD, Ledger
from forebay.budgets.usage import Interval
from tests.unit.budgets.factories import DAY, MICRO, Store

OWNER = "uid-of-team-a"
ALL = 1000 * DAY * MICRO


def uid(number):
    return str(uuid.UUID(int=number << 64 | 1))


def filled(pods=10, *, owner=OWNER, end=DAY):
    ledger = Ledger(owner)
    for number in range(pods):
        ledger.record(uid(number), end - 100, end, 1000)
    return ledger


def total(ledger):
    """All GPU-seconds in the ledger."""
    return ledger.consumed(900 * DAY * MICRO, ALL) / MICRO / 1000


def test_a_chunk_is_read_as_it_was_written():
    chunk = Chunk(
        owner=OWNER,
        serial=7,
        group=(7, 2),
        replaces=(1, 2),
        saved=DAY,
        entries={
            uid(1): [Interval(-5, 10, 100), Interval(20, None, 8000)],
            "static-pod": [Interval(0, 10**10, 1)],
            "": [Interval(0, 1, 86 * 10**22 + 1)],
        },
        minutes={60: -5, 120: 10**26, 1_772_452_800: 3},
        ends={180: 4},
    )
    assert decode_chunk(encode_chunk(chunk)) == chunk


def test_equal_chunks_are_written_in_equal_bytes():
    minutes = {60: 5, 120: 7, 3600: 2}
    backwards = dict(reversed(minutes.items()))
    one = Chunk(owner=OWNER, serial=1, group=(1, 1), minutes=minutes, ends=minutes)
    other = Chunk(owner=OWNER, serial=1, group=(1, 1), minutes=backwards, ends=backwards)
    assert encode_chunk(one) == encode_chunk(other)


@pytest.mark.parametrize("changed", [50, 300])
def test_a_rate_that_changed_while_a_pod_ran_is_stored_with_the_time_of_the_change(changed):
    ledger, store = Ledger(OWNER), Store()
    ledger.begin(uid(1), 50, 1000, 50)
    ledger.begin(uid(1), 50, 2000, changed)

    store.save(ledger, 400)

    # After a restart the pod's status would show its start, and not when its rate changed.
    assert store.load().intervals(uid(1))[-1] == Interval(changed, None, 2000)


def test_a_chunk_that_is_full_is_followed_by_another_one_and_that_goes_on_after_a_restart():
    log = ChunkLog(OWNER)
    for number in range(FULL_BYTES // ENTRY_BYTES + 1):
        log.put(uid(number), [Interval(0, 1, 1)])
    assert [len(each.entries) for each in log.chunks.values()] == [FULL_BYTES // ENTRY_BYTES, 1]

    stored = {serial: encode_chunk(chunk) for serial, chunk in reversed(log.chunks.items())}
    again, damages = ChunkLog.load(OWNER, stored)
    assert damages == ()
    again.put("next", [Interval(0, 1, 1)])
    assert "next" in again.chunks[max(stored)].entries
    assert again.chunks.keys() == stored.keys()


def test_damages_are_told_in_the_order_of_their_chunks():
    _, damages = ChunkLog.load(OWNER, {3: b"damaged", 1: b"damaged", 2: b"damaged"})
    assert [each.serial for each in damages] == [1, 2, 3]


def test_uids_that_only_look_like_uuids_keep_their_spelling():
    names = ["ABCDEF00-0000-4000-8000-000000000000", "abcdef000000400080000000000000000", "abcdef00" * 4]
    chunk = Chunk(owner=OWNER, serial=1, group=(1, 1), entries={name: [Interval(0, 1, 1)] for name in names})
    assert set(decode_chunk(encode_chunk(chunk)).entries) == set(names)


@pytest.mark.parametrize(
    ("breaking", "says"),
    [
        (lambda data: data[:0], "truncated"),
        (lambda data: data[:8], "truncated"),
        (lambda data: b"{}" + data, "not a ledger chunk"),
        (lambda data: data[:-1], "checksum"),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "checksum"),
        (lambda data: data[:3] + bytes([CHUNK_VERSION + 1]) + data[4:], "upgrade Forebay"),
    ],
)
def test_a_broken_chunk_says_what_is_wrong(breaking, says):
    data = encode_chunk(Chunk(owner=OWNER, serial=1, group=(1, 1), entries={uid(1): [Interval(0, 1, 1)]}))
    with pytest.raises(UnreadableChunk, match=says):
        decode_chunk(breaking(data))


def test_every_single_flipped_byte_is_noticed():
    data = encode_chunk(Chunk(owner=OWNER, serial=1, group=(1, 1), entries={uid(1): [Interval(0, 1, 1)]}))
    for place in range(len(data)):
        with pytest.raises(UnreadableChunk):
            decode_chunk(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])


def test_a_broken_chunk_is_reported_and_the_others_still_count():
    store, ledger = Store(), filled(5000)
    store.save(ledger, DAY)
    first, *others = sorted(store.objects)
    assert others
    store.objects[first] = store.objects[first][:-3]
    again, (damage,) = Ledger.load(OWNER, store.objects)
    assert damage.serial == first
    assert "checksum" in damage.sentence
    lost = 5000 - total(again) / 100
    assert 0 < lost < 5000
    # Pods that are still there are counted again, and nothing is counted twice.
    for number in range(5000):
        again.record(uid(number), DAY - 100, DAY, 1000)
    assert total(again) == total(ledger)
    assert first not in [write.serial for write in again.chunk_log.writes(DAY)]


def test_the_chunk_of_another_budget_does_not_count():
    mine, other = Store(), Store()
    mine.save(filled(3), DAY)
    other.save(filled(4, owner="somebody else"), DAY)
    ledger, (damage,) = Ledger.load(OWNER, {1: mine.objects[1], 2: other.objects[1]})
    assert total(ledger) == 300
    assert "somebody else" in damage.sentence


def test_chunks_stay_small_and_only_the_last_is_written_again():
    store, ledger = Store(), filled(4000)
    store.save(ledger, DAY)
    ledger.record(uid(9999), 0, 10, 1000)
    (write,) = ledger.chunk_log.writes(DAY)
    assert write.serial == max(store.objects)
    assert all(len(base64.b64encode(data)) < 128 * 1024 for data in store.objects.values())


def test_compaction_keeps_the_sum_and_drops_the_entries_of_deleted_pods():
    store, ledger = Store(), filled(2000)
    store.save(ledger, DAY)
    before = total(ledger)
    seen = {uid(7), uid(8)}
    assert not ledger.compact(DAY + EXACT_PERIOD - 1, 40 * DAY, seen)
    assert ledger.compact(DAY + EXACT_PERIOD, 40 * DAY, seen)
    assert ledger.chunk_log.obsolete() == ()  # not before what replaces them is stored
    store.save(ledger, DAY)
    assert total(ledger) == total(store.load()) == before
    assert ledger.intervals(uid(7)) == (Interval(DAY - 100, DAY, 1000),)
    assert ledger.intervals(uid(9)) == ()
    assert sum(map(len, store.objects.values())) < 1000
    again = store.load()
    again.record(uid(7), DAY - 100, DAY, 1000)
    assert total(again) == before
    assert again.tracked((DAY + 10) * MICRO, 2 * DAY * MICRO) == 2000


def test_compacted_pods_are_tracked_until_the_minute_of_their_end_has_left_the_window():
    ledger = filled(3, end=DAY - 10)
    assert ledger.compact(2 * DAY, 40 * DAY, ())
    assert ledger.tracked((2 * DAY - 1) * MICRO, DAY * MICRO) == 3
    assert ledger.tracked((2 * DAY) * MICRO, DAY * MICRO) == 0


def test_sums_of_many_minutes_fill_several_chunks_none_of_them_large():
    store, ledger = Store(), Ledger(OWNER)
    for begin in range(0, 9000, 1500):
        for minute in range(begin, begin + 1500):
            ledger.record(uid(minute), minute * 60 + 1, minute * 60 + 31, 1000)
        now = (begin + 1500) * 60 + EXACT_PERIOD
        store.save(ledger, now)
        ledger.compact(now, 40 * DAY, ())
        store.save(ledger, now)
    assert total(store.load()) == 9000 * 30
    assert len(store.objects) >= 2
    assert all(len(base64.b64encode(data)) <= 128 * 1024 for data in store.objects.values())


@pytest.mark.parametrize("steps", range(12))
def test_a_death_in_the_middle_of_a_compaction_loses_and_doubles_nothing(steps):
    """With so many visible pods that the compacted form needs several objects, which count only together."""
    store, ledger = Store(), filled(6000)
    store.save(ledger, DAY)
    before = total(ledger)
    visible = {uid(number) for number in range(0, 6000, 3)}
    assert ledger.compact(3 * DAY, 40 * DAY, visible)
    store.save(ledger, 3 * DAY, steps=steps)
    again = store.load()
    assert total(again) == before
    again.compact(3 * DAY, 40 * DAY, visible)
    store.save(again, 3 * DAY)
    again.compact(3 * DAY, 40 * DAY, visible)
    store.save(again, 3 * DAY)
    assert total(store.load()) == before
    assert len(store.load().chunk_log.chunks) == len(store.objects)


def test_a_write_with_unknown_outcome_counts_as_stored():
    store, ledger = Store(), filled(100)
    for write in ledger.chunk_log.writes(DAY):
        store.objects[write.serial] = write.data  # and the answer is lost
    ledger.compact(3 * DAY, 40 * DAY, ())
    store.save(ledger, 3 * DAY)
    assert total(store.load()) == total(ledger) == 10_000


def test_usage_that_left_the_window_is_dropped_but_not_what_still_ran_at_its_edge():
    store, ledger = Store(), Ledger(OWNER)
    for day in range(1, 100):
        ledger.record(uid(day), day * DAY, day * DAY + 50, 1000)
        store.save(ledger, day * DAY)
        ledger.compact(day * DAY, 10 * DAY, ())
        store.save(ledger, day * DAY)
    ledger.record("long", 3 * DAY, 99 * DAY, 1000)
    assert ledger.consumed(99 * DAY * MICRO, 10 * DAY * MICRO) == (10 * DAY + 9 * 50 + 50) * 1000 * MICRO
    assert sum(map(len, store.objects.values())) < 1000
    ledger.compact(101 * DAY, 10 * DAY, ())
    store.save(ledger, 101 * DAY)
    later = store.load()
    assert later.consumed(101 * DAY * MICRO, 10 * DAY * MICRO) == (8 * DAY + 9 * 50) * 1000 * MICRO


def test_pods_whose_labels_change_all_day_get_another_chunk():
    store, ledger = Store(), Ledger(OWNER)
    dice = random.Random(4)
    for number in range(40):
        for turn in range(140):
            ledger.begin(uid(number), turn * 20, 1000, turn * 20, durable=True)
            ledger.end(uid(number), turn * 20 + dice.randrange(1, 20))
    store.save(ledger, DAY)
    assert len(store.objects) > 1
    assert all(len(base64.b64encode(data)) <= 512 * 1024 for data in store.objects.values())
    assert total(store.load()) == total(ledger)
    # The operator dies after it stored the new chunk and before the old one: the pods are in both.
    store, ledger = Store(), Ledger(OWNER)
    for number in range(40):
        ledger.record(uid(number), 0, 7, 1000)
    store.save(ledger, DAY)
    for number in range(40):
        for turn in range(140):
            ledger.record(uid(number), 100 + turn * 20, 110 + turn * 20, 1000)
    store.save(ledger, DAY, steps=1)
    again = store.load()
    for number in range(40):
        for turn in range(140):
            again.record(uid(number), 100 + turn * 20, 110 + turn * 20, 1000)
    assert total(again) == total(ledger)


def test_two_copies_of_a_ledger_are_merged_without_counting_twice():
    one, other = filled(10), filled(14)
    other.begin("running", 5, 1000, 5, durable=True)
    one.merge(other)
    one.merge(other)
    assert total(one) == total(other)
    assert set(one.running) == {"running"}


def test_a_run_that_lasted_no_time_leaves_nothing_behind():
    ledger, store = Ledger(OWNER), Store()
    ledger.begin(uid(1), DAY, 1000, DAY, durable=True)
    ledger.begin(uid(2), DAY, 1000, DAY, durable=True)
    store.save(ledger, DAY)
    ledger.end(uid(1), DAY)
    store.save(ledger, DAY)
    (data,) = store.objects.values()
    assert decode_chunk(data).entries.keys() == {uid(2)}
    assert not ledger.chunk_log.has(uid(1))


def test_a_run_that_was_never_stored_is_not_ended_for_want_of_its_pod():
    ledger = Ledger(OWNER)
    ledger.begin(uid(1), DAY, 1000, DAY)
    ledger.begin(uid(2), DAY, 1000, DAY, durable=True)
    Store().save(ledger, DAY + 100)
    ledger.close_missing(())
    assert set(ledger.running) == {uid(1)}
    assert ledger.intervals(uid(2)) == (Interval(DAY, DAY + 100, 1000),)


def test_an_encoded_chunk_is_no_larger_than_was_foreseen():
    rng = random.Random(1)

    def some(number, most):
        return {60 * rng.randrange(10**8): rng.randrange(1, most) for _ in range(number)}

    for parts in (
        {
            "entries": {
                str(uuid.UUID(int=rng.getrandbits(128))): [Interval(rng.randrange(10**9), None, 7)] for _ in range(500)
            }
        },
        {"minutes": some(500, 10**26)},
        {"ends": some(500, 10**9)},
        {"replaces": tuple(rng.randrange(2**31) for _ in range(500))},
    ):
        chunk = Chunk(owner=OWNER, serial=2**40, group=(1, 1), **parts)
        # More by no more than the compression gains.
        assert len(encode_chunk(chunk)) <= chunk.size <= 6 * len(encode_chunk(chunk))


def test_nothing_is_compacted_while_chunks_exist_that_the_last_compaction_replaced():
    store, ledger = Store(), filled(20)
    store.save(ledger, DAY)
    assert ledger.compact(DAY + EXACT_PERIOD, 40 * DAY, ())
    assert not store.save(ledger, DAY, steps=1)
    ledger.record(uid(99), DAY, DAY + 1, 1000)
    assert not ledger.compact(3 * DAY + EXACT_PERIOD, 40 * DAY, ())
    store.save(ledger, DAY)
    assert ledger.compact(3 * DAY + EXACT_PERIOD, 40 * DAY, ())
