"""Every dollar has one payer at every moment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.gpu_instance import InstanceState
from forebay.api.instance_order import BillingTerms
from forebay.budgets.bill_shares import UNALLOCATED, Payer, PodUse, RecordedCost, Share, billed, shares
from forebay.budgets.usage import Interval
from forebay.model.quantities import UsdPerHour
from tests.unit.budgets.factories import machine

HOUR = 3600
ANN, BOB = Payer("ann", "uid-ann"), Payer("bob", "uid-bob")
T0 = billed(machine()).start


def test_a_machine_costs_its_price_from_when_it_is_billed_until_it_is_not():
    assert billed(machine(end=1000)) == Interval(T0, T0 + 1000, UsdPerHour("3.60").units)
    assert billed(machine()) == Interval(T0, None, UsdPerHour("3.60").units)
    assert billed(machine(hourly_price="7.20")).rate == UsdPerHour("7.20").units
    assert billed(machine(start=None)) is None
    assert billed(machine(price=None)) is None
    assert billed(machine(price=0)) is None
    assert billed(machine(price="-1")) is None
    assert billed(machine(price="a lot")) is None


def test_a_machine_in_state_gone_without_an_end_is_billed_until_it_was_gone():
    gone = machine(state=InstanceState.GONE, since=900)
    assert billed(gone) == Interval(T0, T0 + 900, UsdPerHour("3.60").units)


def test_minimum_and_increment_of_billing_are_paid_beyond_the_end():
    by_the_hour = BillingTerms(minimum="1h", increment="1h")
    assert billed(machine(end=1, billing=by_the_hour)).end == T0 + HOUR
    assert billed(machine(end=HOUR + 1, billing=by_the_hour)).end == T0 + 2 * HOUR
    assert billed(machine(billing=by_the_hour)).end is None
    assert billed(machine(end=1, billing=BillingTerms(minimum="90s"))).end == T0 + 90


def test_pods_pay_in_proportion_to_the_gpus_they_hold_and_else_those_the_machine_was_launched_for():
    held = [PodUse(ANN, Interval(100, 300, 3)), PodUse(BOB, Interval(200, 300, 1))]
    assert list(shares(Interval(0, 400, 8), held, [ANN])) == [
        Share(ANN, Interval(0, 100, 8)),
        Share(ANN, Interval(100, 200, 8)),
        Share(ANN, Interval(200, 300, 6)),
        Share(BOB, Interval(200, 300, 2)),
        Share(ANN, Interval(300, 400, 8)),
    ]


def test_the_share_of_a_running_pod_has_no_end():
    assert list(shares(Interval(0, None, 8), [PodUse(BOB, Interval(100, None, 1))])) == [
        Share(UNALLOCATED, Interval(0, 100, 8)),
        Share(BOB, Interval(100, None, 8)),
    ]


def test_where_some_costs_are_recorded_only_the_rest_is_shared_by_the_others():
    held = [PodUse(ANN, Interval(0, 300, 1)), PodUse(BOB, Interval(0, 300, 1))]
    recorded = [RecordedCost("ann", Interval(0, 100, 5)), RecordedCost("ann", Interval(100, 200, 8))]
    assert list(shares(Interval(0, 300, 8), held, [], recorded)) == [
        Share(BOB, Interval(0, 100, 3)),
        Share(ANN, Interval(200, 300, 4)),
        Share(BOB, Interval(200, 300, 4)),
    ]
    nearly_all = [RecordedCost("ann", Interval(0, 100, 7))]
    assert list(shares(Interval(0, 100, 8), held, [], nearly_all)) == [Share(BOB, Interval(0, 100, 1))]
    assert list(shares(Interval(0, 100, 8), held[:1], [ANN], recorded)) == [Share(UNALLOCATED, Interval(0, 100, 3))]


moments = st.integers(-10, 60)
lives = st.tuples(moments, st.one_of(st.none(), st.integers(0, 40)), st.integers(1, 8))


@pytest.mark.law
@given(st.lists(st.tuples(st.sampled_from("abc"), lives), max_size=6), st.integers(1, 10**26), st.integers(0, 50))
def test_at_every_moment_the_shares_are_the_price(held, price, length):
    uses = [
        PodUse(Payer(name, str(number)), Interval(start, None if span is None else start + span, gpus))
        for number, (name, (start, span, gpus)) in enumerate(held)
    ]
    found = list(shares(Interval(0, length, price), uses, [ANN]))
    for second in range(length):
        assert sum(rate for _, (start, end, rate) in found if start <= second < end) == price
