"""What machines cost is on one line each moment, however often the operator dies, and once for every machine."""

from itertools import count
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.gpu_instance import InstanceState
from forebay.budgets.accounts import Accounts
from forebay.budgets.bill import JOURNAL, Bill
from forebay.budgets.bill_lines import BillLine
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import microseconds, seconds
from forebay.model.quantities import Usd
from forebay.model.sources import Billing
from tests.unit.budgets.scenes import DAY, MICRO, START, Store, at, budget, machine, pod

HOUR = 3600
T0 = seconds(START)
VERSIONS = count(1)


def tenant(name, start, end=None, gpus=1, *, namespace="ann", node="n1", **fields):
    return pod(
        name, gpus, started=start, finished=end, namespace=namespace, version=next(VERSIONS), node=node, **fields
    )


class Operator:
    """Keeps the bill of one cluster, and is another one after each death."""

    def __init__(self):
        self.stores = {}
        self.budgets = [budget(namespace="ann", usd="100")]
        self.pods = {}
        self.begin(0)

    def begin(self, when):
        self.accounts = Accounts()
        for each in self.budgets:
            self.accounts.open(each, at(when), money=self._stored(each.uid), pods=self.pods.values())
        self.spend = Bill(self.accounts, self._find)
        for owner in self.stores:
            if (line := BillLine.parse(owner)) is not None:
                self.spend.lines[line] = self._stored(owner)
        self.spend.journal = self._stored(JOURNAL)

    def _find(self, _namespace, _name, uid):
        return self.pods.get(uid)

    def _stored(self, owner):
        return self.stores[owner].load(owner) if owner in self.stores else Ledger(owner)

    def look(self, when, *machines):
        self.spend.follow(machines, lambda _: Billing(), lambda _: self.pods.values(), at(when))
        self.spend.look(at(when))

    def see(self, found, when):
        self.pods[found.uid] = found
        self.accounts.see(found, at(when))
        self.spend.see_pod(found, at(when))

    def lose(self, uid, when):
        found = self.pods.pop(uid)
        self.accounts.gone(found, at(when))
        self.spend.pod_gone(found, at(when))

    def ledgers(self):
        """In the order in which they are stored."""
        for account in self.accounts:
            yield account.uid, account.money
        for line, ledger in self.spend.lines.items():
            yield line.owner, ledger
        yield JOURNAL, self.spend.journal

    def store(self, when, steps=10**9):
        """So many requests, and whether it lived."""
        for owner, ledger in self.ledgers():
            for write in ledger.shelf.writes(T0 + when):
                if not steps:
                    return False
                steps -= 1
                self.stores.setdefault(owner, Store()).objects[write.serial] = write.data
                ledger.shelf.wrote(write)
            for serial in ledger.shelf.obsolete():
                del self.stores[owner].objects[serial]
                ledger.shelf.deleted(serial)
        return True

    def spent(self, when):
        found = {line: each.amount for line, each in self.spend.spent(at(when)).items()}
        return {line.namespace: amount for line, amount in found.items() if amount}

    def paid(self, when, key=("ann", "team-a")):
        return Usd.from_units(self.accounts.get(key).money.consumed(microseconds(at(when)), 30 * DAY * MICRO))


def test_it_accrues_by_the_clock_and_nothing_is_written_meanwhile():
    it = Operator()
    it.look(10, machine())
    for when in (100, 1000):
        it.look(when, machine())
    assert it.spent(1000) == {"": Usd("1.00")}
    assert it.spent(2000) == {"": Usd("2.00")}
    it.store(2000)
    assert it.stores == {}


def test_who_holds_the_gpus_pays_and_so_do_their_budgets():
    it = Operator()
    ann, bob = tenant("a", 1000, gpus=3), tenant("b", 2000, namespace="bob")
    bought = machine(pods=[ann])
    it.look(0, bought)
    it.see(ann, 1000)
    it.see(bob, 2000)
    it.look(2500, bought)
    assert it.spent(3000) == {"ann": Usd("2.75"), "bob": Usd("0.25")}
    assert it.paid(3000) == Usd("2.75")
    assert list(it.spend.spent(at(3000))) == [
        BillLine("ann", "infra/h100", "cloud"),
        BillLine("bob", "infra/h100", "cloud"),
    ]


def test_a_machine_without_pods_pool_and_class_is_on_nobodys_line():
    it = Operator()
    leak = machine(pool=None, state=InstanceState.TERMINATING)
    it.look(1000, leak)
    (line,) = it.spend.spent(at(1000))
    assert (line.namespace, line.pool) == ("", "")
    assert it.spent(1000) == {"": Usd("1.00")}


def test_a_record_may_go_only_when_what_it_cost_is_stored():
    it = Operator()
    it.look(500, machine())
    gone = machine(end=1000)
    assert not it.spend.is_settled(machine())
    it.look(1000, gone)
    assert not it.spend.is_settled(gone)
    it.store(1000)
    assert it.spend.is_settled(gone)
    assert it.spend.is_settled(machine(price=0, end=10, name="free"))
    it.look(2000)
    it.begin(3000)
    assert it.spent(3000) == {"": Usd("1.00")}


def test_a_pod_may_go_only_when_what_it_pays_is_stored():
    it = Operator()
    it.look(0, machine())
    it.see(tenant("a", 0), 10)
    ended = tenant("a", 0, 900)
    it.see(ended, 1000)
    assert not it.spend.may_go(ended, at(1000))
    assert not it.spend.may_go(ended, at(1000))
    it.store(1000)
    assert it.spend.may_go(ended, at(1001))
    assert it.spend.may_go(tenant("elsewhere", 0, 900, node="n2"), at(1001))


def test_a_record_that_somebody_has_taken_away_is_billed_until_then():
    it = Operator()
    it.look(500, machine())
    it.look(1000)
    assert it.spent(5000) == {"": Usd("1.00")}
    it.store(5000)
    it.begin(5000)
    assert it.spent(5000) == {"": Usd("1.00")}


def test_a_launch_that_came_to_nothing_has_cost_nothing():
    it = Operator()
    it.look(0, machine(state=InstanceState.LAUNCHING))
    it.look(2 * HOUR, machine(state=InstanceState.LAUNCHING))
    it.look(2 * HOUR + 1, machine(start=None, state=InstanceState.REQUESTED))
    assert it.spent(3 * HOUR) == {}
    it.look(3 * HOUR, machine(start=3 * HOUR))
    assert it.spent(3 * HOUR + 1000) == {"": Usd("1.00")}


def test_what_is_past_the_hour_is_stored_though_the_machine_goes_on():
    it = Operator()
    ann = tenant("a", 0)
    it.look(10, machine())
    it.see(ann, 10)
    it.look(HOUR + 5, machine())
    it.store(HOUR + 5)
    assert it.spend.journal.pieces("uid-gi-1")[-1].end == T0 + HOUR + 5
    # The pod and its traces go while nobody looks: what is settled stays its own.
    it.pods.clear()
    it.begin(2 * HOUR)
    it.look(2 * HOUR, machine())
    assert it.spent(2 * HOUR) == {"ann": Usd("3.605"), "": Usd("3.595")}
    assert it.paid(2 * HOUR) == Usd("3.605")


def test_a_pod_that_is_gone_has_paid_also_when_the_operator_dies():
    it = Operator()
    it.look(0, machine())
    it.see(tenant("a", 0), 10)
    it.lose("uid-a", 1000)
    it.look(1000, machine())
    it.store(1000)
    it.begin(1001)
    it.look(2000, machine())
    assert it.spent(2000) == {"ann": Usd("1.00"), "": Usd("1.00")}
    assert it.paid(2000) == Usd("1.00")


def test_a_pod_that_was_taken_to_go_on_does_not_pay_for_ever():
    it = Operator()
    it.look(0, machine())
    it.see(tenant("a", 0), 10)
    it.see(tenant("b", 0), 10)
    it.lose("uid-b", 1000)
    it.see(tenant("a", 0, 995), 1005)
    it.look(1005, machine())
    assert it.spent(2000) == {"ann": Usd("1.00"), "": Usd("1.00")}


def test_a_budget_that_comes_later_pays_from_then_on():
    it = Operator()
    it.look(0, machine())
    it.see(tenant("a", 0, labels={"team": "b"}), 10)
    it.look(HOUR, machine())
    late = budget("late", namespace="ann", labels={"team": "b"})
    it.accounts.open(late, at(HOUR + 100), pods=it.pods.values())
    it.spend.budgets_changed({"ann"})
    it.look(HOUR + 100, machine())
    assert it.paid(HOUR + 1000, ("ann", "late")) == Usd("1.00")


def test_a_machine_that_is_there_for_months_is_added_up_and_not_charged_again():
    it = Operator()
    it.see(tenant("a", 0), 0)
    for hour in range(0, 40 * 24, 3):
        it.look(hour * HOUR, machine())
        if hour % 24 == 0:
            it.spend.compact(at(hour * HOUR))
            it.store(hour * HOUR)
            it.begin(hour * HOUR)
            it.look(hour * HOUR, machine())
    end = hour * HOUR
    assert it.spent(end) == {"ann": Usd("3.60") * 24 * 31}
    assert max(len(ledger.shelf.chunks) for _, ledger in it.ledgers()) <= 2
    assert len(it.spend.journal.pieces("uid-gi-1")) == 1


def test_a_journal_that_cannot_be_read_charges_nothing_twice():
    it = Operator()
    it.look(0, machine())
    it.look(HOUR, machine())
    it.store(HOUR)
    del it.stores[JOURNAL]
    it.begin(2 * HOUR)
    it.spend.journal_damaged = True
    it.look(2 * HOUR, machine())
    assert it.spent(3 * HOUR) == {"": Usd("7.20")}
    # Nor does it keep the record of what was gone before.
    gone = machine("other", end=100)
    it.look(3 * HOUR, machine(), gone)
    assert it.spend.is_settled(gone)


def test_a_line_is_forgotten_when_nothing_of_it_is_remembered():
    it = Operator()
    it.look(0, machine())
    it.look(1000, machine(end=1000))
    it.look(2000)
    it.store(2000)
    for day in (2, 40, 41):
        it.spend.compact(at(day * DAY))
        it.store(day * DAY)
    assert it.spend.lines == {}


lives = st.tuples(
    st.sampled_from(("ann", "bob")), st.integers(0, 9000), st.integers(0, 9000), st.integers(1, 8), st.booleans()
)
looks = st.lists(st.tuples(st.integers(0, 10_000), st.one_of(st.none(), st.integers(0, 6))), min_size=1, max_size=8)


@pytest.mark.law
@given(st.lists(lives, max_size=6), looks, st.integers(1, 10_000), st.booleans(), st.sampled_from(("3.60", "0.333")))
def test_the_lines_add_up_to_the_price_whatever_is_seen_and_lost(held, seen, length, bought, price):
    """At each look the operator may die after so many of its requests."""
    it = Operator()
    pods = [pod(f"p{number}", namespace=namespace) for number, (namespace, *_) in enumerate(held)]
    crashed = False
    known = set()
    for when, steps in [
        *sorted((each for each in seen if each[0] < length), key=itemgetter(0)),
        (length, None),
        (length, None),
    ]:
        for number, (namespace, start, span, gpus, deleted) in enumerate(held):
            end = start + span
            uid = f"uid-p{number}"
            if deleted and end <= when and uid in known:
                if uid in it.pods:
                    it.see(tenant(f"p{number}", start, end, gpus, namespace=namespace), when)
                    it.lose(uid, when)
            elif start <= when and not (deleted and end <= when):
                known.add(uid)
                it.see(tenant(f"p{number}", start, end if end <= when else None, gpus, namespace=namespace), when)
        last = when == length
        it.look(when, machine(price=price, end=length if last else None, pods=pods[:2] if bought else ()))
        if not it.store(when, 10**9 if steps is None else steps):
            crashed = True
            it.begin(when)
    it.begin(length)
    spent = it.spent(20_000)
    total = sum(spent.values(), start=Usd.zero())
    assert total.units == Usd(price).units // HOUR * length
    assert it.paid(20_000) <= total
    if not crashed and not bought:
        assert it.paid(20_000) == spent.get("ann", Usd.zero())
