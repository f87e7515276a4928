"""Which nodes one pass taints, untaints and deletes."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from forebay.api.names import SCALE_DOWN_TAINT
from forebay.model.requirements import Taint
from forebay.sizing.passes import MemberNode, Pass, deletion_time, next_expiry, next_pass, scale_down_taint
from tests.unit.demand.builders import node

NOW = datetime(2026, 11, 17, 9, 0, tzinfo=UTC)


def later(minutes):
    return NOW + timedelta(minutes=minutes)


def member(name, *, empty=True, tainted=None, **fields):
    return MemberNode(name=name, empty=empty, delete_at=None if tainted is None else later(tainted), **fields)


def test_a_group_that_must_grow_also_takes_its_taints_back():
    nodes = [member("a", tainted=5), member("b", empty=False)]
    assert next_pass(nodes, 2, 4, NOW) == Pass(expand=2, untaint=("a",))


def test_nodes_whose_time_has_come_go_but_no_more_than_are_surplus():
    nodes = [member("a", tainted=0), member("b", tainted=-1), member("c", tainted=9)]
    assert next_pass(nodes, 3, 2, NOW) == Pass(delete=("a",))
    assert next_pass(nodes, 3, 0, NOW) == Pass(delete=("a", "b"))


def test_a_pod_that_came_after_the_taint_saves_the_node():
    nodes = [member("a", empty=False, tainted=-1), member("b", empty=False)]
    assert next_pass(nodes, 2, 0, NOW) == Pass(untaint=("a",))


def test_broken_nodes_go_first_and_then_the_most_expensive():
    nodes = [
        member("cheap", hourly_price=Fraction(1)),
        member("dear", hourly_price=Fraction(3)),
        member("broken", usable=False, hourly_price=Fraction(1)),
    ]
    assert next_pass(nodes, 3, 1, NOW) == Pass(taint=("broken", "dear"))


def test_the_node_that_would_go_last_is_untainted_first():
    nodes = [member("cheap", tainted=5, hourly_price=Fraction(1)), member("dear", tainted=5, hourly_price=Fraction(3))]
    assert next_pass(nodes, 2, 1, NOW) == Pass(untaint=("cheap",))


def test_a_node_that_people_hold_is_neither_tainted_nor_deleted():
    assert next_pass([member("a", held=True)], 1, 0, NOW) == Pass()
    assert next_pass([member("a", held=True, tainted=-1)], 1, 0, NOW) == Pass(untaint=("a",))


def test_the_next_pass_is_due_when_a_taint_expires():
    assert next_expiry([member("a", tainted=5), member("b", tainted=3), member("c", tainted=-3)], NOW) == later(3)
    assert next_expiry([member("a")], NOW) is None


def test_the_taint_tells_the_time_and_never_repels_a_pod():
    taint = scale_down_taint(NOW, timedelta(minutes=10))
    assert str(taint) == "forebay.dev/scale-down=20261117T091000Z:PreferNoSchedule"
    assert not taint.repels
    assert deletion_time(node(taints=(taint,))) == later(10)


def test_a_taint_without_a_time_is_none():
    assert deletion_time(node(taints=(Taint(SCALE_DOWN_TAINT, "soon"),))) is None
    assert deletion_time(node()) is None


MEMBERS = st.lists(
    st.builds(
        MemberNode,
        name=st.integers(0, 10**6).map(str),
        empty=st.booleans(),
        usable=st.booleans(),
        held=st.booleans(),
        delete_at=st.none() | st.integers(-20, 20).map(later),
    ),
    unique_by=lambda each: each.name,
    max_size=40,
)


@given(MEMBERS, st.integers(0, 60), st.integers(0, 5))
def test_no_pass_deletes_a_used_held_or_unexpired_node_nor_too_many(nodes, target, launching):
    size = len(nodes) + launching
    change = next_pass(nodes, size, target, NOW)
    by_name = {each.name: each for each in nodes}
    for name in change.delete:
        found = by_name[name]
        assert found.empty
        assert not found.held
        assert found.delete_at is not None
        assert found.delete_at <= NOW
    assert len(change.delete) <= max(0, size - target)
    assert all(by_name[name].empty and by_name[name].delete_at is None for name in change.taint)
    kinds = [bool(change.expand), bool(change.delete), bool(change.taint)]
    assert sum(kinds) <= 1
    assert not (change.untaint and (change.delete or change.taint))
