"""Under-utilized nodes: which may be emptied, when, and for how much less."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.gpu_instance import Transition
from forebay.api.gpu_node_pool import ConsolidationPolicy, Disruption
from forebay.api.parts import Condition, Truth
from forebay.disruption.consolidation import ScaleDownRules
from forebay.disruption.underutilization import may_be_emptied, moves_at, pays_back, utilization
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner
from tests.unit.demand.builders import NOW, ago, running
from tests.unit.disruption.test_consolidation import POOL, machine

SERVED = Owner("ReplicaSet", "serve", "u1")


def rules(policy=ConsolidationPolicy.WHEN_UNDERUTILIZED, after="5m"):
    return ScaleDownRules(pools={POOL: Disruption(consolidation_policy=policy, consolidate_after=after)})


def served(name="serve", **fields):
    return replace(running(name, gpus=1), **{"owner": SERVED, **fields})


def used(*pods, delivers=Delivery.NODE, **fields):
    return machine("r1", delivers=delivers, pods=pods or (served(),), **fields)


@pytest.mark.parametrize(
    ("new", "worth"), [("6.00", True), ("6.01", False), ("7.00", False), ("7.01", False), ("0", True)]
)
def test_a_replacement_pays_for_both_machines_within_an_hour(new, worth):
    assert pays_back(UsdPerHour("7.00"), UsdPerHour(new)) is worth


def test_nothing_is_saved_on_a_machine_that_costs_nothing():
    assert not pays_back(UsdPerHour("0"), UsdPerHour("0"))


def test_a_node_whose_pods_are_all_created_again_may_be_emptied():
    assert may_be_emptied(used(), NOW, rules())
    assert may_be_emptied(used(served("a"), served("b")), NOW, rules())


@pytest.mark.parametrize("policy", [ConsolidationPolicy.WHEN_IDLE, ConsolidationPolicy.NEVER])
def test_only_where_the_pool_says_so(policy):
    assert not may_be_emptied(used(), NOW, rules(policy))


@pytest.mark.parametrize(
    "pod",
    [
        served(owner=None),
        served(owner=Owner("Job", "train", "u2")),
        served(annotations={"forebay.dev/do-not-disrupt": "true"}),
        served(annotations={"karpenter.sh/do-not-disrupt": "true"}),
        served(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        served(deleted=NOW),
    ],
    ids=["bare", "job", "forebay", "karpenter", "autoscaler", "leaving"],
)
def test_a_pod_that_would_lose_by_it_keeps_its_node(pod):
    assert not may_be_emptied(used(served("other"), pod), NOW, rules())


def test_owned_machines_and_awaited_ones_are_not_emptied():
    assert not may_be_emptied(used(delivers=Delivery.POWER), NOW, rules())
    assert not may_be_emptied(used(awaited_by="default/next"), NOW, rules())


def test_a_node_that_is_not_ready_or_leaves_already_is_not_emptied():
    assert not may_be_emptied(used(up=False), NOW, rules())
    assert not may_be_emptied(used(state=State.DRAINING), NOW, rules())


def test_a_node_that_was_to_be_emptied_in_the_last_hour_is_left_alone():
    for minutes, left_alone in ((59, True), (60, False)):
        step = Transition(state=State.DRAINING, at=ago(minutes=minutes), reason=Reason.UNDERUTILIZED)
        assert may_be_emptied(used(transitions=(step,)), NOW, rules()) is not left_alone
    idle = Transition(state=State.DRAINING, at=ago(minutes=1), reason=Reason.IDLE)
    assert may_be_emptied(used(transitions=(idle,)), NOW, rules())


def test_a_node_is_emptied_when_it_has_been_under_utilized_for_consolidate_after():
    told = Condition(
        type="Underutilized", status=Truth.TRUE, reason="x", message="", last_transition_time=ago(minutes=3)
    )
    assert moves_at(used(conditions=(told,)), NOW, rules()) == ago(minutes=3) + timedelta(minutes=5)
    assert moves_at(used(), NOW, rules()) is None
    assert moves_at(used(conditions=(replace(told, status=Truth.FALSE),)), NOW, rules()) is None
    assert moves_at(used(conditions=(told,)), NOW, rules(after="Never")) is None


def test_the_emptiest_node_comes_first():
    assert utilization(used()) < utilization(used(served("a"), served("b")))
