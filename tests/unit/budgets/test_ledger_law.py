"""The ledger against an integral that anybody can check: second by second, piece by piece."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.budgets.ledger.ledger import EXACT, Ledger
from tests.unit.budgets.scenes import DAY, MICRO, Store

OWNER = "uid-of-team-a"
HOUR = 3600
UIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(6)] + ["a-mirror-pod", ""]


def integral(pieces, start, end):
    """In rate x microseconds."""
    return sum(rate * max(min(end, until * MICRO) - max(start, since * MICRO), 0) for since, until, rate in pieces)


def overlapping(pieces):
    ordered = sorted(pieces)
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
def test_what_is_recorded_in_any_order_and_repeated_is_what_was_used_once(history, dice, now, window):
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
        pieces = ledger.pieces(uid)
        assert not overlapping(pieces)
        asked = {second for each, start, length, _ in history if each == uid for second in range(start, start + length)}
        assert sum(end - start for start, end, _ in pieces) == len(asked)
    assert ledger.consumed(10**6 * DAY * 10, 10**6 * DAY * 11) == sum(
        rate * (end - start) * MICRO for uid in UIDS for start, end, rate in ledger.pieces(uid)
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
    """Pods stay visible until their record is stored (as their finalizer has it), and are shown again after a death."""
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
def test_beyond_a_day_a_window_is_wrong_by_fifteen_seconds_of_those_who_change_in_its_first_minute(
    history, edge, window
):
    ledger, lives = Ledger(OWNER), {}
    for uid, start, length, rate in history:
        if uid not in lives and length:
            lives[uid] = (start, start + length, rate)
            ledger.record(uid, *lives[uid])
    ledger.compact(75 * HOUR + EXACT, 400 * DAY, ())
    assert not any(ledger.pieces(uid) for uid in UIDS)
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
)
def test_the_forecast_is_the_first_moment_at_which_the_window_holds_the_quota(history, running, window, quota):
    now = 60 * HOUR
    ledger = Ledger(OWNER)
    pieces = []
    for number, (_, begun, length, rate) in enumerate(history):
        start = begun // 1800 * 1800 if number % 2 else begun  # changes at the very edge of an hour, too
        pieces.append((start, min(start + length, now), rate))
        ledger.record(f"closed-{number}", *pieces[-1])
    for number, (since, rate) in enumerate(running):
        pieces.append((since, 10**9, rate))
        ledger.begin(f"open-{number}", since, rate, since)
    amount, span = quota * 1000 * HOUR * MICRO // 10, window * HOUR * MICRO

    def held(moment):
        return integral(pieces, moment - span, moment)

    found = ledger.profile.reaches(amount, now * MICRO, span)
    assert ledger.profile.peak(now * MICRO, span, HOUR * MICRO) >= max(
        held((now + later) * MICRO) for later in range(0, min(HOUR, window * HOUR) + 1, 60)
    )
    marks = {now * MICRO, now * MICRO + span}
    marks |= {when * MICRO + span for piece in pieces for when in piece[:2] if now * MICRO <= when * MICRO + span}
    marks = sorted(mark for mark in marks if mark <= now * MICRO + span)
    if found is None:
        assert all(held(mark) < amount for mark in marks)
    else:
        assert held(found) >= amount
        assert found == now * MICRO or held(found - 1) < amount
        assert all(held(mark) < amount for mark in marks if mark < found)
