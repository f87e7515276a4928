"""Every dollar has one payer at every moment, and all ways of cutting the bill add up."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, PoolRef
from forebay.api.meta import ObjectMeta
from forebay.api.parts import PodRef
from forebay.budgets.accounts import Accounts
from forebay.budgets.dollars import NOBODY, Bill, Payer, Tenant, billed, charge, shares, spending
from forebay.budgets.usage import Piece, microseconds, seconds
from forebay.model.quantities import Usd
from forebay.model.sources import Billing, Delivery
from tests.unit.budgets.scenes import DAY, MICRO, START, Store, at, budget

T0 = seconds(START)
HOUR = 3600
ANN, BOB = Payer("ann", "uid-ann"), Payer("bob", "uid-bob")


def record(name="gi-1", *, price="3.60", start=0, end=None, pods=(), pool="h100", **fields) -> GPUInstance:
    return GPUInstance(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=GPUInstanceSpec(
            provider="webhook",
            delivers=Delivery.NODE,
            pool_ref=None if pool is None else PoolRef(namespace="infra", name=pool),
            node_class_name="cloud",
            hourly_price=price,
            pods=tuple(PodRef(namespace=each.namespace, name=each.uid, uid=each.uid) for each in pods),
        ),
        status=GPUInstanceStatus(
            state=InstanceState.READY,
            billed_from=None if start is None else at(start),
            billed_until=None if end is None else at(end),
            **fields,
        ),
    )


def tenant(payer, start, end, gpus=1):
    return Tenant(payer, Piece(T0 + start, None if end is None else T0 + end, gpus * 1000))


def spent(*bills, when=HOUR, window=None):
    return spending(bills, at(when), window)


def test_a_machine_costs_its_price_from_when_it_is_billed_until_it_is_not():
    assert spent(Bill(record=record(end=1000))).total == Usd("1.00")
    assert spent(Bill(record=record()), when=1000).total == Usd("1.00")
    assert spent(Bill(record=record(start=None))).total == Usd.zero()
    assert spent(Bill(record=record(price=None))).total == Usd.zero()
    assert spent(Bill(record=record(hourly_price="7.20", end=1000))).total == Usd("2.00")


def test_minimum_and_steps_of_billing_are_paid_from_the_first_moment():
    by_the_hour = Billing(minimum=timedelta(hours=1), increment=timedelta(hours=1))
    assert billed(record(), by_the_hour, at(1)) == Piece(T0, T0 + HOUR, 36 * 10**23)
    assert spent(Bill(record=record(), billing=by_the_hour), when=1).total == Usd("3.60")
    assert spent(Bill(record=record(end=HOUR + 1), billing=by_the_hour), when=9 * HOUR).total == Usd("7.20")


def test_what_was_spent_leaves_the_window():
    bill = Bill(record=record(end=HOUR))
    assert spent(bill, when=HOUR + 1800, window=timedelta(hours=1)).total == Usd("1.80")
    assert spent(bill, when=3 * HOUR, window=timedelta(hours=1)).total == Usd.zero()


def test_those_who_hold_the_gpus_pay_by_what_they_hold_and_else_those_it_was_bought_for():
    bill = Bill(
        record=record(end=4000, pods=[ANN]),
        tenants=(tenant(ANN, 1000, 3000, 3), tenant(BOB, 2000, 3000, 1)),
    )
    found = spent(bill, when=9000)
    # Ann: booting, alone, three quarters of the time with Bob, and idling until it was gone.
    assert found.by_namespace == {"ann": Usd("3.75"), "bob": Usd("0.25")}
    assert found.by_pool == {("infra", "h100"): Usd("4.00")}
    assert found.by_class == {"cloud": Usd("4.00")}


def test_what_nobody_asked_for_has_a_line_of_its_own():
    leak = Bill(record=record(end=1000, pool=None))
    found = spent(leak, Bill(record=record("gi-2", end=1000, pods=[BOB])))
    assert found.by_namespace == {"": Usd("1.00"), "bob": Usd("1.00")}
    assert found.by_pool == {("", ""): Usd("1.00"), ("infra", "h100"): Usd("1.00")}
    assert [share.payer for share in shares(leak, at(HOUR))] == [NOBODY]


holders = st.lists(
    st.tuples(
        st.sampled_from(("ann", "bob", "eve")),
        st.integers(-500, 5000),
        st.one_of(st.none(), st.integers(0, 5000)),
        st.integers(1, 8),
    ),
    max_size=6,
)


@pytest.mark.law
@given(holders, st.sampled_from(("1", "0.33", "12.345678")), st.integers(0, 6000), st.booleans(), st.booleans())
def test_every_cut_adds_up_to_the_price_times_the_time(held, price, length, over, bought):
    bill = Bill(
        record=record(price=price, end=length if over else None, pods=[ANN, BOB] if bought else ()),
        tenants=tuple(
            tenant(Payer(name, f"uid-{number}"), start, None if end is None else max(start, end), gpus)
            for number, (name, start, end, gpus) in enumerate(held)
        ),
    )
    found = spent(bill, when=length)
    assert found.total.units == Usd(price).units // HOUR * length
    for cut in (found.by_pool, found.by_class, found.by_namespace):
        assert sum(cut.values(), start=Usd.zero()) == found.total


def takes_ann(payer):
    return payer.namespace == "ann"


def entered(account, when):
    return Usd.from_units(account.money.consumed(microseconds(at(when)), 10 * DAY * MICRO))


def test_a_budget_is_charged_what_its_pods_pay_by_the_clock_and_without_writing():
    account = Accounts().open(budget(), at(0))
    bill = Bill(record=record(pods=[ANN]))
    for when in (10, 100, 1000):
        charge(account, bill, at(when), takes_ann)
    assert entered(account, 1000) == Usd("1.00")
    assert entered(account, 2000) == Usd("2.00")
    assert account.money.shelf.writes(T0) == []


def test_a_budget_is_charged_once_however_often_the_machine_is_looked_at():
    store = Store()
    account = Accounts().open(budget(), at(0))
    stages = [
        (500, Bill(record=record(pods=[ANN]))),
        (1500, Bill(record=record(pods=[ANN]), tenants=(tenant(BOB, 1000, None),))),
        (2500, Bill(record=record(pods=[ANN]), tenants=(tenant(BOB, 1000, 2000), tenant(ANN, 2000, None)))),
        (3500, Bill(record=record(end=3000, pods=[ANN]), tenants=(tenant(BOB, 1000, 2000), tenant(ANN, 2000, 3000)))),
    ]
    for when, bill in stages:
        for _ in range(2):
            charge(account, bill, at(when), takes_ann)
        store.save(account.money, T0 + when)
    assert entered(account, 4000) == Usd("2.00")
    again = Accounts().open(budget(), at(4000), money=store.load())
    charge(again, stages[-1][1], at(4000), takes_ann)
    assert entered(again, 4000) == Usd("2.00")


def test_a_machine_that_is_still_there_is_not_charged_again_when_its_books_are_compacted():
    accounts, store = Accounts(), Store()
    account = accounts.open(budget(), at(0))
    bill = Bill(record=record(pods=[ANN]), tenants=(tenant(ANN, 0, 1000), tenant(BOB, 1000, None)))
    charge(account, bill, at(2000), takes_ann)
    for instances in ({"uid-gi-1"}, ()):
        accounts.compact(at(3 * DAY), {("default", "team-a"): 20 * DAY}, instances)
        if instances:
            charge(account, bill, at(3 * DAY), takes_ann)
        assert entered(account, 3 * DAY) == Usd("1.00")
        store.save(account.money, T0)


@pytest.mark.law
@given(holders, st.lists(st.integers(0, 5000), max_size=6), st.integers(1, 5000))
def test_what_is_charged_in_steps_is_what_is_spent(held, looks, length):
    """However often it is looked at: tenants only end as time passes, and none comes who was not there."""
    account = Accounts().open(budget(), at(0))
    lives = [(name, max(start, 0), max(start, 0) + (end or 0), gpus) for name, start, end, gpus in held]

    def seen(when):
        return tuple(
            tenant(Payer(name, f"uid-{number}"), start, end if end <= when else None, gpus)
            for number, (name, start, end, gpus) in enumerate(lives)
            if start <= when
        )

    for when in [*sorted(look for look in looks if look < length), length, length]:
        last = when == length
        bill = Bill(record=record(end=length if last else None, pods=[ANN]), tenants=seen(when))
        charge(account, bill, at(when), takes_ann)
    true = spent(Bill(record=record(end=length, pods=[ANN]), tenants=seen(length)), when=length)
    assert entered(account, 90_000) == true.by_namespace.get("ann", Usd.zero())
