"""The cost of a GPUInstance."""

from datetime import timedelta
from fractions import Fraction

from forebay.reporting.machines import cost, decimal
from tests.unit.reporting.objects import NOW, S, before, record


def test_the_cost_of_an_instance_is_exact_to_the_second():
    on = record(billed_from=before(seconds=100))
    off = record(state=S.GONE, billed_from=before(hours=2), billed_until=before(hours=2) + timedelta(seconds=7))
    never = record(state=S.REQUESTED, billed_from=None)

    assert cost(on, NOW).dollars == Fraction(180, 3600)
    assert cost(off, NOW).dollars == Fraction("1.80") * 7 / 3600
    assert cost(never, NOW).dollars == 0


def test_the_billed_price_overrides_the_price_of_the_offer():
    assert cost(record(hourly_price="3.60", billed_from=before(seconds=1)), NOW).dollars == Fraction(1, 1000)


def test_decimals_are_rounded_to_a_millionth_and_keep_their_sign():
    assert decimal(Fraction(1, 3)) == "0.333333"
    assert decimal(Fraction(-5, 2)) == "-2.500000"
    assert decimal(Fraction(12345678)) == "12345678.000000"
