"""Collections that stay the same while nothing in them changes, and answers that are kept with them."""

import pytest

from forebay.model.kept import KeptMapping, KeptTuple, among, kept, kept_mapping, kept_tuple

ASKED: list[object] = []


def is_even(number):
    ASKED.append(number)
    return number % 2 == 0


@kept
def total(numbers, factors):
    ASKED.append("total")
    return sum(factors[each] * each for each in numbers)


@pytest.fixture(autouse=True)
def nothing_asked_yet():
    ASKED.clear()


def test_the_objects_of_a_kept_tuple_are_asked_once():
    numbers = KeptTuple((1, 2, 4))
    assert among(numbers, is_even) == (2, 4)
    assert among(numbers, is_even) is among(numbers, is_even)
    assert ASKED == [1, 2, 4]


def test_the_objects_of_any_other_collection_are_asked_each_time():
    assert among([1, 2], is_even) == among((1, 2), is_even) == (2,)
    assert ASKED == [1, 2, 1, 2]


def test_an_answer_is_kept_for_as_long_as_the_other_arguments_are_the_same_objects():
    numbers, factors = KeptTuple((1, 2)), KeptMapping({1: 10, 2: 100})
    assert total(numbers, factors) == total(numbers, factors) == 210
    assert ASKED == ["total"]
    assert total(numbers, KeptMapping(factors)) == 210
    assert ASKED == ["total", "total"]
    assert total(KeptTuple(numbers), factors) == 210
    assert ASKED == ["total", "total", "total"]


def test_no_answer_is_kept_that_follows_from_something_that_may_change():
    numbers, factors = KeptTuple((1, 2)), {1: 10, 2: 100}
    assert total(numbers, factors) == 210
    factors[1] = 0
    assert total(numbers, factors) == 200


def test_a_kept_mapping_cannot_be_written():
    mapping = KeptMapping({1: 10})
    for write in (
        lambda: mapping.update({2: 3}),
        lambda: mapping.__setitem__(2, 3),
        lambda: mapping.__delitem__(1),
        lambda: mapping.setdefault(2, 3),
        lambda: mapping.pop(1),
        mapping.popitem,
        mapping.clear,
    ):
        with pytest.raises(TypeError, match="never changes"):
            write()
    assert mapping == {1: 10}


def test_a_collection_stays_the_same_object_only_while_its_objects_do_and_their_order():
    one, two, equal = [1], [2], [1]
    before = kept_tuple((), (one, two))
    assert kept_tuple(before, [one, two]) is before
    assert kept_tuple(before, [equal, two]) is not before
    assert kept_tuple(before, [two, one]) == ([2], [1])
    assert kept_tuple((one, two), (one, two)) is not before

    mapping = kept_mapping({}, {"a": one, "b": two})
    assert kept_mapping(mapping, {"a": one, "b": two}) is mapping
    assert kept_mapping(mapping, {"a": equal, "b": two}) is not mapping
    assert [*kept_mapping(mapping, {"b": two, "a": one})] == ["b", "a"]
    assert kept_mapping(mapping, {"c": one, "b": two}) == {"c": one, "b": two}


def test_a_plain_tuple_of_the_same_objects_is_not_kept_instead_of_a_kept_one():
    assert isinstance(kept_tuple((1, 2), [1, 2]), KeptTuple)
    before = KeptTuple((1, 2))
    assert kept_tuple(before, [1, 2]) is before
    assert kept_tuple(before, [1]) == (1,)


@kept
def shifted(numbers, by, times):
    return [(each + by) * times for each in numbers]


def test_one_other_argument_that_has_changed_is_enough_for_another_answer():
    numbers, one, two = KeptTuple((1, 2)), 1000, 2000
    assert shifted(numbers, one, one) == [1_001_000, 1_002_000]
    assert shifted(numbers, one, two) == [2_002_000, 2_004_000]


def test_a_mapping_of_other_objects_is_another_one():
    before = KeptMapping({1: "a", 2: "b"})
    assert kept_mapping(before, {1: "a", 2: "b"}) is before
    assert kept_mapping(before, {1: "a"}) == {1: "a"}
    assert kept_mapping(before, {1: "a", 2: "c"}) == {1: "a", 2: "c"}
    assert kept_mapping(before, {2: "b", 1: "a"}) is not before
    assert isinstance(kept_mapping({1: "a"}, {1: "a"}), KeptMapping)
