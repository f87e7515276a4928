"""Indexes and interning tables."""

from hypothesis import given
from hypothesis import strategies as st

from forebay.kube.index import Index, Indexes
from forebay.kube.interning import Interned, interned_strings


class Thing:
    def __init__(self, name, *values):
        self.key = ("", name)
        self.values = values


def by_values() -> Index:
    return Index("by values", lambda thing: thing.values, several=True)


def test_an_object_is_found_by_each_of_its_values_and_not_by_values_it_lost():
    index = by_values()
    before = Thing("a", "x", "y")
    after = Thing("a", "y", "z")
    index.change(before.key, None, before)
    assert index.get("x") == index.get("y") == (before,)
    index.change(before.key, before, after)
    assert index.get("x") == ()
    assert index.get("y") == index.get("z") == (after,)
    assert set(index.found) == {"y", "z"}
    index.change(after.key, after, None)
    assert index.found == {}


def test_a_look_up_returns_a_copy_that_later_changes_leave_alone():
    index = by_values()
    one, two = Thing("one", "x"), Thing("two", "x")
    index.change(one.key, None, one)
    found = index.get("x")
    index.change(two.key, None, two)
    assert found == (one,)
    assert index.count("x") == 2
    assert index.count("nothing") == 0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from("xyz"), max_size=4) | st.none()), max_size=30)
)
def test_after_any_changes_the_index_is_what_it_would_be_if_it_were_made_anew(changes):
    index = by_values()
    things: dict[str, Thing] = {}
    for name, values in changes:
        old = things.pop(name, None)
        new = None if values is None else Thing(name, *values)
        if old is None and new is None:
            continue
        index.change(("", name), old, new)
        if new is not None:
            things[name] = new
    wanted: dict[str, set] = {}
    for thing in things.values():
        for value in thing.values:
            wanted.setdefault(value, set()).add(thing)
    assert {value: set(index.get(value)) for value in index.found} == wanted


def test_an_interning_table_keeps_entries_in_use_and_is_bounded():
    made = []

    def make(key):
        made.append(key)
        return [key]

    table = Interned(make, 10)
    used = table["used"]
    for number in range(1000):
        assert table["used"] is used
        assert table[f"once-{number}"] == [f"once-{number}"]
    assert made.count("used") == 1
    assert len(table) + len(table._old) <= 20


def test_a_key_whose_make_raises_is_not_cached():
    table = Interned(int, 10)
    for _ in range(2):
        try:
            table["x"]
        except ValueError:
            continue
        raise AssertionError("x is no number")
    assert len(table) == 0


def test_equal_strings_become_one():
    names = interned_strings(10)
    one, other = b"node".decode(), b"node".decode()
    assert one is not other
    assert names[one] is names[other]


def test_adding_many_objects_at_once_is_the_same_as_one_by_one():
    def fresh() -> Indexes:
        return Indexes(
            [
                Index("first", lambda thing: thing.values[0] if thing.values else None),
                by_values(),
                Index("big", lambda thing: thing.key[1], among=lambda thing: len(thing.values) > 1),
            ]
        )

    things = [Thing("a", "x", "y"), Thing("b"), Thing("c", "x"), Thing("d", "y", "y", "z")]
    quick, usual = fresh(), fresh()
    quick.add({thing.key: thing for thing in things})
    for thing in things:
        usual.change(thing.key, None, thing)
    for name in ("first", "by values", "big"):
        assert quick[name].found == usual[name].found
    assert quick["first"].get("x") == (things[0], things[2])
    assert set(quick["big"].found) == {"a", "d"}
