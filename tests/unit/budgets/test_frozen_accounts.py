"""Accounts as a snapshot has them: later changes leave them alone, and what has not changed is shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.budgets.accounts import Accounts
from forebay.budgets.ledger.profile import Profile
from forebay.budgets.usage import Interval, microseconds, seconds
from tests.unit.budgets.factories import DAY, MICRO, at, budget, pod

HOUR = 3600
KEYS = (("default", "team-a"), ("default", "all"))
moments = st.integers(-2 * DAY, 2 * DAY)


def readings(accounts):
    """All that anybody can read of the accounts."""
    now, window = microseconds(at(DAY)), DAY * MICRO
    return [
        (
            each.key,
            each.uid,
            each.selector,
            each.exact,
            dict(each.pods),
            [
                (
                    usage.summary,
                    usage.consumed(now, window),
                    usage.tracked(now, window),
                    usage.profile.rate(now),
                    usage.profile.peak(now, window, HOUR * MICRO),
                    [(uid, usage.intervals(uid), usage.consumed_by(uid, now, window)) for uid in each.pods],
                )
                for usage in (each.ledger, each.money)
            ],
            [found.key for found in accounts.matching(pod(labels={"team": "a", "job": "x"}))],
        )
        for each in accounts
    ]


def changed(draw, accounts, when):
    """One thing more has happened."""
    name = draw(st.sampled_from("abc"))
    account = accounts.get(draw(st.sampled_from(KEYS)))
    started = draw(moments)
    match draw(st.sampled_from(["runs", "ends", "relabelled", "deleted", "dollars", "selector", "compact", "nothing"])):
        case "runs":
            accounts.see(pod(name, draw(st.integers(1, 4)), started=started, version=when), at(when))
        case "ends":
            lasted = draw(st.integers(0, DAY))
            accounts.see(pod(name, started=started, finished=started + lasted, version=when), at(when))
        case "relabelled":
            accounts.see(pod(name, started=started, version=when, labels={"team": "b"}), at(when))
        case "deleted":
            accounts.gone(pod(name, started=started, version=when), at(when))
        case "dollars" if account is not None:
            account.money.record(name, seconds(at(started)), seconds(at(started + HOUR)), 7)
            account.money.set_provisional(name, (Interval(seconds(at(when)), None, 3),))
        case "selector":
            accounts.open(budget(labels=draw(st.sampled_from([{"team": "a"}, {"team": "b"}]))), at(when))
        case "compact":
            accounts.compact(at(2 * DAY), dict.fromkeys(KEYS, DAY), ())


@pytest.mark.law
@given(st.data())
def test_frozen_accounts_say_for_ever_what_the_accounts_said_then(data):
    accounts = Accounts()
    accounts.open(budget(), at(0))
    accounts.open(budget("all", selector=budget(labels={"job": "x"}).spec.selector), at(0))
    kept = []
    for when in range(1, data.draw(st.integers(2, 12))):
        changed(data.draw, accounts, when)
        kept.append((accounts.frozen(), readings(accounts)))

    for frozen, then in kept:
        assert readings(frozen) == then


def test_an_account_that_nothing_happened_to_is_shared_from_tick_to_tick():
    accounts = Accounts()
    accounts.open(budget(), at(0))
    accounts.open(budget("other", labels={"team": "b"}), at(0))
    accounts.see(pod("a", started=0), at(0))
    first = accounts.frozen()
    assert accounts.frozen() is first

    accounts.see(pod("b", started=0), at(1))
    second = accounts.frozen()
    assert second is not first
    assert second.get(("default", "other")) is first.get(("default", "other"))
    assert [len(each.get(("default", "team-a")).pods) for each in (first, second)] == [1, 2]


def test_hours_without_a_change_are_shared_and_not_copied():
    profile = Profile()
    for hour in range(100):
        profile.change(hour * HOUR, 1)
    first = profile.frozen()
    profile.change(99 * HOUR + 5, 1)
    second = profile.frozen()

    same = [first._buckets[hour] is second._buckets[hour] for hour in range(100)]
    assert same == [True] * 99 + [False]
    assert [each.rate(100 * HOUR * MICRO) for each in (first, second)] == [100, 101]


def test_pods_of_a_frozen_account_cannot_be_written():
    accounts = Accounts()
    accounts.open(budget(), at(0))
    with pytest.raises(TypeError):
        accounts.frozen().get(("default", "team-a")).pods["uid-a"] = pod("a")
