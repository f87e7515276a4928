"""Drift: nodes whose pool or class has changed since their launch."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.gpu_node_pool import Disruption, DisruptionBudget
from forebay.demand.maintenance import may_be_moved
from forebay.disruption.consolidation import ScaleDownRules, scale_down
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner
from tests.unit.demand.builders import NOW, ago, running
from tests.unit.disruption.test_consolidation import POOL, machine, names, rented

SERVED = Owner("ReplicaSet", "serve", "u1")


def rules(templates=None, **disruption):
    budgets = (DisruptionBudget(nodes="100%"),)
    pools = {POOL: Disruption(**{"consolidate_after": "Never", "budgets": budgets, **disruption})}
    return ScaleDownRules(pools=pools, templates={POOL: "now"} if templates is None else templates)


def launched(name="r1", made_of="before", *, make=rented, owner=SERVED, **fields):
    pod = replace(running(), owner=owner)
    found = make(name, pods=[pod], **fields)
    return replace(found, record=replace(found.record, spec=replace(found.record.spec, template_hash=made_of)))


def aged(machine, created):
    metadata = replace(machine.record.metadata, creation_timestamp=created)
    return replace(machine, record=replace(machine.record, metadata=metadata))


def test_a_node_of_an_earlier_template_goes_and_the_sentence_says_why():
    (found,) = scale_down([launched()], NOW, rules())
    assert found.reason is Reason.DRIFTED
    assert found.sentence == (
        "Node r1 was launched from an earlier template of pool team/pool or of its class. Draining and terminating it; "
        "its pods get a new node."
    )


@pytest.mark.parametrize("made_of", ["now", None])
def test_a_node_of_this_template_or_of_an_unknown_one_stays(made_of):
    assert scale_down([launched(made_of=made_of)], NOW, rules()) == ()


def test_nothing_has_drifted_where_the_class_is_not_there():
    assert scale_down([launched()], NOW, rules(templates={})) == ()


def test_a_pool_whose_rules_are_not_understood_keeps_its_nodes():
    assert scale_down([launched()], NOW, ScaleDownRules(templates={POOL: "now"})) == ()


def test_an_owned_machine_does_not_drift():
    assert scale_down([launched(make=machine)], NOW, rules()) == ()


def test_only_nodes_in_service_drift():
    assert scale_down([launched(state=State.DRAINING)], NOW, rules(budgets=())) == ()


def test_a_node_without_a_pool_does_not_drift():
    assert scale_down([launched(pool=None, make=machine, delivers=Delivery.NODE)], NOW, rules()) == ()


@pytest.mark.parametrize(
    "owner", [None, Owner("Job", "train", "u2")], ids=["a pod without a controller", "a pod of a Job"]
)
def test_pods_that_would_lose_their_work_keep_the_node(owner):
    assert scale_down([launched(owner=owner)], NOW, rules()) == ()


def test_one_such_pod_is_enough():
    found = launched()
    several = replace(found, pods=(*found.pods, replace(running(), owner=Owner("Job", "train", "u2"))))
    assert scale_down([several], NOW, rules()) == ()


def test_a_pod_that_must_not_be_disrupted_is_not_moved():
    pod = replace(running(), owner=SERVED)
    assert may_be_moved(pod)
    assert not may_be_moved(replace(pod, annotations={"forebay.dev/do-not-disrupt": "true"}))


def test_the_budget_of_the_pool_limits_how_many_drift_at_a_time_and_the_oldest_goes_first():
    machines = [aged(launched("a-young"), ago(hours=1)), aged(launched("old"), ago(hours=9))]
    one = (DisruptionBudget(nodes=1),)
    assert names(scale_down(machines, NOW, rules(budgets=one))) == ["old"]
    none = (DisruptionBudget(nodes=0, reasons=("Drifted",)),)
    assert scale_down(machines, NOW, rules(budgets=none)) == ()


def test_a_node_that_is_idle_too_goes_as_idle():
    found = replace(launched(), pods=())
    (gone,) = scale_down([found], NOW, rules(consolidate_after="5m"))
    assert gone.reason is Reason.IDLE
