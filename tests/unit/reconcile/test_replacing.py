"""Nodes that keep a pool's minNodes are replaced before they go; others without pods just go."""

import msgspec
import pytest

from forebay.api.gpu_node_pool import GPUNodePool
from forebay.disruption.consolidation import ScaleDown
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.reconcile.isolation import Faults
from forebay.reconcile.replacing import replace_first
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, node, record


def pool(min_nodes):
    spec = {"nodeClassRef": {"name": "gpu"}, "minNodes": min_nodes}
    return msgspec.convert({"metadata": {"name": "lab", "namespace": "team"}, "spec": spec}, GPUNodePool)


@pytest.mark.parametrize(("min_nodes", "goes"), [(0, True), (1, True), (2, False)])
def test_a_drifted_node_without_pods_goes_at_once_where_enough_others_are_ready(min_nodes, goes):
    two = tuple(record(name, delivers=Delivery.NODE, pool="lab") for name in ("n1", "n2"))
    snapshot = Snapshot(
        now=NOW, pools=(pool(min_nodes),), records=two, nodes={name: node(name) for name in ("n1", "n2")}
    )
    drifted = ScaleDown(record=two[0], reason=Reason.DRIFTED, sentence="Drifted.")
    faults = Faults()

    found = replace_first(snapshot, [drifted], None, faults=faults, may_launch=True)

    assert faults.errors == {}
    assert bool(found.leaving) is goes
    assert bool(found.decisions) is not goes, "else its condition says what it waits for"
