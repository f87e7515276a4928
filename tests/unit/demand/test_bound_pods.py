"""Pods bound to machines that are off."""

import pytest

from forebay.api.gpu_instance import InstanceState as State
from forebay.demand.assessment import not_demand
from forebay.demand.bound_pods import waiting_for_their_machine
from forebay.model.fit import misfit
from forebay.model.workloads import Owner, Phase
from tests.unit.demand.builders import NOW, ago, node, pod, record, running

BOUND = pod(node="n1", node_selector={"zone": "elsewhere"})


def found(*pods, there=None, records=()):
    existing = there or node("n1", ready=False)
    return waiting_for_their_machine(["n1", "n2"], {existing.name: existing}, records, lambda _: pods)


def test_a_bound_pod_of_a_machine_that_is_off_is_demand_and_fits_that_machine_only():
    (waiting,) = found(BOUND)

    assert not_demand(waiting, None, NOW) is None
    here, other = node("n1"), node("n2")
    assert misfit(waiting.shape, here, here.allocatable) is None
    assert misfit(waiting.shape, other, other.allocatable) is not None


def test_pods_come_in_the_order_of_their_machines():
    names = [f"m{number}" for number in range(9)]
    nodes = {name: node(name, ready=False) for name in names}
    waiting = waiting_for_their_machine(names[::-1], nodes, (), lambda name: [pod(f"on-{name}", node=name)])
    assert [each.name for each in waiting] == [f"on-{name}" for name in names]


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param({"there": node("n1")}, id="its node is Ready"),
        pytest.param({"there": node("n3", ready=False)}, id="not a machine of ours"),
        pytest.param({"records": [record("n1", State.READY)]}, id="lost: lifecycle decides"),
        pytest.param({"records": [record("n1", State.TERMINATING)]}, id="on its way down"),
    ],
)
def test_other_machines_are_left_alone(scene):
    assert found(BOUND, **scene) == ()


def test_a_machine_that_is_launching_or_gone_is_still_waited_for():
    assert found(BOUND, records=[record("n1", State.LAUNCHED)])
    assert found(BOUND, records=[record("n1", State.GONE)])


@pytest.mark.parametrize(
    "other",
    [
        running(),
        pod(node="n1", deleted=NOW),
        pod(node="n1", phase=Phase.SUCCEEDED),
        pod(node="n1", started=ago(minutes=1)),
        pod(node="n1", owner=Owner("DaemonSet", "dcgm", "uid-dcgm")),
    ],
    ids=["running", "deleted", "ended", "started", "of a DaemonSet"],
)
def test_only_pods_that_wait_to_start_count(other):
    assert found(other) == ()
