"""When freeing a node is worth a move."""

import pytest
from hypothesis import given

from forebay.sizing.defragmentation import is_saved_by_moving
from forebay.sizing.target import GroupUse, SizingRules, target_size
from tests.unit.sizing.test_target import RULES, uses


@pytest.mark.parametrize(
    ("size", "used", "rules", "worth"),
    [
        (100, 80, {"min_utilization": 80}, True),
        (4, 4, {"min_utilization": 50}, True),
        # The freed node would be replaced by another one.
        (4, 4, {"min_unutilized": 1, "max_nodes": 4}, False),
        (5, 4, {"min_unutilized": 1}, True),
        (10, 9, {"max_utilization": 90}, True),
        (4, 0, {"min_utilization": 80}, False),
    ],
)
def test_a_move_is_worth_it_where_the_groups_then_need_one_node_less(size, used, rules, worth):
    assert is_saved_by_moving(GroupUse(size=size, used=used), SizingRules(**rules)) is worth


@pytest.mark.parametrize("more", [{"needed": 1}, {"ending": 1}])
def test_nothing_moves_while_pods_wait_or_nodes_end(more):
    assert not is_saved_by_moving(GroupUse(size=4, used=4, **more), SizingRules(min_utilization=50))


@given(uses(), RULES)
def test_no_move_leads_to_growth(use, rules):
    if is_saved_by_moving(use, rules):
        after = GroupUse(size=use.size - 1, used=use.used - 1, unusable=use.unusable)
        assert target_size(after, rules).size <= after.size
