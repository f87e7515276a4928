"""Machines that people hold, and pods that keep a machine."""

import pytest
from msgspec.structs import replace

from forebay.api.names import CORDONED_ANNOTATION
from forebay.demand.maintenance import (
    held_by_people,
    keeps_machine,
    maintenance,
    may_be_moved,
    must_stay,
    waits_for_its_node,
)
from forebay.model.requirements import Toleration
from forebay.model.workloads import Owner
from tests.unit.demand.builders import node, record, running, shape

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def tolerating(*tolerations, **fields):
    return replace(running(**fields), shape=shape(tolerations=tolerations))


def for_ever(key, **fields):
    return Toleration(key, "Exists", **fields)


@pytest.mark.parametrize(
    ("tolerations", "waits"),
    [
        ((for_ever(NOT_READY), for_ever(UNREACHABLE)), True),
        ((for_ever(""),), True),
        ((for_ever(NOT_READY),), False),
        ((for_ever(NOT_READY), for_ever(UNREACHABLE, toleration_seconds=300)), False),
        ((for_ever("other"), for_ever("another")), False),
        ((for_ever(NOT_READY, effect="NoSchedule"), for_ever(UNREACHABLE)), False),
        ((), False),
    ],
)
def test_a_pod_that_tolerates_a_lost_node_without_a_limit_waits_for_it(tolerations, waits):
    assert waits_for_its_node([tolerating(*tolerations)], by_toleration=True) == ("default/train" if waits else None)
    assert waits_for_its_node([tolerating(*tolerations)], by_toleration=False) is None


def test_one_pod_that_waits_is_enough_and_is_named():
    pods = [running("a"), tolerating(for_ever(""), name="b"), running("c")]
    assert waits_for_its_node(pods, by_toleration=True) == "default/b"
    assert waits_for_its_node([], by_toleration=True) is None


@pytest.mark.parametrize(
    ("annotations", "stays"),
    [
        ({"forebay.dev/do-not-disrupt": "true"}, True),
        ({"karpenter.sh/do-not-disrupt": "true"}, True),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, True),
        ({"forebay.dev/do-not-disrupt": "false"}, False),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, False),
        ({}, False),
    ],
)
def test_a_pod_whose_owner_says_so_must_stay(annotations, stays):
    pod = replace(running(gpus=0), annotations=annotations)
    assert must_stay(pod) is stays
    assert keeps_machine(pod, None) is stays
    assert waits_for_its_node([pod], by_toleration=False) == ("default/train" if stays else None)


def test_a_pod_with_a_gpu_keeps_its_machine():
    assert keeps_machine(running(gpus=1), None)
    assert not keeps_machine(running(gpus=1), {"example.com/gpu"})


MARK = "forebay.dev/maintenance"


@pytest.mark.parametrize(
    ("there", "by_cordon", "why"),
    [
        (node(annotations={MARK: "new fans"}), False, f"node n1 has the annotation {MARK}: new fans"),
        (node(annotations={MARK: "false"}), True, None),
        (node(unschedulable=True), True, "node n1 is cordoned, and not by Forebay"),
        (node(unschedulable=True), False, None),
        (node(unschedulable=True, annotations={MARK: ""}), False, f"node n1 has the annotation {MARK}"),
        (node(), True, None),
        (None, True, None),
    ],
    ids=["marked", "not marked", "cordon", "cordon of a rented machine", "both", "nothing", "no node"],
)
def test_people_hold_a_machine_by_a_mark_and_where_its_delivery_says_so_by_a_cordon(there, by_cordon, why):
    assert held_by_people(record(), there, held_by_cordon=by_cordon) == why


def test_a_long_reason_for_maintenance_is_cut():
    assert maintenance(node(annotations={MARK: "x" * 500})) == f"node n1 has the annotation {MARK}: {'x' * 200}"


def test_a_pod_with_claims_may_use_a_gpu_that_it_does_not_request():
    claims = replace(running(gpus=0), shape=shape(gpus=0, resource_claims=True))
    assert keeps_machine(claims, None)
    assert not keeps_machine(running(gpus=0), None)


@pytest.mark.parametrize(
    ("moved", "may"),
    [
        (running(owner=Owner("ReplicaSet", "web", "u")), True),
        (running(owner=Owner("Job", "train", "u")), False),
        (running(), False),
        (running(owner=Owner("ReplicaSet", "web", "u"), annotations={"forebay.dev/do-not-disrupt": "true"}), False),
    ],
    ids=["comes back", "begins anew", "would be gone", "must stay"],
)
def test_only_a_pod_that_its_controller_creates_again_without_a_loss_is_moved(moved, may):
    assert may_be_moved(moved) is may


@pytest.mark.parametrize("key", ["forebay.dev/do-not-disrupt", "karpenter.sh/do-not-disrupt"])
def test_people_hold_a_machine_by_annotations_of_its_record_or_its_node(key):
    marked = replace(record(), metadata=replace(record().metadata, annotations={key: "true"}))
    assert held_by_people(marked, node(), held_by_cordon=False) == f"GPUInstance n1 has the annotation {key}"
    held = held_by_people(record(), node(annotations={key: "true"}), held_by_cordon=False)
    assert held == f"node n1 has the annotation {key}"
    in_maintenance = replace(record(), metadata=replace(record().metadata, annotations={MARK: "fans"}))
    assert (
        held_by_people(in_maintenance, None, held_by_cordon=False) == f"GPUInstance n1 has the annotation {MARK}: fans"
    )


def test_our_own_cordon_is_no_maintenance():
    ours = node(unschedulable=True, annotations={CORDONED_ANNOTATION: "2026-01-01T00:00:00Z"})
    assert maintenance(ours) is None
    assert maintenance(None) is None
