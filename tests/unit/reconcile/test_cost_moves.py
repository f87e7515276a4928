"""Moves that save cost: what the room of other nodes is, and what a pool keeps."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState, ReplacedInstance
from forebay.api.gpu_node_pool import ConsolidationPolicy, Disruption, GPUNodePool
from forebay.demand.replacements import UNDERUTILIZED
from forebay.demand.reservation import Reservations
from forebay.disruption.consolidation import ScaleDownRules
from forebay.disruption.machine_use import MachineUse
from forebay.disruption.pool_budgets import PoolBudgets
from forebay.lifecycle.transitions import with_condition
from forebay.model.quantities import Resources
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner
from forebay.reconcile.cost_moves import cost_moves
from forebay.reconcile.isolation import Faults
from forebay.reconcile.scale_down import scale_down_steps
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, node, record, running

POOL = ("team", "pool")
DISRUPTION = Disruption(
    consolidation_policy=ConsolidationPolicy.WHEN_UNDERUTILIZED, consolidate_after="60s", budgets=()
)
WEB = running("web", "used", 1, owner=Owner("ReplicaSet", "web", "u"))


def rented(name, **fields):
    made = record(name, delivers=Delivery.NODE, pool="pool")
    return replace(made, spec=replace(made.spec, hourly_price="2.4"), **fields)


def moves(*, ending=(), min_nodes=0):
    """What becomes of a node whose pod has fitted on an empty one for long enough."""
    used, empty = rented("used"), rented("empty")
    long_ago = NOW - timedelta(minutes=5)
    status = with_condition(used.status, UNDERUTILIZED, True, Reason.UNDERUTILIZED, "Its pods fit.", long_ago)
    used = replace(used, status=status)
    pool = {"metadata": {"name": "pool", "namespace": "team"}, "spec": {"nodeClassRef": {"name": "gpu"}}}
    snapshot = Snapshot(
        now=NOW,
        records=(used, empty),
        nodes={name: node(name) for name in ("used", "empty")},
        pods_by_node={"used": (WEB,)},
        used={"used": Resources({"nvidia.com/gpu": 1})},
        pools=(msgspec.convert(pool, GPUNodePool),),
    )
    machines = [
        MachineUse(record=used, node=node("used"), pods=(WEB,)),
        MachineUse(record=empty, node=node("empty")),
    ]
    rules = ScaleDownRules(pools={POOL: DISRUPTION}, min_nodes={POOL: min_nodes} if min_nodes else {})
    faults = Faults()
    found = cost_moves(
        snapshot, machines, rules, PoolBudgets(machines, rules.pools, NOW), besides=ending, ending=ending, faults=faults
    )
    assert faults.errors == {}
    return [each.record.metadata.name for each in found.leaving]


def test_a_node_goes_whose_pods_fit_on_another():
    assert moves() == ["used"]


def test_pods_do_not_move_to_a_node_that_goes_itself():
    """An idle node and one whose pods fit there are due in the same tick."""
    assert moves(ending=("empty",)) == []


def test_nothing_is_written_of_a_node_that_something_else_happens_to():
    used = began(rented("used"), UNDERUTILIZED, Reason.UNDERUTILIZED)
    machines = [MachineUse(record=used, node=node("used"), pods=(WEB,))]
    snapshot = Snapshot(now=NOW, records=(used,), nodes={"used": node("used")}, pods_by_node={"used": (WEB,)})
    rules = ScaleDownRules(pools={POOL: DISRUPTION})

    def told(**fields):
        return cost_moves(snapshot, machines, rules, PoolBudgets(machines, rules.pools, NOW), faults=Faults(), **fields)

    assert len(told().decisions) == 1, "its pods fit nowhere else any more"
    assert told(besides=["used"]).decisions == ()


@pytest.mark.parametrize(("room", "gone"), [(1, ["used"]), (0, [])])
def test_pods_move_to_the_machine_that_was_launched_for_that_if_they_fit_there_by_now(room, gone):
    used, new = began(rented("used"), UNDERUTILIZED, Reason.UNDERUTILIZED), rented("new")
    new = replace(new, spec=replace(new.spec, replaces=(ReplacedInstance(name="used", uid=used.uid),)))
    nodes = {"used": node("used"), "new": node("new", gpus=room)}
    snapshot = Snapshot(now=NOW, records=(used, new), nodes=nodes, pods_by_node={"used": (WEB,)})
    machines = [MachineUse(record=each, node=nodes[each.metadata.name]) for each in (used, new)]
    machines[0] = replace(machines[0], pods=(WEB,))
    rules = ScaleDownRules(pools={POOL: DISRUPTION})
    faults = Faults()

    found = cost_moves(snapshot, machines, rules, PoolBudgets(machines, rules.pools, NOW), faults=faults)

    assert faults.errors == {}
    assert [each.record.metadata.name for each in found.leaving] == gone
    if gone:
        assert "Its pods move to new, which is cheaper." in found.leaving[0].sentence
    else:
        (told,) = found.decisions
        assert told.sentence == "No cheaper way to serve the pods of the node is known."


@pytest.mark.parametrize(("min_nodes", "gone"), [(1, ["used"]), (2, [])])
def test_a_pool_keeps_its_min_nodes(min_nodes, gone):
    assert moves(min_nodes=min_nodes) == gone


def began(record, kind, reason):
    """For five minutes, its condition has been true."""
    status = with_condition(record.status, kind, True, reason, "For a while.", NOW - timedelta(minutes=5))
    return replace(record, status=status)


@pytest.mark.parametrize(("budget", "gone"), [(1, {"idle"}), (2, {"idle", "used"})])
def test_a_node_that_goes_spends_the_budget_that_a_cost_move_would_need(budget, gone):
    used = began(rented("used"), UNDERUTILIZED, Reason.UNDERUTILIZED)
    idle = began(rented("idle"), "Idle", Reason.IDLE)
    disruption = {
        "consolidationPolicy": "WhenUnderutilized",
        "consolidateAfter": "60s",
        "expireAfter": "Never",
        "budgets": [{"nodes": budget}],
    }
    pool = {
        "metadata": {"name": "pool", "namespace": "team"},
        "spec": {"nodeClassRef": {"name": "gpu"}, "disruption": disruption},
    }
    agent = running("agent", "idle", 0, owner=Owner("ReplicaSet", "agent", "v"))
    names = ("used", "idle", "empty")
    snapshot = Snapshot(
        now=NOW,
        records=(used, idle, rented("empty")),
        nodes={name: node(name) for name in names},
        pods_by_node={"used": (WEB,), "idle": (agent,)},
        used={"used": Resources({"nvidia.com/gpu": 1})},
        pools=(msgspec.convert(pool, GPUNodePool),),
    )

    found = scale_down_steps(snapshot, Reservations(), set(), Faults())

    draining = {each.record.metadata.name for each in found.steps if each.status.state is InstanceState.DRAINING}
    assert draining == gone
