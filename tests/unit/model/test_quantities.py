import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.quantities import Gpus, InvalidQuantity, Resources


def test_cpu_is_counted_in_millicores_and_the_rest_in_whole_units_rounded_up():
    parsed = Resources.parse({"cpu": "1.5", "memory": "1.1Ki", "nvidia.com/gpu": 8, "ephemeral-storage": "100m"})

    assert dict(parsed) == {"cpu": 1500, "memory": 1127, "nvidia.com/gpu": 8, "ephemeral-storage": 1}
    assert Resources.parse({"cpu": "0.1m"}) == Resources({"cpu": 1})


def test_a_resource_of_amount_0_is_not_listed():
    assert Resources({"cpu": 0, "memory": 1}) == Resources({"memory": 1})
    assert Resources({"cpu": 0}).amount("cpu") == 0
    assert not Resources({"cpu": 0})
    assert "cpu" not in Resources({"cpu": 1}) - Resources({"cpu": 1})


def test_a_broken_quantity_is_named():
    with pytest.raises(InvalidQuantity, match='"lots" is not a Kubernetes quantity'):
        Resources.parse({"cpu": "lots"})


def test_gpus_of_every_vendor_count_unless_the_names_are_given():
    mixed = Resources({"nvidia.com/gpu": 4, "amd.com/gpu": 2, "nvidia.com/mig-1g.5gb": 7, "cpu": 1000})

    assert mixed.gpus() == Gpus(6)
    assert mixed.gpus({"nvidia.com/gpu"}) == Gpus(4)
    assert mixed.gpus({"nvidia.com/mig-1g.5gb", "none.of/these"}) == Gpus(7)


def test_a_request_fits_if_there_is_enough_of_everything():
    free = Resources({"cpu": 1000, "memory": -5, "pods": 1})

    assert Resources({"cpu": 1000, "pods": 1}).fits_within(free), "over-committed memory is not asked for"
    assert not Resources({"cpu": 1001}).fits_within(free)
    assert not Resources({"memory": 1}).fits_within(free)
    assert not Resources({"nvidia.com/gpu": 1}).fits_within(free)
    assert Resources({"cpu": 1001, "nvidia.com/gpu": 1, "pods": 1}).short_of(free) == ["cpu", "nvidia.com/gpu"]


NAMES = st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "pods"])
RESOURCES = st.dictionaries(NAMES, st.integers(0, 100)).map(Resources)


@pytest.mark.law
@given(RESOURCES, RESOURCES, RESOURCES)
def test_resources_add_up(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b) - b == a
    assert a + a + a == 3 * a
    assert hash(a + b) == hash(b + a)
    assert a.max(b) == b.max(a)
    assert a.max(a) == a


@pytest.mark.law
@given(RESOURCES, RESOURCES)
def test_what_fits_leaves_nothing_over_committed_and_what_does_not_says_what_is_short(request, free):
    left = free - request

    assert request.fits_within(free) is all(amount >= 0 for amount in left.values())
    assert request.fits_within(free) is (request.short_of(free) == [])
    assert request.fits_within(free.max(request))
    assert sorted(name for name, amount in left.items() if amount < 0) == request.short_of(free)


@pytest.mark.parametrize(
    ("written", "gpus"),
    [("9223372036854775807", 2**63 - 1), ("18446744073709551624", 8), ("1e30", 0), ("1e104", 0), ("1e999999999", 0)],
)
def test_an_amount_beyond_64_bits_is_what_scheduler_and_kubelet_take_it_for(written, gpus):
    # As apimachinery 0.36.4 printed them: `Value()` of these quantities.
    assert Resources.parse({"nvidia.com/gpu": written}).amount("nvidia.com/gpu") == gpus


def test_amounts_are_subtracted_by_name_and_may_be_over_committed():
    left = Resources({"cpu": 1000, "pods": 3}) - Resources({"cpu": 1500, "memory": 7, "pods": 1})

    assert dict(left) == {"cpu": -500, "memory": -7, "pods": 2}
    assert dict(Resources({"cpu": 1}) * 3) == {"cpu": 3}
    with pytest.raises(TypeError):
        Resources({"cpu": 1}) * True
    with pytest.raises(TypeError):
        Resources({"cpu": 1}) - {"cpu": 1}
    with pytest.raises(TypeError):
        Resources({"cpu": 1}) + {"cpu": 1}
    assert Resources({"cpu": 1}) != {"cpu": 1}


def test_a_slice_of_a_gpu_is_a_gpu_where_those_of_its_maker_count():
    mig = Resources({"nvidia.com/mig-1g.5gb": 1})

    assert mig.any_gpu()
    assert (mig + Resources({"cpu": 1000})).any_gpu(), "whatever else there is"
    assert mig.any_gpu({"nvidia.com/gpu"})
    assert not mig.any_gpu({"amd.com/gpu"})
    assert not (Resources() - mig).any_gpu()
    assert not Resources({"cpu": 9}).any_gpu()
    assert Resources({"amd.com/gpu": 1}).any_gpu({"amd.com/gpu"})
    assert not Resources({"amd.com/gpu": 1}).any_gpu({"nvidia.com/gpu"})


@pytest.mark.parametrize(
    ("amount", "taken"),
    [
        (2**63 - 1, 2**63 - 1),
        (2**63, 0),
        (2**64 + 8, 8),
        (2**64 + 2**63 - 1, 2**63 - 1),
        (10**21, 0),
        (12345678901234567890 * 10**9, 12345678901234567890 * 10**9 % 2**64),
        (-(2**63) + 1, -(2**63) + 1),
    ],
)
def test_whole_numbers_beyond_64_bits_keep_the_low_ones(amount, taken):
    assert Resources.from_nano({"pods": amount * 10**9}).amount("pods") == taken
