"""Which pods are demand, and the reason of every other pod."""

from datetime import timedelta

import pytest

from forebay.demand.assessment import assess, not_demand
from forebay.demand.scheduler_waits import FIRST_REPORT, PREEMPTION, SchedulerWaits, scheduler_waits
from forebay.model.reasons import Reason
from forebay.model.workloads import Phase
from tests.unit.demand.builders import NOW, ago, node, pod


def reason_of(one, **options):
    found = not_demand(one, None, NOW, **options)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.example/gpu", "nvidia.com/mig-1g.10gb"]
)
def test_an_unschedulable_pod_that_requests_a_gpu_of_any_vendor_is_demand(resource):
    waiting = pod(resource=resource)
    assert assess([waiting], None, NOW).demand == (waiting,)


def test_the_user_may_name_the_resources_that_count():
    slices, whole = pod("slices", resource="nvidia.com/mig-1g.5gb"), pod("whole")
    assert assess([slices, whole], {"nvidia.com/mig-1g.5gb"}, NOW).demand == (slices,)
    assert assess([slices, whole], {"nvidia.com/gpu"}, NOW).demand == (slices, whole)
    assert assess([slices, whole], {"amd.com/gpu"}, NOW).demand == ()
    named = not_demand(whole, {"a/x", "b/y"}, NOW)
    assert named is not None
    assert "a/x or b/y" in named.sentence


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"phase": Phase.SUCCEEDED}, Reason.ENDED, "Succeeded"),
        ({"node": "n1", "unschedulable_since": None}, Reason.BOUND, "n1"),
        ({"deleted": ago(seconds=30)}, Reason.POD_DELETED, "30s ago"),
        ({"scheduling_gates": ("a.example/quota", "b.example/wait")}, Reason.GATED, "a.example/quota, b.example/wait"),
        ({"unschedulable_since": None}, Reason.NOT_YET_SCHEDULED, "created 5m ago"),
        ({"unschedulable_since": None, "scheduler_name": "volcano"}, Reason.OTHER_SCHEDULER, "volcano"),
        ({"nominated_node": "n1"}, Reason.PREEMPTING, "n1"),
    ],
)
def test_every_other_gpu_pod_has_a_reason(changes, reason, says):
    other = pod(**changes)
    assessment = assess([other], None, NOW)
    assert assessment.demand == ()
    (found,) = assessment.not_demand
    assert (found.pod, found.reason) == (other, reason)
    assert says in found.sentence


def test_a_pod_of_another_scheduler_is_demand_once_that_marks_it_unschedulable():
    assert reason_of(pod(scheduler_name="volcano")) is None


def test_pods_without_gpu_requests_are_skipped_but_can_be_explained():
    other = pod(resource="example.com/fpga")
    assert assess([other], None, NOW) == assess([], None, NOW)
    assert reason_of(other) is Reason.NO_GPU_ASKED


def test_gpus_that_only_resource_claims_request_are_not_bought_and_the_pod_is_told_what_to_request():
    assert reason_of(pod(gpus=0, resource_claims=True)) is Reason.CLAIMS_NOT_SERVED
    assert reason_of(pod(gpus=1, resource_claims=True)) is None, "its GPUs are bought, whatever else it claims"


def test_a_pod_that_the_scheduler_owes_a_report_is_expected_on_any_node_and_one_that_a_gate_holds_is_not():
    unreported = pod(unschedulable_since=None)
    gated = pod(unschedulable_since=None, scheduling_gates=("a.example/quota",))
    waits = scheduler_waits(SchedulerWaits(), [unreported, gated], ago(minutes=1))
    assert waits.expected(unreported, NOW)
    assert not waits.expected(unreported, NOW + FIRST_REPORT), "a scheduler may be down"
    assert not waits.expected(gated, NOW), "the scheduler does not try it before the gate is gone"


def test_a_pod_that_forebay_nominated_is_still_demand():
    ours = pod(nominated_node="n1")
    assert assess([ours], None, NOW, planned_nodes={ours.uid: {"n1"}}).demand == (ours,)
    assert assess([ours], None, NOW, planned_nodes={ours.uid: {"n2"}}).demand == ()


@pytest.mark.parametrize("nodes", [{}, {"n1": node("n1", ready=False)}, {"n1": node("n1", unschedulable=True)}])
def test_a_nomination_to_a_node_that_is_gone_or_down_does_not_count(nodes):
    assert reason_of(pod(nominated_node="n1"), nodes=nodes) is None
    assert reason_of(pod(nominated_node="n1"), nodes={"n1": node("n1")}) is Reason.PREEMPTING


def test_a_nomination_that_leads_to_nothing_is_believed_for_five_minutes():
    nodes = {name: node(name) for name in ("n1", "n2")}

    def reason_at(now, waits, nominated):
        (found,) = assess([pod(nominated_node=nominated)], None, now, nodes=nodes, waits=waits).not_demand or (None,)
        return found and found.reason

    first = scheduler_waits(SchedulerWaits(), [pod(nominated_node="n1")], NOW - PREEMPTION)
    assert reason_at(NOW - timedelta(seconds=1), first, "n1") is Reason.PREEMPTING
    later = scheduler_waits(first, [pod(nominated_node="n1")], NOW)
    assert reason_at(NOW, later, "n1") is None, "it is demand"
    elsewhere = scheduler_waits(later, [pod(nominated_node="n2")], NOW)
    assert reason_at(NOW, elsewhere, "n2") is Reason.PREEMPTING, "the scheduler has found other pods to preempt"
