"""Every second of a machine is billed once, to one key at a time, however often the operator dies."""

from itertools import count
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.gpu_instance import InstanceState
from forebay.budgets.accounts import Accounts
from forebay.budgets.bill import MACHINE_LEDGER, Bill
from forebay.budgets.bill_keys import BillKey
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import microseconds, seconds
from forebay.model.quantities import Usd
from forebay.model.workloads import Owner, Phase
from tests.unit.budgets.factories import DAY, MICRO, START, Store, at, budget, machine, pod

HOUR = 3600
T0 = seconds(START)
VERSIONS = count(1)


def running_pod(name, start, end=None, gpus=1, *, namespace="ann", node="n1", **fields):
    return pod(
        name, gpus, started=start, finished=end, namespace=namespace, version=next(VERSIONS), node=node, **fields
    )


class Operator:
    """Bill of one cluster, kept by a new process after each `begin`."""

    def __init__(self):
        self.stores = {}
        self.budgets = [budget(namespace="ann", usd="100")]
        self.pods = {}
        self.begin(0)

    def begin(self, when):
        self.accounts = Accounts()
        for each in self.budgets:
            self.accounts.open(each, at(when), money=self._stored(each.uid), pods=self.pods.values())
        self.bill = Bill(self.accounts, self._find, holds=lambda pod: "keep" in pod.annotations)
        for owner in self.stores:
            if (key := BillKey.parse(owner)) is not None:
                self.bill.ledgers[key] = self._stored(owner)
        self.bill.machine_ledger = self._stored(MACHINE_LEDGER)

    def _find(self, _namespace, _name, uid):
        return self.pods.get(uid)

    def _stored(self, owner):
        return self.stores[owner].load(owner) if owner in self.stores else Ledger(owner)

    def update(self, when, *machines):
        self.bill.see_instances(machines, lambda _: self.pods.values(), at(when))
        self.bill.update(at(when))

    def see(self, found, when):
        self.pods[found.uid] = found
        self.accounts.see(found, at(when))
        self.bill.see_pod(found, at(when))

    def lose(self, uid, when):
        found = self.pods.pop(uid)
        self.accounts.gone(found, at(when))
        self.bill.pod_gone(found, at(when))

    def ledgers(self):
        """Ledgers in the order in which they are stored."""
        for account in self.accounts:
            yield account.uid, account.money
        for key, ledger in self.bill.ledgers.items():
            yield key.owner, ledger
        yield MACHINE_LEDGER, self.bill.machine_ledger

    def store(self, when, steps=10**9):
        """Make at most `steps` requests; returns whether everything was stored."""
        for owner, ledger in self.ledgers():
            for write in ledger.chunk_log.writes(T0 + when):
                if not steps:
                    return False
                steps -= 1
                self.stores.setdefault(owner, Store()).objects[write.serial] = write.data
                ledger.chunk_log.wrote(write)
            for serial in ledger.chunk_log.obsolete():
                del self.stores[owner].objects[serial]
                ledger.chunk_log.deleted(serial)
        return True

    def costs(self, when):
        found = {key: each.amount for key, each in self.bill.costs(at(when)).items()}
        return {key.namespace: amount for key, amount in found.items() if amount}

    def paid(self, when, key=("ann", "team-a")):
        return Usd.from_units(self.accounts.get(key).money.consumed(microseconds(at(when)), 30 * DAY * MICRO))


def test_cost_accrues_by_the_clock_and_nothing_is_written_meanwhile():
    it = Operator()
    it.update(10, machine())
    for when in (100, 1000):
        it.update(when, machine())
    assert it.costs(1000) == {"": Usd("1.00")}
    assert it.costs(2000) == {"": Usd("2.00")}
    it.store(2000)
    assert it.stores == {}


def test_pods_that_hold_the_gpus_pay_and_so_do_their_budgets():
    it = Operator()
    ann, bob = running_pod("a", 1000, gpus=3), running_pod("b", 2000, namespace="bob")
    launched_for = machine(pods=[ann])
    it.update(0, launched_for)
    it.see(ann, 1000)
    it.see(bob, 2000)
    it.update(2500, launched_for)
    assert it.costs(3000) == {"ann": Usd("2.75"), "bob": Usd("0.25")}
    assert it.paid(3000) == Usd("2.75")
    assert list(it.bill.costs(at(3000))) == [
        BillKey("ann", "infra/h100", "cloud"),
        BillKey("bob", "infra/h100", "cloud"),
    ]


def test_a_pod_without_a_gpu_pays_nothing_and_keeps_nobody_from_paying():
    it = Operator()
    ann, guest = running_pod("a", 2000), running_pod("b", 0, namespace="bob", gpus=0)
    launched_for = machine(pods=[ann])
    it.update(0, launched_for)
    it.see(guest, 0)
    it.update(1000, launched_for)
    assert it.costs(1000) == {"ann": Usd("1.00")}, "the machine was launched for her pod"
    it.see(ann, 2000)
    it.update(3000, launched_for)
    assert it.costs(3000) == {"ann": Usd("3.00")}
    it.lose(guest.uid, 3000)
    it.store(3000)
    assert it.stores == {}, "nothing is to be recorded of a pod that has paid nothing"


def test_a_machine_without_pods_pool_and_class_is_unallocated():
    it = Operator()
    leak = machine(pool=None, state=InstanceState.TERMINATING)
    it.update(1000, leak)
    (key,) = it.bill.costs(at(1000))
    assert (key.namespace, key.pool) == ("", "")
    assert it.costs(1000) == {"": Usd("1.00")}


def test_a_record_may_be_deleted_only_when_its_cost_is_stored():
    it = Operator()
    it.update(500, machine())
    gone = machine(end=1000)
    assert not it.bill.is_stored(machine())
    it.update(1000, gone)
    assert not it.bill.is_stored(gone)
    it.store(1000)
    assert it.bill.is_stored(gone)
    assert it.bill.is_stored(machine(price=0, end=10, name="free"))
    it.update(2000)
    it.begin(3000)
    assert it.costs(3000) == {"": Usd("1.00")}


def test_a_pod_may_be_deleted_only_when_what_it_pays_is_stored():
    it = Operator()
    it.update(0, machine())
    it.see(running_pod("a", 0), 10)
    ended = running_pod("a", 0, 900)
    it.see(ended, 1000)
    assert not it.bill.may_delete(ended, at(1000))
    assert not it.bill.may_delete(ended, at(1000))
    it.store(1000)
    assert it.bill.may_delete(ended, at(1001))
    assert it.bill.may_delete(running_pod("elsewhere", 0, 900, node="n2"), at(1001))


def test_a_record_deleted_by_force_is_billed_until_then():
    it = Operator()
    it.update(500, machine())
    it.update(1000)
    assert it.costs(5000) == {"": Usd("1.00")}
    it.store(5000)
    it.begin(5000)
    assert it.costs(5000) == {"": Usd("1.00")}


def test_a_pod_that_comes_to_a_node_of_the_same_name_does_not_pay_for_the_machine_before():
    it = Operator()
    it.update(0, machine("old"))
    it.update(100, machine("old", end=100))
    it.see(running_pod("a", 150), 150)
    it.update(200, machine("old", end=100), machine("new", start=120))
    assert it.costs(200) == {"": Usd("0.13"), "ann": Usd("0.05")}


def test_a_machine_with_very_many_short_pods_has_their_cost_recorded_early():
    it = Operator()
    it.update(0, machine())
    for number in range(64):
        it.see(running_pod(f"p{number}", number * 10, number * 10 + 10), number * 10 + 10)
    it.update(700, machine())
    assert it.bill.machine_ledger.intervals("uid-gi-1") == (), "their shares are computed anew each time"
    it.see(running_pod("last", 640, 650), 650)
    it.update(710, machine())
    (recorded,) = it.bill.machine_ledger.intervals("uid-gi-1")
    assert recorded.end - T0 == 710
    assert it.costs(710) == {"ann": Usd("0.65"), "": Usd("0.06")}


def test_a_failed_launch_costs_nothing():
    it = Operator()
    it.update(0, machine(state=InstanceState.LAUNCHING))
    it.update(2 * HOUR, machine(state=InstanceState.LAUNCHING))
    refused = machine(start=None, state=InstanceState.REQUESTED)
    it.update(2 * HOUR + 1, refused)
    assert it.costs(3 * HOUR) == {}
    assert it.bill.is_stored(refused), "its record may be deleted"
    it.update(3 * HOUR, machine(start=3 * HOUR))
    assert it.costs(3 * HOUR + 1000) == {"": Usd("1.00")}


def test_a_finished_hour_is_recorded_while_the_machine_goes_on():
    it = Operator()
    ann = running_pod("a", 0)
    it.update(10, machine())
    it.see(ann, 10)
    it.update(HOUR + 5, machine())
    it.store(HOUR + 5)
    assert it.bill.machine_ledger.intervals("uid-gi-1")[-1].end == T0 + HOUR + 5
    # The pod is deleted while Forebay is down: its recorded cost stays.
    it.pods.clear()
    it.begin(2 * HOUR)
    it.update(2 * HOUR, machine())
    assert it.costs(2 * HOUR) == {"ann": Usd("3.605"), "": Usd("3.595")}
    assert it.paid(2 * HOUR) == Usd("3.605")


def test_what_a_deleted_pod_has_paid_survives_the_operator():
    it = Operator()
    it.update(0, machine())
    it.see(running_pod("a", 0), 10)
    it.lose("uid-a", 1000)
    it.update(1000, machine())
    it.store(1000)
    it.begin(1001)
    it.update(2000, machine())
    assert it.costs(2000) == {"ann": Usd("1.00"), "": Usd("1.00")}
    assert it.paid(2000) == Usd("1.00")


def test_a_pod_whose_cost_was_recorded_beyond_its_end_does_not_pay_forever():
    it = Operator()
    it.update(0, machine())
    it.see(running_pod("a", 0), 10)
    it.see(running_pod("b", 0), 10)
    it.lose("uid-b", 1000)
    it.see(running_pod("a", 0, 995), 1005)
    it.update(1005, machine())
    assert it.costs(2000) == {"ann": Usd("1.00"), "": Usd("1.00")}


@pytest.mark.parametrize("steps", [0, 1, 2, 10**9])
def test_costs_beyond_an_end_that_becomes_known_later_are_taken_back_whenever_the_operator_dies(steps):
    it = Operator()
    launched = machine()
    it.update(0, launched)
    it.see(running_pod("a", 0), 10)
    it.update(500, launched)
    it.lose("uid-a", 4000)
    it.store(4000)
    assert it.costs(4000) == {"ann": Usd("4.00")}
    assert it.paid(4000) == Usd("4.00")

    ended = machine(end=3000)
    it.update(5000, ended)
    assert it.costs(5000) == {"ann": Usd("3.00")}
    it.store(5000, steps)
    it.begin(5010)
    it.update(5010, ended)
    assert it.costs(5010) == {"ann": Usd("3.00")}
    assert it.paid(5010) == Usd("3.00")
    assert it.store(5010)
    assert it.bill.is_stored(ended)
    it.begin(5020)
    it.update(5020)
    assert (it.costs(5020), it.paid(5020)) == ({"ann": Usd("3.00")}, Usd("3.00"))


def test_a_budget_created_later_pays_from_then_on():
    it = Operator()
    it.update(0, machine())
    it.see(running_pod("a", 0, labels={"team": "b"}), 10)
    it.update(HOUR, machine())
    late = budget("late", namespace="ann", labels={"team": "b"})
    it.accounts.open(late, at(HOUR + 100), pods=it.pods.values())
    it.bill.budgets_changed({"ann"})
    it.update(HOUR + 100, machine())
    assert it.paid(HOUR + 1000, ("ann", "late")) == Usd("1.00")


def test_a_pod_without_gpus_that_keeps_an_idle_machine_pays_for_it():
    it = Operator()
    launched_for_ann = machine(pods=[running_pod("a", 0)])
    it.see(running_pod("a", 0), 0)
    it.update(0, launched_for_ann)
    it.see(running_pod("a", 0, 1000), 1000)
    squatter = {"namespace": "eve", "annotations": {"keep": "true"}}
    it.see(running_pod("passing", None, gpus=0, namespace="bob"), 1000)
    it.see(running_pod("daemon", None, gpus=0, owner=Owner("DaemonSet", "d", "u"), **squatter), 1000)
    it.update(2000, launched_for_ann)
    it.see(running_pod("squatter", None, gpus=0, **squatter), 2000)
    it.update(3000, launched_for_ann)
    assert it.costs(3000) == {"ann": Usd("2.00"), "eve": Usd("1.00")}
    it.see(running_pod("b", 3000, namespace="bob"), 3000)
    it.see(running_pod("b", 3000, 3500, namespace="bob"), 3500)
    it.update(3500, launched_for_ann)
    it.lose("uid-squatter", 4000)
    it.update(4000, launched_for_ann)
    it.see(running_pod("other", None, gpus=0, **squatter), 4500)
    it.see(running_pod("other", None, gpus=0, namespace="eve"), 5000)
    it.update(5000, launched_for_ann)
    assert it.costs(6000) == {"ann": Usd("3.50"), "bob": Usd("0.50"), "eve": Usd("2.00")}


def test_the_cost_of_a_machine_that_runs_for_months_is_compacted_and_not_billed_again():
    it = Operator()
    it.see(running_pod("a", 0), 0)
    for hour in range(0, 40 * 24, 3):
        it.update(hour * HOUR, machine())
        if hour % 24 == 0:
            it.bill.compact(at(hour * HOUR))
            it.store(hour * HOUR)
            it.begin(hour * HOUR)
            it.update(hour * HOUR, machine())
    end = hour * HOUR
    assert it.costs(end) == {"ann": Usd("3.60") * 24 * 31}
    assert max(len(ledger.chunk_log.chunks) for _, ledger in it.ledgers()) <= 2
    assert len(it.bill.machine_ledger.intervals("uid-gi-1")) == 1


def test_a_damaged_machine_ledger_bills_nothing_twice():
    it = Operator()
    it.update(0, machine())
    it.update(HOUR, machine())
    it.store(HOUR)
    del it.stores[MACHINE_LEDGER]
    it.begin(2 * HOUR)
    it.bill.machine_ledger_damaged = True
    it.update(2 * HOUR, machine())
    assert it.costs(3 * HOUR) == {"": Usd("7.20")}
    # The damage does not keep the record of a machine that was gone before.
    gone = machine("other", end=100)
    it.update(3 * HOUR, machine(), gone)
    assert it.bill.is_stored(gone)


def test_the_ledger_of_a_key_goes_when_it_is_empty():
    it = Operator()
    it.update(0, machine())
    it.update(1000, machine(end=1000))
    it.update(2000)
    it.store(2000)
    for day in (2, 40, 41):
        it.bill.compact(at(day * DAY))
        it.store(day * DAY)
    assert it.bill.ledgers == {}


lives = st.tuples(
    st.sampled_from(("ann", "bob")), st.integers(0, 9000), st.integers(0, 9000), st.integers(1, 8), st.booleans()
)
looks = st.lists(st.tuples(st.integers(0, 10_000), st.one_of(st.none(), st.integers(0, 6))), min_size=1, max_size=8)


@pytest.mark.law
@given(st.lists(lives, max_size=6), looks, st.integers(1, 10_000), st.booleans(), st.sampled_from(("3.60", "0.333")))
def test_the_bill_adds_up_to_the_price_whatever_is_seen_and_lost(held, seen, length, launched_for, price):
    """At each update the operator may die after some of its requests."""
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
                    it.see(running_pod(f"p{number}", start, end, gpus, namespace=namespace), when)
                    it.lose(uid, when)
            elif start <= when and not (deleted and end <= when):
                known.add(uid)
                it.see(running_pod(f"p{number}", start, end if end <= when else None, gpus, namespace=namespace), when)
        last = when == length
        it.update(when, machine(price=price, end=length if last else None, pods=pods[:2] if launched_for else ()))
        if not it.store(when, 10**9 if steps is None else steps):
            crashed = True
            it.begin(when)
    it.begin(length)
    costs = it.costs(20_000)
    total = sum(costs.values(), start=Usd.zero())
    assert total.units == Usd(price).units // HOUR * length
    assert it.paid(20_000) <= total
    if not crashed and not launched_for:
        assert it.paid(20_000) == costs.get("ann", Usd.zero())


def test_an_end_that_no_status_reports_stays_where_it_was_first_seen_until_one_does():
    it = Operator()
    it.update(0, machine())
    it.see(running_pod("a", 0), 0)
    for when in (1000, 1500):
        it.see(running_pod("a", 0, phase=Phase.FAILED), when)
        it.update(when, machine())
    assert it.costs(2000)["ann"] == Usd("1.00")
    it.see(running_pod("a", 0, 1200), 1600)
    it.update(1600, machine())
    assert it.costs(2000)["ann"] == Usd("1.20")
