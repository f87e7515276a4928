"""Members that end at a known time: when they are replaced, and when their pods move."""

from datetime import UTC, datetime, timedelta

import pytest

from forebay.model.requirements import Effect
from forebay.sizing.rotation import EndingNode, ending_taint, evicted_from, replaced_from, rotation
from forebay.sizing.target import GroupUse, SizingRules, TargetReason, target_size

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
END = NOW + timedelta(minutes=20)


def node(name, *, empty=False, marked=True, evict_in=15):
    evict_at = NOW + timedelta(minutes=evict_in)
    return EndingNode(name=name, ends_at=END, evict_at=evict_at, empty=empty, marked=marked)


def test_a_member_is_replaced_half_an_hour_before_its_end_and_emptied_in_the_last_minutes():
    created = END - timedelta(days=7)
    assert replaced_from(END, created) == END - timedelta(minutes=30)
    assert evicted_from(END, created) == END - timedelta(minutes=5)


def test_of_a_short_run_only_a_quarter_is_used_for_that():
    assert replaced_from(END, END - timedelta(minutes=10)) == END - timedelta(minutes=2, seconds=30)


def test_one_node_is_drained_for_each_empty_one_that_is_there():
    found = rotation([node("a"), node("b"), node("c")], 2, NOW)
    assert (found.mark, found.drain) == ((), ("a", "b"))


def test_without_a_replacement_nodes_wait_until_shortly_before_their_end():
    assert rotation([node("a"), node("b", evict_in=0)], 0, NOW).drain == ("b",)


def test_an_empty_node_goes_at_once_and_a_new_one_is_marked_first():
    found = rotation([node("a", empty=True), node("b", marked=False)], 0, NOW)
    assert (found.mark, found.drain) == (("b",), ("a",))


@pytest.mark.parametrize(
    ("empty", "ready", "enough", "goes"),
    [(True, 0, True, True), (True, 1, False, False), (False, 1, True, True), (False, 1, False, False)],
)
def test_a_node_that_has_drifted_goes_when_as_many_others_are_ready_as_are_needed(empty, ready, enough, goes):
    drifted = EndingNode(name="a", ends_at=None, evict_at=None, empty=empty, marked=True)
    assert rotation([drifted], ready, NOW, enough_without=enough).drain == (("a",) if goes else ())


def test_a_node_that_has_drifted_waits_for_an_empty_one_however_long_that_takes():
    drifted = EndingNode(name="a", ends_at=None, evict_at=None, empty=False, marked=True)
    assert rotation([drifted, node("b")], 1, NOW).drain == ("b",), "the one that ends is first"


def test_the_taint_lets_no_pod_come_any_more_and_says_when_the_node_ends():
    assert ending_taint(None).value == "replacing"
    assert (ending_taint(END).value, ending_taint(END).effect) == ("20261117T122000Z", Effect.NO_SCHEDULE)


@pytest.mark.parametrize(
    ("use", "rules", "size"),
    [
        # Three of ten used nodes end: three more, until those are gone.
        (GroupUse(size=10, used=10, ending=3), SizingRules(min_utilization=80), 13),
        # Their replacements are there: nothing more, and none of them is surplus.
        (GroupUse(size=13, used=10, ending=3), SizingRules(min_utilization=80), 13),
        # Unused ones are not replaced, but for those to be kept ready.
        (GroupUse(size=3, used=0, ending=3), SizingRules(min_unutilized=1), 4),
        # Never over the maximum.
        (GroupUse(size=10, used=10, ending=3), SizingRules(min_utilization=80, max_nodes=10), 10),
    ],
)
def test_nodes_that_end_soon_do_not_count_and_are_replaced(use, rules, size):
    assert target_size(use, rules).size == size


def test_the_arithmetic_says_that_nodes_end():
    found = target_size(GroupUse(size=10, used=10, ending=3), SizingRules(min_utilization=80))
    assert found.reason is TargetReason.TOO_FEW_UNUTILIZED
    assert found.steps[:2] == (
        "10 of 10 nodes are in use (100 %).",
        "3 nodes to replace: the rest is counted without these, and they go when others are there.",
    )
    assert found.steps[-1] == "Target 13: grow by 3 (TooFewUnutilized)."
