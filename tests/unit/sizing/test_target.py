"""The target size: its laws, and its arithmetic as it is shown."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.sizing.target import GroupUse, SizingRules, TargetReason, target_size

COUNTS = st.integers(0, 2000)


@st.composite
def uses(draw, needed=COUNTS):
    used, unusable, empty = draw(COUNTS), draw(st.integers(0, 50)), draw(COUNTS)
    return GroupUse(size=used + unusable + empty, used=used, unusable=unusable, needed=draw(needed))


PERCENT = st.none() | st.integers(1, 100)
RULES = st.builds(
    SizingRules,
    min_utilization=PERCENT,
    max_utilization=PERCENT,
    min_unutilized=st.integers(0, 300),
    max_nodes=st.none() | st.integers(1, 3000),
)
UNCAPPED = RULES.map(lambda rules: replace(rules, max_nodes=None))
QUIET = uses(needed=st.just(0))


@given(uses(), RULES)
def test_the_target_is_never_below_the_nodes_in_use(use, rules):
    assert target_size(use, rules).size >= use.used


@given(uses(), RULES)
def test_the_target_never_exceeds_the_maximum_but_for_nodes_in_use(use, rules):
    assume(rules.max_nodes is not None)
    assert target_size(use, rules).size <= max(rules.max_nodes, use.used)


@given(uses(), UNCAPPED)
def test_the_empty_nodes_to_keep_ready_are_always_kept(use, rules):
    target = target_size(use, rules).size
    assert target >= use.used + use.needed + rules.min_unutilized


@given(uses(), UNCAPPED)
def test_waiting_pods_always_get_their_nodes(use, rules):
    assume(use.needed)
    assert target_size(use, rules).size >= use.size + use.needed


@given(QUIET, UNCAPPED)
def test_a_group_shrinks_to_the_largest_size_with_enough_in_use(use, rules):
    target = target_size(use, rules)
    assume(target.size < use.size and rules.min_utilization is not None)
    enough = [n for n in (target.size, target.size + 1) if n == 0 or use.used * 100 >= rules.min_utilization * n]
    assert enough == [target.size] or target.size == target.least


@given(QUIET, UNCAPPED)
def test_a_group_that_is_used_enough_does_not_shrink(use, rules):
    assume(rules.min_utilization is not None and use.used * 100 >= rules.min_utilization * use.size)
    assert target_size(use, rules).size >= use.size


@given(COUNTS, COUNTS, st.integers(0, 300), UNCAPPED)
def test_a_group_that_has_reached_its_target_stays_there(used, empty, needed, rules):
    # Pods wait only while no node is empty; the new nodes take them.
    use = GroupUse(size=used + (0 if needed else empty), used=used, needed=needed)
    target = target_size(use, rules).size
    assert target_size(GroupUse(size=target, used=used + needed), rules).size == target


@given(QUIET, UNCAPPED, st.integers(1, 50))
def test_more_nodes_in_use_never_lower_the_target(use, rules, more):
    assume(use.used + more <= use.serviceable)
    assert target_size(replace(use, used=use.used + more), rules).size >= target_size(use, rules).size


@pytest.mark.parametrize(
    ("use", "rules", "size", "reason"),
    [
        (GroupUse(size=120, used=80), SizingRules(min_utilization=80), 100, TargetReason.BELOW_MIN_UTILIZATION),
        (GroupUse(size=10, used=10, needed=3), SizingRules(min_utilization=80), 13, TargetReason.PODS_WAITING),
        (GroupUse(size=10, used=9), SizingRules(min_unutilized=2), 11, TargetReason.TOO_FEW_UNUTILIZED),
        (GroupUse(size=10, used=3), SizingRules(min_unutilized=2), 5, TargetReason.SURPLUS_UNUTILIZED),
        (GroupUse(size=10, used=9), SizingRules(max_utilization=75), 12, TargetReason.ABOVE_MAX_UTILIZATION),
        (GroupUse(size=10, used=9), SizingRules(min_utilization=80), 10, TargetReason.AT_TARGET),
        (GroupUse(size=10, used=10, needed=5), SizingRules(max_nodes=12), 12, TargetReason.MAX_NODES),
        (GroupUse(size=10, used=9), SizingRules(min_utilization=10, max_nodes=4), 9, TargetReason.MAX_NODES),
        # Two broken nodes do not count as kept ready, and do not hold back growth.
        (GroupUse(size=10, used=8, unusable=2), SizingRules(min_unutilized=1), 11, TargetReason.TOO_FEW_UNUTILIZED),
        (GroupUse(size=10, used=0), SizingRules(min_utilization=80), 0, TargetReason.BELOW_MIN_UTILIZATION),
    ],
)
def test_examples(use, rules, size, reason):
    target = target_size(use, rules)
    assert (target.size, target.reason) == (size, reason)


def test_the_arithmetic_is_told_with_its_numbers():
    rules = SizingRules(min_utilization=80, min_unutilized=5, max_nodes=200)
    assert target_size(GroupUse(size=120, used=80), rules).steps == (
        "80 of 120 nodes are in use (66 %).",
        "At least 85 nodes: 80 in use, 85 with minUnutilizedGPUNodes 5.",
        "minGPUUtilizationPercent 80: at most 100 nodes (the largest size with 80 in use at 80 % or more).",
        "Target 100: shrink by 20 (BelowMinUtilization).",
    )
