"""Intervals of one pod in a ledger: rates that change, and what the pod has used in a window."""

from forebay.budgets.ledger.chunks import encode_chunk
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import Interval
from tests.unit.budgets.factories import MICRO


def test_a_new_rate_counts_from_the_change_and_never_from_before_the_start():
    ledger = Ledger("owner")
    ledger.begin("pod", 50, 1000, 50)

    ledger.begin("pod", 50, 2000, 40)
    assert ledger.intervals("pod") == (Interval(50, None, 2000),), "the change was seen by a clock that was behind"

    ledger.begin("pod", 50, 3000, 80)
    assert ledger.intervals("pod") == (Interval(50, 80, 2000), Interval(80, None, 3000))


def test_a_pod_has_used_what_lies_in_the_window_up_to_now():
    ledger = Ledger("owner")
    ledger.record("pod", 100, 200, 1000)
    ledger.record("other", 100, 200, 1000)
    ledger.begin("pod", 300, 2000, 300)

    def used(now, window):
        return ledger.consumed_by("pod", now * MICRO, window * MICRO) / MICRO

    assert used(310, 1000) == 100 * 1000 + 10 * 2000
    assert used(310, 150) == 40 * 1000 + 10 * 2000
    assert used(150, 1000) == 50 * 1000
    assert used(50, 1000) == 0
    assert ledger.consumed_by("nobody", 310 * MICRO, 1000 * MICRO) == 0


def test_a_copy_brings_what_is_not_stored_yet():
    mine, other = Ledger("budget"), Ledger("budget")
    mine.record("a", 0, 10, 1000)
    other.record("a", 0, 10, 1000)
    other.set_provisional("b", (Interval(20, 30, 1000),))
    mine.merge(other)
    assert mine.consumed(100 * MICRO, 100 * MICRO) == 20 * 1000 * MICRO


def test_a_copy_brings_the_run_that_began_when_the_last_one_ended():
    mine, other = Ledger("budget"), Ledger("budget")
    for each in (mine, other):
        each.record("a", 0, 10, 1000)
    other.begin("a", 10, 1000, 10)
    mine.merge(other)
    mine.merge(other)
    assert mine.consumed(100 * MICRO, 100 * MICRO) == 100 * 1000 * MICRO


def _stored(ledger):
    return {write.serial: write.data for write in ledger.chunk_log.writes(0)}


def test_a_pod_that_has_used_nothing_is_noted_and_not_tracked_whatever_becomes_of_the_note():
    day = 24 * 3600
    ledger = Ledger("owner")
    ledger.note_end("pod", 100)
    ledger.note_end("pod", 100)
    copy = Ledger("owner")
    copy.merge(ledger)
    (loaded, damages) = Ledger.load("owner", _stored(copy))
    assert damages == ()
    for each in (ledger, copy, loaded):
        assert each.intervals("pod") == (Interval(100, 100, 0),)
        assert each.tracked(200 * MICRO, 200 * MICRO) == 0
    for write in ledger.chunk_log.writes(200):
        ledger.chunk_log.wrote(write)
    assert ledger.compact(2 * day, 31 * day, ())
    assert ledger.intervals("pod") == ()
    assert ledger.tracked(2 * day * MICRO, 31 * day * MICRO) == 0
    loaded.begin("pod", 0, 1000, 300)
    loaded.end("pod", 400)
    assert loaded.consumed(500 * MICRO, 500 * MICRO) == 300 * 1000 * MICRO
    assert loaded.tracked(500 * MICRO, 500 * MICRO) == 1
    loaded.take_back("pod", 100)
    assert loaded.tracked(500 * MICRO, 500 * MICRO) == 0


def test_a_longer_window_holds_at_once_what_it_holds_after_a_restart():
    day, hour = 24 * 3600, 3600
    ledger = Ledger("owner")
    ledger.record("old", 10, 100, 1000)
    for write in ledger.chunk_log.writes(200):
        ledger.chunk_log.wrote(write)
    ledger.compact(2 * day, 31 * day, ())
    ledger.record("ended", day, day + 60, 2000)
    ledger.begin("running", day, 1000, day, durable=True)
    for write in ledger.chunk_log.writes(2 * day):
        ledger.chunk_log.wrote(write)
    ledger.set_provisional("machine", (Interval(day, None, 500),))
    now = 2 * day * MICRO
    loaded, _ = Ledger.load("owner", {serial: encode_chunk(each) for serial, each in ledger.chunk_log.chunks.items()})
    loaded.set_provisional("machine", (Interval(day, None, 500),))
    before = ledger.frozen()

    ledger.profile.forget_before(2 * day - hour)
    assert ledger.consumed(now, 2 * day * MICRO) < loaded.consumed(now, 2 * day * MICRO)
    ledger.recount(2 * day - hour)
    assert ledger.consumed(now, 2 * day * MICRO) < loaded.consumed(now, 2 * day * MICRO), "nothing of that is missing"
    ledger.recount(0)
    assert ledger.frozen().profile.version > before.profile.version
    for window in (hour, day, 2 * day):
        assert ledger.consumed(now, window * MICRO) == loaded.consumed(now, window * MICRO)
        assert ledger.tracked(now, window * MICRO) == loaded.tracked(now, window * MICRO)
    assert ledger.profile.rate(now) == loaded.profile.rate(now)


def test_a_pod_is_tracked_once_whatever_becomes_of_what_it_has_used():
    ledger = Ledger("owner")
    ledger.record("other", 0, 10, 1000)

    def tracked():
        return ledger.tracked(1000 * MICRO, 1000 * MICRO)

    ledger.record("pod", 0, 10, 1000)
    assert tracked() == 2
    ledger.begin("pod", 20, 1000, 20)
    ledger.end("pod", 30)
    assert tracked() == 2
    ledger.note_end("pod", 40)
    assert tracked() == 2
    ledger.take_back("pod", 25)
    assert (tracked(), ledger.intervals("pod")) == (2, (Interval(0, 10, 1000), Interval(20, 25, 1000)))
    ledger.take_back("pod", 25)
    assert tracked() == 2
    ledger.take_back("pod", -1)
    assert (tracked(), ledger.intervals("pod")) == (1, ())
    ledger.record("pod", 50, 60, 1000)
    assert tracked() == 2
    assert ledger.tracked(1000 * MICRO, 950 * MICRO) == 1, "the other one has left the window"


def test_a_ledger_with_nothing_but_sums_is_not_empty():
    day = 24 * 3600
    ledger = Ledger("owner")
    assert ledger.is_empty
    ledger.set_provisional("machine", (Interval(0, 10, 1000),))
    assert not ledger.is_empty
    ledger.drop_provisional()
    assert ledger.is_empty
    ledger.record("pod", 100, 200, 1000)
    assert not ledger.is_empty
    for write in ledger.chunk_log.writes(200):
        ledger.chunk_log.wrote(write)
    ledger.compact(2 * day, 31 * day, ())
    assert ledger.intervals("pod") == ()
    assert not ledger.is_empty
