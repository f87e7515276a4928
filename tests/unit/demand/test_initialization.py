"""When a node is initialized: the one answer that lifecycle and demand share."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState, Transition
from forebay.api.names import STARTUP_TAINT
from forebay.api.parts import TaintEffect, TaintEntry
from forebay.demand.initialization import gpus_allocatable, has_a_gpu, is_initialized
from forebay.model.requirements import Taint
from tests.unit.demand.builders import GPU, NOW, node, record

AGENT = TaintEntry(key="example.com/agent", effect=TaintEffect.NO_EXECUTE)
OURS = TaintEntry(key=STARTUP_TAINT, effect=TaintEffect.NO_SCHEDULE)
PLANNED = record(planned={"startup_taints": (AGENT, OURS)})


@pytest.mark.parametrize(
    ("there", "initialized"),
    [
        pytest.param(node(), True, id="Ready, with its GPUs and without taints"),
        pytest.param(node(ready=False), False, id="not Ready"),
        pytest.param(node(gpus=7), False, id="a GPU is missing"),
        pytest.param(node(taints=(Taint(AGENT.key, "", "NoExecute"),)), False, id="a startup taint is left"),
        pytest.param(node(taints=(Taint(AGENT.key, "", "NoSchedule"),)), True, id="of another effect: not planned"),
        pytest.param(node(taints=(Taint(STARTUP_TAINT, "", "NoSchedule"),)), True, id="Forebay's own startup taint"),
        pytest.param(
            node(taints=(Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),)), False, id="not-ready stays"
        ),
        pytest.param(
            node(taints=(Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule"),)),
            False,
            id="the cloud has not initialized it",
        ),
        pytest.param(node(taints=(Taint("readiness.k8s.io/net", "", "NoSchedule"),)), False, id="a readiness taint"),
        pytest.param(
            node(taints=(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),)),
            True,
            id="a cordon is no startup",
        ),
        pytest.param(node(deleted=NOW), True, id="its deletion is another question"),
    ],
)
def test_a_node_is_initialized_with_its_gpus_and_without_its_startup_taints(there, initialized):
    assert is_initialized(PLANNED, there) is initialized


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        pytest.param({}, 8, id="the planned figures"),
        pytest.param({"node": replace(PLANNED.spec.node, allocatable={"cpu": 1})}, 8, id="else the GPUs of the offer"),
        pytest.param({"node": None}, 8, id="also without any plan"),
        pytest.param({"node": None, "offer": None}, 1, id="else a single one"),
    ],
)
def test_the_gpus_that_must_be_allocatable(spec, least):
    of = replace(PLANNED, spec=replace(PLANNED.spec, **spec))

    assert gpus_allocatable(of, node(gpus=least))
    assert not gpus_allocatable(of, node(gpus=least - 1))


def test_a_machine_that_has_been_ready_needs_one_gpu_and_one_that_was_only_asked_for_all():
    ready = Transition(state=InstanceState.READY, at=NOW, reason="Ready")
    launched = Transition(state=InstanceState.LAUNCHED, at=NOW, reason="Launched")
    one = node(gpus=1)
    assert gpus_allocatable(record(transitions=(launched, ready)), one)
    assert not gpus_allocatable(record(transitions=(launched,)), one)
    assert not gpus_allocatable(record(state=None), one)


def test_other_devices_of_the_plan_must_be_allocatable_too():
    of = record(planned={"allocatable": {GPU: 8, "rdma/hca": 1}})

    assert not gpus_allocatable(of, node())


def test_a_gpu_is_one_of_the_devices_that_were_planned():
    planned = record(planned={"allocatable": {GPU: 8, "cpu": 8}})
    assert has_a_gpu(planned, node(gpus=1, cpu=0))
    assert not has_a_gpu(planned, node(gpus=0, cpu=64_000))
