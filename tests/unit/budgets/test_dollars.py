"""Every dollar has one payer at every moment."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.gpu_instance import InstanceState
from forebay.budgets.bill_shares import NOBODY, Payer, PodStay, RecordedSpend, Share, billed, shares
from forebay.budgets.usage import Piece
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Billing
from tests.unit.budgets.scenes import machine

HOUR = 3600
ANN, BOB = Payer("ann", "uid-ann"), Payer("bob", "uid-bob")
T0 = billed(machine(), Billing()).start


def test_a_machine_costs_its_price_from_when_it_is_billed_until_it_is_not():
    assert billed(machine(end=1000), Billing()) == Piece(T0, T0 + 1000, UsdPerHour("3.60").units)
    assert billed(machine(), Billing()) == Piece(T0, None, UsdPerHour("3.60").units)
    assert billed(machine(hourly_price="7.20"), Billing()).rate == UsdPerHour("7.20").units
    assert billed(machine(start=None), Billing()) is None
    assert billed(machine(price=None), Billing()) is None
    assert billed(machine(price=0), Billing()) is None
    assert billed(machine(price="-1"), Billing()) is None
    assert billed(machine(price="a lot"), Billing()) is None


def test_one_that_is_gone_and_says_no_end_is_billed_until_it_was_gone():
    gone = machine(state=InstanceState.GONE, since=900)
    assert billed(gone, Billing()) == Piece(T0, T0 + 900, UsdPerHour("3.60").units)


def test_the_minimum_and_the_steps_of_billing_are_paid_beyond_the_end():
    by_the_hour = Billing(minimum=timedelta(hours=1), increment=timedelta(hours=1))
    assert billed(machine(end=1), by_the_hour).end == T0 + HOUR
    assert billed(machine(end=HOUR + 1), by_the_hour).end == T0 + 2 * HOUR
    assert billed(machine(), by_the_hour).end is None


def test_those_who_hold_the_gpus_pay_by_what_they_hold_and_else_those_it_was_bought_for():
    held = [PodStay(ANN, Piece(100, 300, 3)), PodStay(BOB, Piece(200, 300, 1))]
    assert list(shares(Piece(0, 400, 8), held, [ANN])) == [
        Share(ANN, Piece(0, 100, 8)),
        Share(ANN, Piece(100, 200, 8)),
        Share(ANN, Piece(200, 300, 6)),
        Share(BOB, Piece(200, 300, 2)),
        Share(ANN, Piece(300, 400, 8)),
    ]


def test_what_goes_on_has_no_end():
    assert list(shares(Piece(0, None, 8), [PodStay(BOB, Piece(100, None, 1))])) == [
        Share(NOBODY, Piece(0, 100, 8)),
        Share(BOB, Piece(100, None, 8)),
    ]


def test_of_what_some_have_entered_only_the_rest_is_shared_and_by_the_others():
    held = [PodStay(ANN, Piece(0, 300, 1)), PodStay(BOB, Piece(0, 300, 1))]
    entered = [RecordedSpend("ann", Piece(0, 100, 5)), RecordedSpend("ann", Piece(100, 200, 8))]
    assert list(shares(Piece(0, 300, 8), held, [], entered)) == [
        Share(BOB, Piece(0, 100, 3)),
        Share(ANN, Piece(200, 300, 4)),
        Share(BOB, Piece(200, 300, 4)),
    ]
    assert list(shares(Piece(0, 100, 8), held[:1], [ANN], entered)) == [Share(NOBODY, Piece(0, 100, 3))]


moments = st.integers(-10, 60)
lives = st.tuples(moments, st.one_of(st.none(), st.integers(0, 40)), st.integers(1, 8))


@pytest.mark.law
@given(st.lists(st.tuples(st.sampled_from("abc"), lives), max_size=6), st.integers(1, 10**26), st.integers(0, 50))
def test_at_every_moment_the_shares_are_the_price(held, price, length):
    pods_by_node = [
        PodStay(Payer(name, str(number)), Piece(start, None if span is None else start + span, gpus))
        for number, (name, (start, span, gpus)) in enumerate(held)
    ]
    found = list(shares(Piece(0, length, price), pods_by_node, [ANN]))
    for second in range(length):
        assert sum(rate for _, (start, end, rate) in found if start <= second < end) == price
