"""The ledger compared with a plain integral over all intervals."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.budgets.ledger.ledger import EXACT_PERIOD, Ledger
from tests.unit.budgets.factories import DAY, MICRO, Store

OWNER = "uid-of-team-a"
HOUR = 3600
UIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(6)] + ["a-mirror-pod", ""]


def integral(intervals, start, end):
    """Usage in rate x microseconds."""
    return sum(rate * max(min(end, until * MICRO) - max(start, since * MICRO), 0) for since, until, rate in intervals)


def overlapping(intervals):
    ordered = sorted(intervals)
    return any(later[0] < earlier[1] for earlier, later in pairwise(ordered))


histories = st.lists(
    st.tuples(
        st.sampled_from(UIDS),
        st.integers(0, 40 * HOUR),
        st.integers(0, 30 * HOUR),
        st.sampled_from((100, 1000, 8000)),
    ),
    max_size=12,
)


@pytest.mark.law
@given(histories, st.randoms(use_true_random=False), st.integers(0, 80 * HOUR * MICRO), st.integers(1, 60))
def test_usage_recorded_in_any_order_and_repeatedly_counts_once(history, dice, now, window):
    lives = {}
    for uid, start, length, rate in history:
        lives.setdefault(uid, (start, start + length, rate))
    ledger = Ledger(OWNER)
    entries = list(lives.items()) * 2
    dice.shuffle(entries)
    for uid, (start, end, rate) in entries:
        ledger.record(uid, start, end, rate)
    span = window * HOUR * MICRO
    assert ledger.consumed(now, span) == integral(lives.values(), now - span, now)
    assert ledger.tracked(now, span) == sum(
        end > start and end * MICRO > now - span for start, end, _ in lives.values()
    )


@pytest.mark.law
@given(histories)
def test_no_second_of_a_pod_is_ever_counted_twice(history):
    ledger = Ledger(OWNER)
    for uid, start, length, rate in history:
        ledger.record(uid, start, start + length, rate)
    for uid in UIDS:
        intervals = ledger.intervals(uid)
        assert not overlapping(intervals)
        asked = {second for each, start, length, _ in history if each == uid for second in range(start, start + length)}
        assert sum(end - start for start, end, _ in intervals) == len(asked)
    assert ledger.consumed(10**6 * DAY * 10, 10**6 * DAY * 11) == sum(
        rate * (end - start) * MICRO for uid in UIDS for start, end, rate in ledger.intervals(uid)
    )


commands = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(0, 5000), st.integers(1, 20 * HOUR), st.sampled_from((100, 1000, 8000))),
        st.tuples(st.just("wait"), st.integers(1, 30 * HOUR)),
        st.tuples(st.just("save"), st.integers(0, 5)),
        st.tuples(st.just("save"), st.none()),
        st.tuples(st.just("die")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("forget"), st.integers(0, 10)),
    ),
    max_size=40,
)


@pytest.mark.law
@given(commands)
def test_a_ledger_survives_death_at_any_request_and_any_compaction(story):
    """Pods exist until their usage is stored, as the finalizer ensures, and are seen again after a restart."""
    now, window, store, ledger = 100 * DAY, 31 * DAY, Store(), Ledger(OWNER)
    lives: dict[str, tuple[int, int, int]] = {}
    visible: set[str] = set()
    for step, *given_ in [*story, ("save", None)]:
        if step == "run":
            ago, length, rate = given_
            uid = f"11111111-0000-4000-8000-{len(lives):012d}"
            lives[uid] = (now - ago - length, now - ago, rate)
            visible.add(uid)
            ledger.record(uid, *lives[uid])
        elif step == "wait":
            now += given_[0]
        elif step == "save":
            if not store.save(ledger, now, steps=given_[0]):
                ledger = restarted(store, lives, visible)
        elif step == "die":
            ledger = restarted(store, lives, visible)
        elif step == "compact":
            ledger.compact(now, window, visible)
        elif step == "forget":
            visible -= {uid for uid in sorted(visible)[: given_[0]] if ledger.is_durable(uid)}
        end = -(-max([now, *(end for _, end, _ in lives.values())]) // 60) * 60 * MICRO  # sums are exact at the minute
        true = integral(lives.values(), end - 30 * DAY * MICRO, end)
        assert ledger.consumed(end, 30 * DAY * MICRO) == true
    assert restarted(store, lives, visible).consumed(end, 30 * DAY * MICRO) == true


def restarted(store, lives, visible):
    ledger = store.load()
    for uid in visible:
        ledger.record(uid, *lives[uid])
    return ledger


@pytest.mark.law
@given(histories, st.integers(0, 90 * HOUR * MICRO), st.integers(1, 80))
def test_compacted_usage_is_wrong_by_at_most_15_seconds_of_the_changes_in_the_first_minute(history, edge, window):
    ledger, lives = Ledger(OWNER), {}
    for uid, start, length, rate in history:
        if uid not in lives and length:
            lives[uid] = (start, start + length, rate)
            ledger.record(uid, *lives[uid])
    ledger.compact(75 * HOUR + EXACT_PERIOD, 400 * DAY, ())
    assert not any(ledger.intervals(uid) for uid in UIDS)
    now = edge + window * HOUR * MICRO
    error = abs(ledger.profile.between(edge, 200 * HOUR * MICRO) - integral(lives.values(), edge, 200 * HOUR * MICRO))
    minute = edge // (60 * MICRO) * 60
    changing = sum(rate for start, end, rate in lives.values() for when in (start, end) if minute < when < minute + 60)
    assert error <= 15 * MICRO * changing
    assert ledger.consumed(now, window * HOUR * MICRO) >= 0


@pytest.mark.law
@given(
    histories,
    st.lists(st.tuples(st.integers(0, 60 * HOUR), st.sampled_from((500, 1000, 4000))), max_size=4),
    st.integers(1, 60),
    st.integers(1, 400),
    st.one_of(st.just(0), st.integers(0, HOUR)),
)
def test_the_forecast_is_the_first_moment_at_which_the_window_holds_the_quota(history, running, window, quota, into):
    now = 60 * HOUR + into
    ledger = Ledger(OWNER)
    intervals = []
    for number, (_, begun, length, rate) in enumerate(history):
        start = begun // 1800 * 1800 if number % 2 else begun  # changes at the very edge of an hour, too
        intervals.append((start, min(start + length, now), rate))
        ledger.record(f"closed-{number}", *intervals[-1])
    for number, (since, rate) in enumerate(running):
        intervals.append((since, 10**9, rate))
        ledger.begin(f"open-{number}", since, rate, since)
    amount, span = quota * 1000 * HOUR * MICRO // 10, window * HOUR * MICRO

    def held(moment):
        return integral(intervals, moment - span, moment)

    found = ledger.profile.reaches(amount, now * MICRO, span)
    assert ledger.profile.peak(now * MICRO, span, HOUR * MICRO) >= max(
        held((now + later) * MICRO) for later in range(0, min(HOUR, window * HOUR) + 1, 60)
    )
    marks = {now * MICRO, now * MICRO + span}
    marks |= {
        when * MICRO + span for interval in intervals for when in interval[:2] if now * MICRO <= when * MICRO + span
    }
    marks = sorted(mark for mark in marks if mark <= now * MICRO + span)
    if found is None:
        assert all(held(mark) < amount for mark in marks)
    else:
        assert held(found) >= amount
        assert found == now * MICRO or held(found - 1) < amount
        assert all(held(mark) < amount for mark in marks if mark < found)


@pytest.mark.law
@given(histories, st.integers(0, 70 * HOUR), st.integers(0, 80 * HOUR * MICRO), st.integers(1, 60))
def test_what_is_taken_back_counts_no_more_also_after_a_restart(history, after, now, window):
    ledger, store = Ledger(OWNER), Store()
    for uid, start, length, rate in history:
        ledger.record(uid, start, start + length, rate)
    kept = [
        (each.start, min(each.end, after), each.rate)
        for uid in UIDS
        for each in ledger.intervals(uid)
        if each.start < after
    ]
    for _ in range(2):
        for uid in UIDS:
            ledger.take_back(uid, after)
    for write in ledger.chunk_log.writes(0):
        store.objects[write.serial] = write.data
        ledger.chunk_log.wrote(write)
    span = window * HOUR * MICRO
    for each in (ledger, store.load(OWNER)):
        assert each.consumed(now, span) == integral(kept, now - span, now)


def test_a_forecast_whose_window_begins_within_an_hour_counts_the_changes_of_that_hour_once():
    """The run of the first hour began before the window does, and is in its rate already."""
    ledger, now, span = Ledger(OWNER), 20_000, 18_200
    ledger.record("first", 600, 5000, 1000)
    ledger.begin("second", 19_000, 2000, 19_000)
    intervals = [(600, 5000, 1000), (19_000, 10**9, 2000)]
    for more in (1000, 3000, 5000):
        amount = integral(intervals, (now - span) * MICRO, now * MICRO) + more * 1000 * MICRO
        found = ledger.profile.reaches(amount, now * MICRO, span * MICRO)
        assert integral(intervals, found - span * MICRO, found) >= amount
        assert integral(intervals, found - 1 - span * MICRO, found - 1) < amount
