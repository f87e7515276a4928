"""Nodes get what is planned for them, and the taint by which pods of a machine that is off recover."""

import pytest

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import OUT_OF_SERVICE_TAINT, OUT_OF_SERVICE_VALUE
from forebay.api.parts import TaintEffect, TaintEntry
from forebay.model.requirements import Effect, Taint
from forebay.model.sources import Delivery
from forebay.reconcile.node_changes import out_of_service, sync_nodes
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, node, record, running

S = InstanceState
OUT = Taint(OUT_OF_SERVICE_TAINT, OUT_OF_SERVICE_VALUE, Effect.NO_EXECUTE)


def synced(planned, there=None, *, state=S.READY, besides=(), **status):
    made = record(state=state, planned=planned, **status)
    there = node() if there is None else there
    return sync_nodes(Snapshot(now=NOW, nodes={there.name: there}), [made], besides)


def test_labels_that_a_node_lacks_are_written_and_others_only_set_back_where_they_are_ours():
    planned = {"labels": {"team": "a", "tier": "gold", "forebay.dev/pool": "new", "tgp.io/x": "1"}}
    there = node(labels={"tier": "silver", "forebay.dev/pool": "old", "tgp.io/x": "1"})

    (found,) = synced(planned, there).decisions

    assert found.labels == {"team": "a", "forebay.dev/pool": "new"}
    assert (found.taints, found.annotations) == ((), {})
    same = node(labels={"team": "b", "tier": "silver", "forebay.dev/pool": "new", "tgp.io/x": "1"})
    assert synced(planned, same) == ((), frozenset())


def test_labels_of_kubernetes_are_left_to_the_kubelet_but_for_the_well_known_ones():
    planned = {"labels": {"node-role.kubernetes.io/control-plane": "", "topology.kubernetes.io/zone": "a"}}
    (found,) = synced(planned).decisions
    assert found.labels == {"topology.kubernetes.io/zone": "a"}


def test_taints_that_a_node_lacks_are_written_unless_they_would_evict():
    taints = (
        TaintEntry(key="team", value="a", effect=TaintEffect.NO_SCHEDULE),
        TaintEntry(key="bare", effect=TaintEffect.PREFER_NO_SCHEDULE),
        TaintEntry(key="evicts", effect=TaintEffect.NO_EXECUTE),
        TaintEntry(key="there", value="x", effect=TaintEffect.NO_SCHEDULE),
    )
    there = node(taints=(Taint("there", "y"), Taint("bare", "", Effect.NO_SCHEDULE)))
    (found,) = synced({"taints": taints}, there).decisions
    assert found.taints == (Taint("team", "a"), Taint("bare", "", Effect.PREFER_NO_SCHEDULE))


def test_annotations_are_written_once_and_again_when_the_plan_has_others():
    (found,) = synced({"annotations": {"b": "2", "a": "1"}}).decisions
    assert {"a": "1", "b": "2"}.items() <= found.annotations.items()
    (mark,) = found.annotations.keys() - {"a", "b"}
    written = node(annotations={mark: found.annotations[mark]})
    assert synced({"annotations": {"a": "1", "b": "2"}}, written).decisions == (), "whatever their order"
    assert synced({"annotations": {"a": "1"}}, written).decisions != ()


@pytest.mark.parametrize("state", [S.LAUNCHED, S.DRAINING, S.GONE, None])
def test_only_nodes_that_have_registered_and_are_not_leaving_are_changed(state):
    assert synced({"labels": {"team": "a"}}, state=state) == ((), frozenset())


def test_a_node_that_is_not_ready_or_changed_by_others_now_waits():
    planned = {"labels": {"team": "a"}}
    assert synced(planned, node(ready=False)) == ((), frozenset())
    assert synced(planned, node("other")) == ((), frozenset())
    assert synced(planned, besides={"n1"}) == ((), {"n1"}), "its change may not be the last"
    moved = synced(planned, node_name="n2")
    assert moved.pending == {"n1"}, "the record has another node than the planned one"


def off(*pods, there=None, others=(), delivers=Delivery.POWER):
    there = there if there is not None else node(ready=False)
    found = out_of_service(
        Snapshot(
            now=NOW,
            records=(record(state=S.GONE, delivers=delivers), *others),
            nodes={"n1": there},
            pods_by_node={"n1": pods},
        )
    )
    return [(each.taints, each.remove) for each in found]


def test_pods_of_a_machine_that_is_proven_off_are_freed_by_the_out_of_service_taint():
    assert off(running()) == [((OUT,), ())]
    assert off() == [], "nobody is on it"
    assert off(running(), there=node()) == [], "it is on again"
    assert off(running(), others=[record(state=S.LAUNCHED)]) == [], "it is powered on again"
    assert off(running(), delivers=Delivery.NODE) == [], "a rented one's Node is deleted instead"
    assert off(running(), there=node(ready=False, taints=(OUT,))) == [], "it has the taint"
    theirs = Taint(OUT_OF_SERVICE_TAINT, "somebody", Effect.NO_EXECUTE)
    assert off(running(), there=node(ready=False, taints=(theirs,))) == []


def test_the_out_of_service_taint_goes_when_the_machine_is_back_unless_somebody_else_set_it():
    theirs = Taint(OUT_OF_SERVICE_TAINT, "somebody", Effect.NO_EXECUTE)
    assert off(there=node(taints=(Taint("a"), OUT))) == [((), (OUT,))]
    assert off(there=node(ready=False, taints=(OUT,)), others=[record(state=S.LAUNCHED)]) == [((), (OUT,))]
    assert off(there=node(taints=(theirs,))) == []
