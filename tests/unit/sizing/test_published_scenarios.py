"""The three scenarios that the predecessor published (120 nodes, minimum utilisation 80 %), minute by minute."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from forebay.sizing.passes import MemberNode, next_pass
from forebay.sizing.target import GroupUse, SizingRules, target_size

START = datetime(2026, 11, 17, 9, 0, tzinfo=UTC)
DELAY = timedelta(minutes=10)
RULES = SizingRules(min_utilization=80)


class Group:
    """A group whose passes are carried out at once; one pass a minute, as a loop would make them."""

    def __init__(self, size, used):
        self.nodes = {f"node-{at:03}": MemberNode(name=f"node-{at:03}", empty=at >= used) for at in range(size)}
        self.minute = 0

    @property
    def now(self):
        return START + timedelta(minutes=self.minute)

    @property
    def size(self):
        return len(self.nodes)

    @property
    def tainted(self):
        return sum(node.delete_at is not None for node in self.nodes.values())

    def use(self, count):
        """Pods come to empty nodes without a taint first, as kube-scheduler places them, or leave some nodes."""
        preferred = sorted(self.nodes.values(), key=lambda node: (node.empty, node.delete_at is not None, node.name))
        for at, node in enumerate(preferred):
            self.nodes[node.name] = replace(node, empty=at >= count)

    def one_pass(self):
        used = sum(not node.empty for node in self.nodes.values())
        target = target_size(GroupUse(size=self.size, used=used), RULES)
        change = next_pass(self.nodes.values(), self.size, target.size, self.now)
        for name in change.delete:
            assert self.nodes[name].empty
            del self.nodes[name]
        for name in change.taint:
            self.nodes[name] = replace(self.nodes[name], delete_at=self.now + DELAY)
        for name in change.untaint:
            self.nodes[name] = replace(self.nodes[name], delete_at=None)
        seen = self.minute, target.size, self.size, self.tainted
        self.minute += 1
        return seen


def minutes(group, count):
    return [group.one_pass() for _ in range(count)]


def test_scenario_a_twenty_of_120_nodes_are_tainted_and_deleted_after_the_delay():
    group = Group(size=120, used=80)
    # Each tuple is the minute, the target, the size and how many are tainted.
    assert minutes(group, 10) == [(at, 100, 120, 20) for at in range(10)]
    assert minutes(group, 10) == [(at, 100, 100, 0) for at in range(10, 20)]


def test_scenario_b_used_falls_to_60_so_the_20_go_and_25_more_are_tainted():
    group = Group(size=120, used=80)
    assert minutes(group, 10) == [(at, 100, 120, 20) for at in range(10)]
    group.use(60)
    assert minutes(group, 1) == [(10, 75, 100, 0)]  # this pass deletes the 20
    assert minutes(group, 10) == [(at, 75, 100, 25) for at in range(11, 21)]  # the next taints 25
    assert minutes(group, 5) == [(at, 75, 75, 0) for at in range(21, 26)]


def test_scenario_c_used_rises_to_88_before_the_delay_so_10_are_untainted_and_10_go():
    group = Group(size=120, used=80)
    assert minutes(group, 5) == [(at, 100, 120, 20) for at in range(5)]
    group.use(88)
    assert minutes(group, 5) == [(at, 110, 120, 10) for at in range(5, 10)]
    assert minutes(group, 5) == [(at, 110, 110, 0) for at in range(10, 15)]


@pytest.mark.parametrize("used", range(0, 121, 7))
def test_whatever_is_used_the_group_comes_to_rest_at_its_target_and_keeps_the_used_nodes(used):
    group = Group(size=120, used=used)
    in_use = {name for name, node in group.nodes.items() if not node.empty}
    minutes(group, 30)
    assert group.size == min(120, used * 100 // 80)
    assert group.tainted == 0
    assert in_use <= group.nodes.keys()
