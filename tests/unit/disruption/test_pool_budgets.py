"""Which nodes count for the budgets of a pool: those that are disrupted, and those that hold others back."""

from datetime import timedelta

import pytest

from forebay.api.gpu_instance import InstanceState, Transition
from forebay.api.gpu_node_pool import Disruption, DisruptionBudget, DisruptionReason
from forebay.disruption.machine_use import MachineUse
from forebay.disruption.pool_budgets import PoolBudgets
from forebay.model.reasons import Reason
from tests.unit.demand.builders import NOW, ago, node, record, running

S = InstanceState
POOL = ("team", "pool")
IDLE, EXPIRED = DisruptionReason.IDLE, DisruptionReason.EXPIRED


def machine(name="n1", state=S.READY, *, pods=(), pool="pool", began=None, **status):
    """`began`: why it began to leave, of one that does."""
    steps = () if began is None else (Transition(state=S.DRAINING, at=ago(hours=1), reason=began, message=""),)
    found = record(name, state, pool=pool, transitions=steps, **status)
    return MachineUse(record=found, node=node(name), pods=tuple(pods))


EMPTY, BUSY = machine("empty"), machine("busy", pods=[running()])


def budgets(*machines, nodes=1):
    return PoolBudgets(machines, {POOL: Disruption(budgets=(DisruptionBudget(nodes=nodes),))}, NOW)


DRAINS = machine(state=S.DRAINING, pods=[running()], began=Reason.EXPIRED, since=ago(minutes=4))


@pytest.mark.parametrize(
    ("leaving", "holds"),
    [
        pytest.param(machine(), (False, False), id="stays"),
        pytest.param(DRAINS, (True, True), id="drains"),
        pytest.param(machine(state=S.DRAINING, began=Reason.EXPIRED), (True, True), id="is drained"),
        pytest.param(machine(state=S.TERMINATING, began=Reason.EXPIRED), (True, True), id="ends"),
        pytest.param(
            machine(state=S.DRAINING, pods=[running()], began=Reason.EXPIRED, since=ago(minutes=5)),
            (True, False),
            id="drain is blocked",
        ),
        pytest.param(
            machine(state=S.DRAINING, began=Reason.EXPIRED, since=ago(minutes=5)), (True, True), id="late, without pods"
        ),
        pytest.param(
            machine(state=S.TERMINATING, pods=[running()], began=Reason.EXPIRED, since=ago(minutes=5)),
            (True, True),
            id="late, ends with pods on",
        ),
        pytest.param(
            machine(state=S.DRAINING, pods=[running()], began=Reason.EXPIRED, since=None), (True, True), id="no date"
        ),
        pytest.param(machine(state=S.DRAINING, began=Reason.IDLE), (False, False), id="was empty"),
        pytest.param(
            machine(state=S.DRAINING, pods=[running()], began=Reason.IDLE, since=ago(minutes=1)),
            (True, True),
            id="pods have come",
        ),
        pytest.param(
            machine(state=S.TERMINATING, began=Reason.EXPIRED, reason=Reason.TERMINATION_FAILED),
            (False, False),
            id="fails to end",
        ),
        pytest.param(
            machine(state=S.TERMINATING, pods=[running()], began=Reason.EXPIRED, reason=Reason.TERMINATION_FAILED),
            (True, True),
            id="fails to end with pods on",
        ),
        pytest.param(machine(state=S.DRAINING, began=Reason.EXPIRED, node_name=None), (False, False), id="was no node"),
        pytest.param(machine(state=S.DRAINING, began=Reason.EXPIRED, pool=None), (False, False), id="of no pool"),
    ],
)
def test_a_node_that_leaves_holds_back_others_that_run_pods_and_idle_ones_unless_its_drain_is_blocked(leaving, holds):
    expired = not budgets(leaving).admit(machine("other"), EXPIRED)
    idle = not budgets(leaving).admit(BUSY, IDLE)
    assert (expired, idle) == holds
    assert budgets(leaving).admit(EMPTY, IDLE), "an empty node disrupts nobody"


def test_what_was_admitted_counts_unless_it_was_empty_and_a_release_takes_it_back_once():
    found = budgets(nodes=2)
    assert found.admit(EMPTY, IDLE)
    assert found.admit(machine("a"), EXPIRED)
    assert found.admit(machine("b"), EXPIRED)
    assert not found.admit(machine("c"), EXPIRED)
    found.release(machine("b"))
    assert found.admit(machine("c"), EXPIRED)
    assert not found.admit(machine("d"), EXPIRED)
    found.release(machine("nobody's", pool=None))
    assert not found.admit(machine("d"), EXPIRED)


@pytest.mark.parametrize(
    ("state", "nodes"), [(S.READY, 1), (S.JOINED, 1), (S.DRAINING, 1), (S.TERMINATING, 1), (S.LAUNCHED, 0), (S.GONE, 0)]
)
def test_a_share_is_of_the_nodes_that_are_there(state, nodes):
    others = [machine(f"n{number}") for number in range(9)]
    found = budgets(*others, machine("x", state, pods=[running()], began=Reason.IDLE, pool="pool"), nodes="11%")
    admitted = sum(found.admit(machine(f"o{number}"), EXPIRED) for number in range(9))
    leaving = state in (S.DRAINING, S.TERMINATING)
    assert admitted == (2 if nodes else 1) - leaving


def test_a_budget_is_asked_at_the_moment_of_the_tick():
    closed = DisruptionBudget(nodes=0, schedule="0 9 * * 1-5", duration="8h")
    for now, open_ in ((NOW, False), (NOW + timedelta(hours=5), True)):
        found = PoolBudgets([], {POOL: Disruption(budgets=(closed,))}, now)
        assert found.admit(BUSY, EXPIRED) is open_
