"""Quantities, against apimachinery's own cases."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.quantities import Format, InvalidQuantity, Quantity

SI, BINARY, EXPONENT = Format.DECIMAL_SI, Format.BINARY_SI, Format.DECIMAL_EXPONENT

PARSED = [
    ("0", "0", SI),
    ("0n", "0", SI),
    ("0Ki", "0", BINARY),
    ("1", "1", SI),
    ("1Ki", "1024", BINARY),
    ("7Mi", str(7 * 2**20), BINARY),
    ("6Gi", str(6 * 2**30), BINARY),
    ("3Ei", str(3 * 2**60), BINARY),
    ("5n", "0.000000005", SI),
    ("4u", "0.000004", SI),
    ("3m", "0.003", SI),
    ("50k", "50000", SI),
    ("300T", "3e14", SI),
    ("1E", "1e18", SI),
    ("12E", "12e18", SI),
    ("1E-3", "0.001", EXPONENT),
    ("1e3", "1000", EXPONENT),
    ("1E18", "1e18", EXPONENT),
    ("100.035k", "100035", SI),
    ("0.0005k", "0.5", SI),
    ("0.50000", "0.5", SI),
    ("0.5e-2", "0.005", EXPONENT),
    ("1.3E+6", "1300000", EXPONENT),
    ("1.01E", "1.01e18", SI),
    # rounded away from zero at the nano
    ("3.001n", "4e-9", SI),
    ("1.1E-9", "2e-9", EXPONENT),
    ("0.0000000001", "1e-9", SI),
    ("0.00000012345", "124e-9", SI),
    ("1e-999999", "1e-9", EXPONENT),
    # capped, but only where the suffix is binary
    ("9Ei", str(2**63 - 1), BINARY),
    ("9223372036854775807Ki", str(2**63 - 1), BINARY),
    ("18446744073709551616", "18446744073709551616", SI),
    # fractions of binary units
    ("100.035Ki", "102435.84", BINARY),
    ("0.5Mi", str(2**19), BINARY),
    ("0.025Ti", "27487790694.4", BINARY),
    ("0.000000000001Ki", "2e-9", SI),
    # written by trolls
    (".001", "0.001", SI),
    (".0001k", "0.1", SI),
    ("1.", "1", SI),
    ("1.G", "1e9", SI),
    ("007", "7", SI),
    ("Ki", "0", BINARY),
    (".", "0", SI),
]


@pytest.mark.parametrize("sign", ["", "+", "-"], ids=["plain", "plus", "minus"])
@pytest.mark.parametrize(("text", "number", "notation"), PARSED, ids=[case[0] for case in PARSED])
def test_a_quantity_means_what_apimachinery_says_it_means(sign, text, number, notation):
    quantity = Quantity.parse(sign + text)

    assert quantity.nano == Decimal(sign + number).scaleb(9)
    assert quantity.format is notation


INVALID = ["", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-", " 1", "1 ", "1\n", "1_0"]
INVALID += [
    "1e2e",
    "1KiKi",
    "\N{ARABIC-INDIC DIGIT ONE}",
    "9" * 4001,
    "1e9223372036854775808",
    "1e-" + "9" * 5000,
    "0x10",
    "1,5",
    "NaN",
    "inf",
    "--1",
    "Pi",
    "-.e-12",
]


#: The API server admits these. Go keeps 64 bits of an exponent, then 32.
ENORMOUS = [
    "1e101",
    "1e104",
    "9" * 300,
    "9" * 4000,
    "0." + "1" * 300 + "e200",
    "1e4294967398",
    "1" + "0" * 9000,
    "1e999999999",
]


@pytest.mark.parametrize("text", ENORMOUS, ids=lambda text: text[:20])
def test_whatever_the_api_server_admits_is_read_however_large(text):
    assert Quantity.parse(text).nano > Quantity.parse("1e100").nano


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e4294967296", "1"),
        ("1e1000000000000000000", "1n"),
        ("1e-999999999", "1n"),
        ("0e999999999", "0"),
        ("." + "0" * 9000 + "1Ki", "1n"),
    ],
    ids=lambda text: text[:20],
)
def test_exponents_and_decimals_without_end_are_read_as_apimachinery_reads_them(text, number):
    assert Quantity.parse(text) == Quantity.parse(number)


@pytest.mark.parametrize("text", INVALID)
def test_what_is_not_a_quantity_is_refused_in_a_sentence(text):
    with pytest.raises(InvalidQuantity, match=r'^".*(\n)?" is not a Kubernetes quantity: .+'):
        Quantity.parse(text)


def test_the_refusal_carries_the_words_of_the_api_server():
    with pytest.raises(InvalidQuantity) as refused:
        Quantity.parse("1x")
    assert refused.value.reason.startswith("quantities must match the regular expression")
    with pytest.raises(InvalidQuantity) as refused:
        Quantity.parse("0.1mi")
    assert refused.value.reason == "unable to parse quantity's suffix"


@pytest.mark.parametrize("number", [0.5, True, None, Decimal(1)])
def test_a_float_is_refused_for_it_has_already_lost_digits(number):
    with pytest.raises(TypeError, match="parsed from text or an integer"):
        Quantity.parse(number)


CANONICAL = [
    ("1024Mi", "1Gi"),
    ("307200Ki", "300Mi"),
    ("1025024Mi", "1001Gi"),
    ("1.5Gi", "1536Mi"),
    ("1024Gi", "1Ti"),
    ("1025Ki", "1025Ki"),
    ("1Ki", "1Ki"),
    (".001Ki", "1024m"),
    (".000000001Ki", "1024n"),
    (".000000000001Ki", "2n"),
    ("0.1Ki", "102400m"),
    ("5000m", "5"),
    ("0.5", "500m"),
    ("100m", "100m"),
    ("1000M", "1G"),
    ("0.001T", "1G"),
    ("1000u", "1m"),
    ("1.08", "1080m"),
    ("1080000000n", "1080m"),
    ("1000E", "1e21"),
    (".001e12", "1e9"),
    ("0.001e0", "1e-3"),
    ("1000e-12", "1e-9"),
    ("1e3", "1e3"),
    ("1000e0", "1e3"),
    ("100e1", "1e3"),
    ("00", "0"),
    ("1234", "1234"),
    ("1234000", "1234k"),
    ("9Ei", "9223372036854775807"),
]


@pytest.mark.parametrize("sign", ["", "-"], ids=["plain", "minus"])
@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_the_canonical_form_has_no_fraction_and_the_largest_suffix(sign, text, canonical):
    assert str(Quantity.parse(sign + text)) == (sign + canonical if canonical != "0" else "0")


@pytest.mark.parametrize("text", ["1.500", "+1", "1E6", "+12Ki", "012Ki"])
def test_text_that_looks_canonical_at_a_glance_is_shown_as_it_was_written(text):
    """apimachinery's glance is cursory, and the API server returns what it let through."""
    assert str(Quantity.parse(text)) == text
    assert Quantity.parse(Quantity.parse(text).canonical()) == Quantity.parse(text)


def test_sums_keep_the_notation_of_the_first_that_is_not_zero():
    nothing, memory, cpu = Quantity.parse("0"), Quantity.parse("1Gi"), Quantity.parse("100m")

    assert str(nothing + memory) == str(memory + nothing) == "1Gi"
    assert str(nothing - cpu) == "-100m"
    assert str(memory + memory) == "2Gi"
    assert str(cpu + Quantity.parse("0.9")) == "1"
    assert str(sum([memory, memory, memory], start=Quantity.zero())) == "3Gi"


def test_quantities_compare_by_number_whatever_their_notation():
    assert Quantity.parse("1Ki") == Quantity.parse("1024") == Quantity.parse("1.024k")
    assert len({Quantity.parse("1Ki"), Quantity.parse("1024")}) == 1
    assert Quantity.parse("10000T") > Quantity.parse("100Gi") >= Quantity.parse("100Gi") > Quantity.parse("-1")


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [("9.01", 10, 9010), ("-9.01", -10, -9010), ("1n", 1, 1), ("-1n", -1, -1), ("2", 2, 2000), ("0", 0, 0)],
)
def test_whole_units_and_millis_round_away_from_zero(text, value, milli):
    assert Quantity.parse(text).value == value
    assert Quantity.parse(text).milli == milli


SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3", "e+6"]
NUMBERS = st.from_regex(r"[+-]?[0-9]{1,12}(\.[0-9]{0,12})?", fullmatch=True)
TEXTS = st.builds(str.__add__, NUMBERS, st.sampled_from(SUFFIXES))


@pytest.mark.law
@given(TEXTS)
def test_what_is_written_is_read_back_the_same(text):
    quantity = Quantity.parse(text)

    assert Quantity.parse(str(quantity)) == quantity
    assert Quantity.parse(quantity.canonical()) == quantity
    assert Quantity.parse(quantity.canonical()).canonical() == quantity.canonical()


@pytest.mark.law
@given(st.from_regex(r"[+-]?[0-9]{1,30}(\.[0-9]{1,9})?", fullmatch=True))
def test_plain_decimals_are_exact(text):
    assert Fraction(Quantity.parse(text).nano, 10**9) == Fraction(text)


@pytest.mark.law
@given(TEXTS, TEXTS)
def test_sums_and_order_are_those_of_the_numbers(one, other):
    a, b = Quantity.parse(one), Quantity.parse(other)

    assert (a + b).nano == a.nano + b.nano
    assert (a + b) - b == a
    assert (a < b) is (a.nano < b.nano)


def test_a_sum_of_binary_quantities_gets_a_suffix_from_1024_on():
    half = Quantity.parse("0.5Ki")
    assert (half + half).canonical() == "1Ki"
    assert half.canonical() == "512"


@pytest.mark.parametrize("exponent", [2**31 - 1, 2**31])
def test_an_exponent_beyond_32_bits_turns_around_as_in_go(exponent):
    # From there on it is a very large negative one: the smallest amount there is.
    assert (Quantity.parse(f"1e{exponent}") == Quantity.parse("1n")) is (exponent >= 2**31)


@pytest.mark.parametrize(
    ("suffix", "times"),
    [(suffix, 1024**power) for power, suffix in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], start=1)]
    + [(suffix, 1000**power) for power, suffix in enumerate(["k", "M", "G", "T", "P", "E"], start=1)],
)
def test_every_suffix_is_the_next_power(suffix, times):
    assert Quantity.parse(f"3{suffix}").value == 3 * times
    assert str(Quantity.parse(f"3{suffix}")) == f"3{suffix}"
    assert Quantity.parse(f"7{suffix}").canonical() == f"7{suffix}"


def test_nothing_is_subtracted_in_the_notation_of_what_is_left():
    nothing, memory, cpu = Quantity.parse("0"), Quantity.parse("1Gi"), Quantity.parse("100m")

    assert (nothing - memory).format is BINARY
    assert (cpu - memory).format is SI
    assert (-memory).format is BINARY
    with pytest.raises(TypeError):
        memory + 1
    with pytest.raises(TypeError):
        memory - 1


@pytest.mark.parametrize(
    ("text", "nano"),
    [("9999999999999999999Ki", 2**63 - 1), ("8Ei", 2**63 - 1), ("7Ei", 7 * 2**60), ("0." + "0" * 99 + "1Ki", None)],
    ids=["digits", "capped", "below", "small"],
)
def test_binary_amounts_end_at_64_bits_and_begin_at_a_nano(text, nano):
    assert Quantity.parse(text).nano == (1 if nano is None else nano * 10**9)


def test_a_number_of_as_many_digits_as_there_may_be_is_read_exactly():
    # In billionths: 4000 digits.
    assert Quantity.parse("1e3990").nano == 10**3999
    assert Quantity.parse("1e3991").nano > 10**4000


def test_a_number_with_thousands_of_digits_is_named_in_part():
    with pytest.raises(InvalidQuantity) as refused:
        Quantity.parse("1" * 4001)

    assert str(refused.value) == f'"{"1" * 40}..." is not a Kubernetes quantity: more than 4000 digits'


def test_an_integer_is_a_quantity_of_so_many_units():
    for number in (0, 7, -7, 2**63):
        assert Quantity.parse(number) == Quantity.parse(str(number))
