"""On which nodes nothing runs any more, and since when, whatever their pods still say."""

from datetime import timedelta

import pytest

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import OUT_OF_SERVICE_TAINT, OUT_OF_SERVICE_VALUE
from forebay.engine.ledger.machines_off import machines_off
from forebay.model.requirements import Effect, Taint
from forebay.model.sources import Delivery
from tests.unit.demand.builders import ago, node, record

OURS = Taint(OUT_OF_SERVICE_TAINT, OUT_OF_SERVICE_VALUE, Effect.NO_EXECUTE)
OFF, LATER, SOONER = ago(minutes=9), ago(minutes=3), ago(minutes=30)
DOWN = {"ready": False, "ready_since": None, "unready_since": OFF}


def gone(name="n1", since=LATER, **status):
    return record(name, InstanceState.GONE, since=since, **status)


def found(records=(), nodes=(), before=()):
    by_name = {each.name: each for each in nodes}
    return machines_off(records, nodes, by_name.get, dict(before))


@pytest.mark.parametrize(
    ("records", "nodes", "before", "off"),
    [
        pytest.param([gone()], [], {}, {"n1": LATER}, id="its node went with it"),
        pytest.param([gone()], [node(**DOWN)], {}, {"n1": LATER}, id="its node is left"),
        pytest.param([gone()], [node()], {}, {}, id="somebody else has switched it on"),
        pytest.param([gone(billed_until=SOONER)], [], {}, {"n1": SOONER}, id="billed until earlier"),
        pytest.param([gone(since=None)], [], {}, {}, id="nobody knows since when"),
        pytest.param([gone(since=None, billed_until=OFF)], [], {}, {"n1": OFF}, id="billed until"),
        pytest.param([record("n1", InstanceState.TERMINATING)], [node(**DOWN)], {}, {}, id="not proven yet"),
        pytest.param([gone(), record("n1", InstanceState.LAUNCHED)], [node(**DOWN)], {}, {}, id="it boots again"),
        pytest.param(
            [gone(), record("n2", InstanceState.READY)], [node(**DOWN)], {}, {"n1": LATER}, id="another one boots"
        ),
        pytest.param([gone(delivers=Delivery.CONTAINER)], [], {}, {}, id="a container has no node"),
        pytest.param([], [node(taints=(OURS,), **DOWN)], {}, {"n1": OFF}, id="our taint says so"),
        pytest.param([], [node(taints=(OURS,))], {}, {}, id="ready in spite of our taint"),
        pytest.param(
            [], [node(taints=(OURS,), **{**DOWN, "unready_since": None})], {}, {}, id="it was never ready at all"
        ),
        pytest.param([], [node(taints=(Taint(OURS.key, "", OURS.effect),), **DOWN)], {}, {}, id="the taint of another"),
        pytest.param([], [node(**DOWN)], {}, {}, id="a node that is not ready"),
        pytest.param([], [node(**DOWN)], {"n1": SOONER}, {"n1": SOONER}, id="off before"),
        pytest.param([], [node()], {"n1": SOONER}, {}, id="ready again"),
        pytest.param([], [], {"n1": SOONER}, {}, id="its node is deleted"),
        pytest.param(
            [record("n1", InstanceState.LAUNCHED)], [node(**DOWN)], {"n1": SOONER}, {"n1": SOONER}, id="it boots"
        ),
    ],
)
def test_a_machine_is_off_from_the_proof_until_its_node_is_ready_again(records, nodes, before, off):
    assert found(records, nodes, before) == off


def test_every_machine_is_looked_at():
    records = [gone("n1"), record("n2", InstanceState.READY), gone("n3", since=LATER + timedelta(seconds=1))]
    nodes = [node("n2"), node("n3", **DOWN), node("n4", taints=(OURS,), **DOWN), node("n5", taints=(OURS,), **DOWN)]
    assert found(records, nodes, {"n2": SOONER, "n5": SOONER}) == {
        "n1": LATER,
        "n3": LATER + timedelta(seconds=1),
        "n4": OFF,
        "n5": SOONER,
    }
