from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.encoding import dec_hook, enc_hook
from forebay.model.quantities import GpuHours, Gpus, Quantity, Resources, Usd, UsdPerHour

HOUR = timedelta(hours=1)


def test_gpus_held_for_a_time_are_gpu_hours():
    assert Gpus(8) * timedelta(minutes=30) == GpuHours.parse(4)
    assert timedelta(minutes=30) * Gpus(8) == GpuHours.parse("4")
    assert Gpus(3) * timedelta(microseconds=1) == GpuHours.from_microseconds(3)


def test_a_third_of_an_hour_three_times_is_an_hour():
    third = Gpus(1) * timedelta(minutes=20)

    assert third + third + third == third * 3 == GpuHours.parse(1)
    assert third / GpuHours.parse(1) == Fraction(1, 3)
    assert str(third) == "0.333 GPU-h"
    assert third.quantity() == "333m"


@pytest.mark.parametrize(
    ("text", "quantity"), [("1.5", "1500m"), ("100", "100"), ("0", "0"), ("1500m", "1500m"), ("0.0004", "0")]
)
def test_gpu_hours_are_read_exactly_and_shown_to_the_thousandth(text, quantity):
    hours = GpuHours.parse(text)

    assert hours.hours == Fraction(Quantity.parse(text).nano, 10**9)
    assert hours.quantity() == quantity


def test_gpu_hours_may_be_shown_finer_and_thousandths_of_a_gpu_are_exact():
    assert GpuHours.parse("1").quantity(10**6) == "1"
    assert (Gpus(1) * timedelta(seconds=150)).quantity(10**6) == "41667u"
    milli = GpuHours.from_units(1)
    assert milli * 1000 == GpuHours.from_microseconds(1)
    assert GpuHours.from_exact(milli.exact()) == milli
    assert GpuHours.from_units(GpuHours.parse("1n").units) == GpuHours.parse("1n")
    assert Usd.from_units(UsdPerHour("2.49").units * 3600 * 10**6) == Usd("2.49")


def test_a_price_times_a_duration_is_exact():
    price = UsdPerHour("2.49")

    assert price * HOUR == Usd("2.49")
    assert price * timedelta(seconds=1) * 3600 == Usd("2.49")
    assert sum([price * timedelta(microseconds=1)] * 7, start=Usd.zero()) == price * timedelta(microseconds=7)
    assert price * 8 * HOUR == Usd("19.92")


def test_any_price_a_json_double_can_say_is_taken_exactly():
    price = UsdPerHour(Decimal(repr(0.20138888888888887)))

    assert price.exact() == "0.20138888888888887"
    assert price.amount == Decimal("0.20138888888888887")
    assert str(price) == "$0.2014/h"


@pytest.mark.parametrize(
    ("amount", "money", "price"),
    [
        ("1.234", "$1.23", "$1.234/h"),
        ("0.0042", "$0.0042", "$0.0042/h"),
        ("0.009", "$0.009", "$0.009/h"),
        ("0.01", "$0.01", "$0.01/h"),
        ("0.00001234", "$0.000012", "$0.000012/h"),
        ("1234567.5", "$1,234,567.50", "$1,234,567.50/h"),
        ("0", "$0.00", "$0.00/h"),
        ("3", "$3.00", "$3.00/h"),
        ("-0.5", "-$0.50", "-$0.50/h"),
        ("2.345", "$2.34", "$2.345/h"),
        ("1e-7", "$0.0000001", "$0.0000001/h"),
    ],
)
def test_money_is_shown_in_cents_and_prices_a_little_finer(amount, money, price):
    assert str(Usd(amount)) == money
    assert str(UsdPerHour(amount)) == price


@pytest.mark.parametrize("kind", [Usd, UsdPerHour])
@pytest.mark.parametrize("amount", [0.1, True, None, Fraction(1, 3)])
def test_money_is_never_made_from_a_float(kind, amount):
    with pytest.raises(TypeError, match="made from text, Decimal or int"):
        kind(amount)


@pytest.mark.parametrize("kind", [Usd, UsdPerHour])
@pytest.mark.parametrize(
    "amount", ["", "free", "1,50", "1_0", " 1", "1/3", "NaN", "Infinity", Decimal("NaN"), "1e999", "0." + "1" * 25]
)
def test_what_is_not_an_amount_is_refused(kind, amount):
    with pytest.raises(ValueError, match=r"in dollars|decimals"):
        kind(amount)


AMOUNTS = {"usd": Usd(1), "price": UsdPerHour(1), "hours": GpuHours.parse(1), "gpus": Gpus(1), "number": 1}


@pytest.mark.parametrize("one", AMOUNTS)
@pytest.mark.parametrize("other", AMOUNTS)
def test_amounts_of_different_units_cannot_be_mixed(one, other):
    if one == other:
        return
    a, b = AMOUNTS[one], AMOUNTS[other]
    with pytest.raises(TypeError):
        a + b
    with pytest.raises(TypeError):
        a - b
    with pytest.raises(TypeError):
        a < b  # noqa: B015 (the comparison is what fails)
    assert a != b


@pytest.mark.parametrize(
    ("product", "by"),
    [(Usd(1), HOUR), (Usd(1), Usd(1)), (GpuHours.parse(1), HOUR), (Gpus(1), 2), (UsdPerHour(1), 1.5), (Gpus(1), 1.0)],
)
def test_products_that_mean_nothing_do_not_exist(product, by):
    with pytest.raises(TypeError):
        product * by


def test_half_a_gpu_is_no_gpu():
    with pytest.raises(TypeError, match="whole ones"):
        Gpus(0.5)
    assert str(Gpus(1)) == "1 GPU"
    assert str(Gpus(8)) == "8 GPUs"
    assert int(Gpus(8)) == 8


class Ledger(msgspec.Struct):
    spent: Usd
    price: UsdPerHour
    used: GpuHours
    gpus: Gpus
    quota: Quantity
    free: Resources


DURATIONS = st.timedeltas(timedelta(0), timedelta(days=400))
PRICES = st.decimals(0, 1000, places=6).map(UsdPerHour)


@pytest.mark.law
@given(PRICES, DURATIONS, st.integers(0, 1024))
def test_everything_that_is_stored_comes_back_exactly(price, duration, gpus):
    before = Ledger(
        spent=price * duration,
        price=price,
        used=Gpus(gpus) * duration,
        gpus=Gpus(gpus),
        quota=Quantity.parse("1.5Gi"),
        free=Resources({"cpu": 500, "nvidia.com/gpu": gpus}),
    )
    stored = msgspec.json.encode(before, enc_hook=enc_hook)

    assert msgspec.json.decode(stored, type=Ledger, dec_hook=dec_hook) == before


@pytest.mark.law
@given(PRICES, DURATIONS, DURATIONS, st.integers(0, 1024))
def test_a_duration_cut_in_two_costs_the_same(price, first, second, gpus):
    assert price * first + price * second == price * (first + second)
    assert Gpus(gpus) * first + Gpus(gpus) * second == Gpus(gpus) * (first + second)


def test_only_what_has_a_stored_form_is_stored():
    with pytest.raises(NotImplementedError, match="object has no stored form"):
        msgspec.json.encode(object(), enc_hook=enc_hook)
    with pytest.raises(NotImplementedError, match="object has no stored form"):
        dec_hook(object, "1")
    with pytest.raises(ValueError, match="finer than what is counted"):
        GpuHours.from_exact("1/7")


def test_a_quota_larger_than_anything_is_no_limit_but_a_number_that_a_status_can_show():
    quota = GpuHours.parse("1e104")

    assert quota == GpuHours.parse("1e999999999") > GpuHours.parse("1e17")
    assert len((quota - GpuHours.parse("43m")).quantity()) < 64


def test_a_duration_of_gpus_is_shown_with_as_many_decimals_as_it_needs():
    assert str(GpuHours.zero()) == "0 GPU-h"
    assert str(GpuHours.parse("0.0005")) == "0.0005 GPU-h"
    assert GpuHours.parse("0.0000004").decimals() == "0.0000004"
    assert GpuHours.parse("-0.00001").decimals() == "-0.00001"
    assert GpuHours.parse("2.5").decimals() == "2.5"


def test_an_amount_may_have_24_digits_and_24_decimals_and_no_more():
    assert Usd("9" * 25).dollars == int("9" * 25)
    with pytest.raises(ValueError, match="is not an amount of money in dollars"):
        Usd("9" * 26)
    assert UsdPerHour("0." + "0" * 23 + "1").units == 1
    with pytest.raises(ValueError, match="more than 24 decimals"):
        UsdPerHour("0." + "0" * 24 + "1")


def test_a_quota_beyond_what_any_cluster_uses_is_cut():
    assert GpuHours.parse("1e18") == GpuHours.parse("1e30")
    assert GpuHours.parse("999999999999999999") < GpuHours.parse("1e18")


def test_dollars_in_a_status_have_six_decimals():
    assert Usd("1.23456789").decimals() == "1.234568"
    assert Usd("2").decimals() == "2"
    assert Usd("1.5").decimals(2) == "1.5"


def test_amounts_of_one_unit_are_ordered_and_have_a_sign():
    assert Usd(1) < Usd(2) <= Usd(2)
    assert Usd(2) > Usd(1) >= Usd(1)
    assert not Usd(2) < Usd(2)
    assert not Usd(2) > Usd(2)
    assert -Usd(2) == Usd(-2)
    assert bool(Usd(1))
    assert not Usd(0)
    assert Usd(1) / Usd(4) == Fraction(1, 4)
