"""Nodes that keep a pool's minNodes are replaced before they go; others without pods just go."""

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import ReplacedInstance
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.parts import Truth
from forebay.demand.replacements import REPLACEMENT, condition_of
from forebay.disruption.consolidation import ScaleDown
from forebay.lifecycle.steps import WriteStatus
from forebay.lifecycle.transitions import with_condition
from forebay.model.quantities import Resources
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner
from forebay.reconcile.buying import FIRST_OFFERS
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.isolation import Faults
from forebay.reconcile.replacing import replace_first
from forebay.reconcile.snapshot import OperatorRules, Snapshot
from tests.unit.demand.builders import NOW, node, record, running
from tests.unit.reconcile.test_static_capacity import CLASS, SOURCE, sized


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


def test_a_drifted_node_without_a_pool_has_no_minimum_to_keep():
    alone = record("n1", delivers=Delivery.NODE)
    snapshot = Snapshot(now=NOW, pools=(pool(2),), records=(alone,), nodes={"n1": node("n1")})
    drifted = ScaleDown(record=alone, reason=Reason.DRIFTED, sentence="Drifted.")
    faults = Faults()

    found = replace_first(snapshot, [drifted], None, faults=faults, may_launch=True)

    assert (faults.errors, len(found.leaving)) == ({}, 1)


class Drifted:
    """A node with a pod, of an earlier template, in a pool that can buy another; followed from tick to tick."""

    def __init__(self, *others, nodes=(), **fields):
        self.old = record("n1", delivers=Delivery.NODE, pool="pool")
        self.pods = {"n1": (running("web", "n1", 1, owner=Owner("ReplicaSet", "web", "u")),)}
        self.snapshot = Snapshot(
            now=NOW,
            pools=(sized(0),),
            classes=(CLASS,),
            sources={SOURCE.key: SOURCE},
            records=(self.old, *others),
            nodes={each.name: each for each in (node("n1", gpus=1), *nodes)},
            pods_by_node=self.pods,
            used={"n1": Resources({"nvidia.com/gpu": 1})},
            rules=OperatorRules(namespace="team"),
            **fields,
        )

    def tick(self, *, due=True, may_launch=True):
        leaving = ScaleDown(record=self.snapshot.records[0], reason=Reason.DRIFTED, sentence="Drifted.")
        found = replace_first(self.snapshot, [leaving] if due else [], None, faults=Faults(), may_launch=may_launch)
        for each in found.decisions:
            if isinstance(each, WriteStatus):
                told = replace(self.snapshot.records[0], status=each.status)
                self.snapshot = replace(self.snapshot, records=(told, *self.snapshot.records[1:]))
        return found

    def told(self):
        found = condition_of(self.snapshot.records[0], REPLACEMENT)
        return None if found is None else (found.status, found.reason)


def test_a_replacement_is_announced_then_ordered_and_the_node_goes_when_it_is_ready():
    drifted = Drifted()
    first = drifted.tick()
    assert (first.leaving, [type(each).__name__ for each in first.decisions]) == ((), ["WriteStatus"])
    assert drifted.told() == (Truth.TRUE, Reason.REPLACEMENT_NEEDED)
    ordered = drifted.tick()
    (create,) = [each for each in ordered.decisions if isinstance(each, CreateInstance)]
    assert [each.name for each in create.spec.replaces] == ["n1"]
    assert ordered.leaving == ()
    assert not [each for each in drifted.tick(may_launch=False).decisions if isinstance(each, CreateInstance)]


def test_a_replacement_whose_node_is_not_ready_just_now_takes_no_pods():
    old = record("n1", delivers=Delivery.NODE, pool="pool")
    told = ReplacedInstance(name="n1", uid=old.uid)
    new = record("n2", delivers=Delivery.NODE, pool="pool")
    new = replace(new, spec=replace(new.spec, replaces=(told,)))

    drifted = Drifted(new, nodes=[node("n2", ready=False)])
    drifted.snapshot = replace(drifted.snapshot, records=(_announced(old), new))
    assert drifted.tick().leaving == ()
    drifted.snapshot = replace(drifted.snapshot, nodes={**drifted.snapshot.nodes, "n2": node("n2")})
    (leaving,) = drifted.tick().leaving
    assert leaving.sentence == "Drifted. Its replacement n2 is Ready."


def _announced(old):
    needed = {"holds": True, "reason": Reason.REPLACEMENT_NEEDED, "sentence": "A replacement is launched first."}
    return replace(old, status=with_condition(old.status, REPLACEMENT, now=NOW, **needed))


def test_a_node_whose_pods_have_room_elsewhere_goes_at_once():
    found = Drifted(nodes=[node("free")]).tick()

    (leaving,) = found.leaving
    assert leaving.sentence == "Drifted. Its pods have room on other nodes."


def test_a_node_that_nothing_can_replace_keeps_its_pods_and_says_so_once():
    drifted = Drifted()
    drifted.snapshot = replace(drifted.snapshot, sources={})

    first = drifted.tick()
    assert first.leaving == ()
    assert drifted.told() == (Truth.FALSE, Reason.REPLACEMENT_UNAVAILABLE)
    assert drifted.tick().decisions == (), "the sentence counts minutes"


def test_nothing_is_said_or_ordered_while_the_first_offers_of_a_source_may_come():
    """After a start: what is known first may be dearer, or nothing at all."""
    drifted = Drifted()
    starting = replace(SOURCE, key=SOURCE.key._replace(provider="other"), offers=None, since=NOW)
    drifted.snapshot = replace(drifted.snapshot, sources={SOURCE.key: SOURCE, starting.key: starting})
    assert drifted.tick().decisions == ()
    drifted.snapshot = replace(drifted.snapshot, now=NOW + FIRST_OFFERS)
    assert drifted.tick().decisions != ()


def test_a_node_that_is_not_to_be_replaced_any_more_is_told_so_once():
    drifted = Drifted()
    drifted.tick()
    drifted.tick(due=False)
    assert drifted.told() == (Truth.FALSE, Reason.NOT_NEEDED)
    assert drifted.tick(due=False).decisions == ()


def nodes_with_a_pod(*names, free=()):
    """Nodes with 8 GPUs of which a pod uses one, and others of which as many GPUs are free as stated."""
    used = {**dict.fromkeys(names, 1), **{name: 8 - gpus for name, gpus in dict(free).items()}}
    return Snapshot(
        now=NOW,
        pools=(sized(0),),
        classes=(CLASS,),
        sources={SOURCE.key: SOURCE},
        records=tuple(record(name, delivers=Delivery.NODE, pool="pool") for name in used),
        nodes={name: node(name) for name in used},
        pods_by_node={
            name: (running(f"web-{name}", name, gpus, owner=Owner("ReplicaSet", "web", "u")),)
            for name, gpus in used.items()
        },
        used={name: Resources({"nvidia.com/gpu": gpus}) for name, gpus in used.items()},
        rules=OperatorRules(namespace="team"),
    )


def drained(snapshot, *reasons):
    """Names of the nodes that go, of the first ones, which are due for these reasons."""
    due = [
        ScaleDown(record=each, reason=reason, sentence="Due.")
        for each, reason in zip(snapshot.records, reasons, strict=False)
    ]
    found = replace_first(snapshot, due, None, faults=Faults(), may_launch=True)
    return [each.record.metadata.name for each in found.leaving]


@pytest.mark.parametrize("reason", [Reason.DRIFTED, Reason.RECLAIMED])
def test_of_two_nodes_that_have_room_for_each_others_pods_only_one_goes(reason):
    """Both would be drained at once, and the pods of both would wait for a new machine."""
    two = nodes_with_a_pod("n1", "n2")
    assert drained(two, reason, reason) == ["n1"]
    assert drained(two, reason, Reason.IDLE) == ["n2"], "a node that goes is no room"


def test_the_pods_of_two_nodes_are_not_moved_to_the_same_room():
    assert drained(nodes_with_a_pod("n1", "n2", free={"n3": 1}), Reason.DRIFTED, Reason.EXPIRED) == ["n1"]


def test_a_node_whose_replacement_is_ready_goes_beside_one_whose_pods_move_to_other_room():
    three = nodes_with_a_pod("n1", "n2", free={"n3": 1})
    old = three.records[1]
    new = record("n4", delivers=Delivery.NODE, pool="pool")
    new = replace(new, spec=replace(new.spec, replaces=(ReplacedInstance(name="n2", uid=old.uid),)))
    records = (three.records[0], _announced(old), *three.records[2:], new)
    assert drained(
        replace(three, records=records, nodes={**three.nodes, "n4": node("n4")}), Reason.DRIFTED, Reason.DRIFTED
    ) == ["n1", "n2"]
