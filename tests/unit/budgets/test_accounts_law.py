"""Accounts hold the true usage, whatever the cluster shows, in whatever order, and whenever the operator dies."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.budgets.accounts import Accounts
from forebay.budgets.usage import microseconds, seconds
from tests.unit.budgets.factories import DAY, GPU, MICRO, START, Store, at, budget, pod

KEY = ("default", "team-a")
WINDOW = 40 * DAY


class World:
    """Pods with the usage finalizer, so none is deleted before its usage is stored.

    The operator's view may miss, repeat and reorder states.
    """

    def __init__(self):
        self.now = 0
        self.lives = {}
        self.existing = {}
        self.shown = []
        self.store = Store()
        self.start_operator()

    def start_operator(self):
        """A new process lists all existing pods, as an informer does first."""
        self.accounts = Accounts()
        self.accounts.open(budget(window=960), at(self.now), ledger=self.store.load())
        self.shown = []
        self.show(list(self.existing))
        self.accounts.close_missing()

    @property
    def ledger(self):
        return self.accounts.get(KEY).ledger

    def run(self, delay, length, gpus, restart):
        name = f"pod-{len(self.lives)}"
        self.lives[name] = (self.now + delay, self.now + delay + length, gpus, restart)
        self.existing[name] = None

    def state_of(self, name):
        start, end, gpus, restart = self.lives[name]
        fields = {"version": self.now + 1, "restarted": restart and self.now > start}
        if self.now < start:
            return pod(name, gpus, **fields)
        return pod(name, gpus, started=start, finished=end if self.now >= end else None, **fields)

    def show(self, names, *, dice=None):
        states = [self.state_of(name) for name in names if name in self.existing]
        if dice is not None:
            states += dice.sample(self.shown, min(len(self.shown), 3)) + states[:1]
            dice.shuffle(states)
        for each in states:
            self.accounts.see(each, at(self.now))
        self.shown = self.shown[-20:] + states

    def remove(self, count, *, seen):
        for name in [each for each in self.existing if self.accounts.may_delete(self.state_of(each))][:count]:
            gone = self.state_of(name)
            del self.existing[name]
            if seen:
                self.accounts.gone(gone, at(self.now))

    def used(self):
        """True usage, computed independently, in thousandths of a GPU-microsecond."""
        return sum(
            gpus * 1000 * MICRO * max(min(end, self.now) - start, 0) for start, end, gpus, _ in self.lives.values()
        )


spans = st.integers(0, 30 * 3600)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(0, 600), spans, st.sampled_from((1, 2, 8)), st.booleans()),
        st.tuples(st.just("wait"), st.one_of(st.integers(0, 300), spans)),
        st.tuples(st.just("show"), st.integers(0, 5)),
        st.tuples(st.just("save"), st.one_of(st.none(), st.integers(0, 3))),
        st.tuples(st.just("die")),
        st.tuples(st.just("remove"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("compact")),
    ),
    max_size=40,
)


@pytest.mark.law
@given(steps, st.randoms(use_true_random=False))
def test_the_ledger_holds_the_true_usage(sequence, dice):
    world = World()
    for step, *given_ in sequence:
        if step == "run":
            world.run(*given_)
        elif step == "wait":
            world.now += given_[0]
        elif step == "show":
            world.show(dice.sample(list(world.existing), min(len(world.existing), given_[0])), dice=dice)
        elif step == "save":
            if not world.store.save(world.ledger, seconds(at(world.now)), steps=given_[0]):
                world.start_operator()
        elif step == "die":
            world.start_operator()
        elif step == "remove":
            world.remove(given_[0], seen=given_[1])
        else:
            world.show(list(world.existing))
            world.accounts.compact(at(world.now), {KEY: WINDOW}, ())
        assert world.ledger.consumed(microseconds(at(world.now)), WINDOW * MICRO) >= 0
    world.now = -(-world.now // 60) * 60
    world.show(list(world.existing))
    assert world.ledger.consumed(microseconds(at(world.now)), WINDOW * MICRO) == world.used()
    world.store.save(world.ledger, seconds(at(world.now)))
    world.start_operator()
    assert world.ledger.consumed(microseconds(at(world.now)), WINDOW * MICRO) == world.used()


changes = st.lists(
    st.tuples(st.integers(0, 5000), st.sampled_from(({"team": "a"}, {"team": "b"}, {})), st.booleans()), max_size=8
)


@pytest.mark.law
@given(changes, st.integers(0, 3000))
def test_a_pod_whose_labels_change_counts_for_exactly_one_of_two_budgets_while_it_has_one_of_their_labels(moves, start):
    accounts, stores = Accounts(), {}
    budgets = [budget("team-a", window=960), budget("team-b", labels={"team": "b"}, window=960)]
    for each in budgets:
        accounts.open(each, at(0))
        stores[each.key] = Store()
    now, labels, true = 0, {"team": "a"}, 0
    for number, (wait, changed, dies) in enumerate([*moves, (100, {}, False)]):
        accounts.see(pod(started=start if now >= start else None, labels=labels, version=2 * number), at(now))
        if labels:
            true += max(now + wait - max(now, start), 0)
        now, labels = now + wait, changed
        accounts.see(pod(started=start if now >= start else None, labels=labels, version=2 * number + 1), at(now))
        for each in budgets:
            stores[each.key].save(accounts.get(each.key).ledger, seconds(at(now)))
        if dies:
            accounts = Accounts()
            for each in budgets:
                accounts.open(each, at(now), ledger=stores[each.key].load(each.uid))
    found = sum(account.ledger.consumed(microseconds(at(now)), WINDOW * MICRO) for account in accounts)
    assert found <= max(now - start, 0) * 1000 * MICRO
    assert found == true * 1000 * MICRO


def test_the_factories_request_what_budgets_count():
    assert pod().shape.requests.amount(GPU) == 1
    assert at(60) - START == timedelta(minutes=1)
