"""Pods of a node of a group move to others where that saves a node: which nodes stay, and in which steps."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState, Transition
from forebay.api.names import MAINTENANCE_ANNOTATION
from forebay.lifecycle.steps import WriteStatus
from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelSelector
from forebay.model.sources import Instance, InstancePhase
from forebay.model.workloads import Owner
from forebay.reconcile.decisions import SyncNode
from forebay.reconcile.defragmenting import CHECK_INTERVAL
from forebay.reconcile.snapshot import Memory
from tests.unit.demand.builders import NOW, ago, node, running
from tests.unit.reconcile.test_group_growth import TWO, member, source
from tests.unit.reconcile.test_group_sizing import Groups

S = InstanceState
WEB = Owner("ReplicaSet", "web", "uid-web")


def service(at, name=None, gpus=1, **fields):
    return running(name or f"web-{at}", at, gpus, **{"owner": WEB, **fields})


class Halves(Groups):
    """Two members, each with a pod that would fit on the other one."""

    def __init__(self, *more, x=None, y=None, pods=None, nodes=None, **spec):
        there = {"x": (service("x"),), "y": (service("y", gpus=2),), **(pods or {})}
        members = (x or member("x"), y or member("y"), *more)
        rules = {"defragment": True, "max_gpu_utilization_percent": 100, **spec}
        super().__init__(*members, nodes=nodes, pods=there, **rules)
        self.snapshot = replace(self.snapshot, memory=Memory())

    def steps(self):
        found = self.decided().decisions
        drained = [each.record.metadata.name for each in found if isinstance(each, WriteStatus)]
        avoided = [each.node.name for each in found if isinstance(each, SyncNode) and each.taints]
        return drained, avoided


def test_the_node_with_fewer_gpus_in_use_is_freed():
    halves = Halves()
    assert halves.steps() == (["x"], [])
    (step,) = [each for each in halves.decided().decisions if isinstance(each, WriteStatus)]
    assert step.reason is Reason.UNDERUTILIZED
    assert step.sentence == (
        "NodeProvisioner gpus is defragmented: default/web-x fits on y. Draining and deleting node x."
    )
    assert halves.drained(with_step={"x"}) == []
    assert halves.decided().requeue_at == NOW + CHECK_INTERVAL


def test_nothing_moves_where_nobody_asked_for_it_or_it_was_looked_at_a_moment_ago():
    assert Halves(defragment=False).steps() == ([], [])
    looked = Halves()
    looked.snapshot = replace(looked.snapshot, memory=Memory(defragmented=NOW))
    assert looked.steps() == ([], [])


def test_nodes_are_looked_at_again_a_while_after_the_last_look():
    def due(looked, **spec):
        halves = Halves(**spec)
        halves.snapshot = replace(halves.snapshot, memory=Memory(defragmented=looked))
        return halves.decided().requeue_at

    assert due(NOW) == NOW + CHECK_INTERVAL
    assert due(NOW - CHECK_INTERVAL / 2) == NOW + CHECK_INTERVAL / 2
    assert due(NOW - CHECK_INTERVAL * 3 / 4) == NOW + CHECK_INTERVAL / 3, "not in every tick"
    assert due(NOW, defragment=False) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"pods": {"x": (service("x", owner=None),)}},
        {"pods": {"x": (service("x", owner=Owner("Job", "j", "u")),)}},
        {"pods": {"x": (service("x", deleted=NOW),)}},
        {"nodes": [node("x", ready=False), node("y")]},
        {"nodes": [replace(node("x"), annotations={MAINTENANCE_ANNOTATION: ""}), node("y")]},
        {"x": member("x", transitions=(Transition(state=S.DRAINING, at=ago(minutes=50), reason="Underutilized"),))},
        {"pods": {"x": (service("x", gpus=8),)}},
    ],
    ids=["no controller", "a Job", "leaving", "NotReady", "held", "tried before", "too large"],
)
def test_a_node_whose_pods_cannot_move_stays(fields):
    assert "x" not in Halves(**fields).steps()[0]


def test_a_disruption_budget_keeps_its_pods_where_they_are():
    budget = PodDisruptionBudget(
        namespace="default", name="web", uid="u", resource_version=1, selector=LabelSelector({"app": "web"}), allowed=0
    )
    halves = Halves(pods={"x": (service("x", labels={"app": "web"}),), "y": (service("y", labels={"app": "web"}),)})
    assert halves.steps()[0] == ["x"]
    halves.snapshot = replace(halves.snapshot, pod_disruption_budgets=(budget,))
    assert halves.steps()[0] == []


@pytest.mark.parametrize("state", [S.LAUNCHED, S.TERMINATING])
def test_nothing_moves_while_a_member_comes_or_goes(state):
    assert Halves(member("z", state)).steps()[0] == []


def test_no_pod_moves_to_a_member_that_ends_soon():
    """Its pods would have to move again within the half hour."""

    def freed(ends_in):
        made = Instance(
            id="a/y", phase=InstancePhase.RUNNING, ends_at=NOW + timedelta(minutes=ends_in), created=ago(days=1)
        )
        halves = Halves(
            member("z"),
            y=member("y", instance_id="a/y"),
            pods={"z": (service("z", gpus=8),)},
            found=source([made], **TWO),
        )
        return halves.steps()[0]

    assert freed(ends_in=600) == ["x"]
    assert freed(ends_in=20) == []


def test_one_node_is_freed_at_a_time():
    moving = member(
        "z", S.DRAINING, transitions=(Transition(state=S.DRAINING, at=ago(minutes=1), reason="Underutilized"),)
    )
    assert Halves(moving, pods={"z": (service("z"),)}).steps() == ([], [])


def test_a_group_that_grows_is_sized_although_nobody_has_looked_at_its_nodes_yet():
    growing = Halves(ready=2)
    found = growing.decided()
    assert found.sizes["gpus"].target.size == 4
    assert found.defragmented == NOW
