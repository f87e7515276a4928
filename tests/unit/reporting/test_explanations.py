"""What `forebay explain` answers: how an object stands, and why. What comes next is tested in `test_next_steps`."""

from datetime import timedelta

import pytest

from forebay.model.workloads import Owner
from forebay.reporting.cluster_view import JobView
from forebay.reporting.explanations import explain_instance, explain_job, explain_node, explain_pod
from tests.unit.reporting.objects import NOW, S, before, cluster_view, event, node, pod, record, running


def test_a_waiting_pod_shows_its_request_how_long_it_waits_and_the_schedulers_message():
    launching = record(state=S.LAUNCHED, deadline=NOW + timedelta(minutes=4))

    explanation = explain_pod(pod(), cluster_view(launching, nodes={}), [])

    assert explanation.reason == "CapacityLaunching"
    assert explanation.answer == (
        "Waiting for capacity: requests 1 GPU; kube-scheduler has found no node for 2m. "
        'Message of kube-scheduler: "0/1 nodes are available: 1 Insufficient nvidia.com/gpu".'
    )
    assert [machine.name for machine in explanation.machines] == ["m1"]


def test_failed_and_launching_instances_of_a_pod_are_both_shown():
    failed = record("m1", S.TERMINATING)
    launching = record("m2", S.LAUNCHING, deadline=NOW + timedelta(minutes=9))

    explanation = explain_pod(pod(), cluster_view(failed, launching), [])

    assert [machine.name for machine in explanation.machines] == ["m1", "m2"]
    assert explanation.next.startswith("m2 must be")


@pytest.mark.parametrize(
    ("explained", "reason"),
    [
        (pod(gates=("example.com/hold",)), "Gated"),
        (pod(gpus=0), "NoGPUAsked"),
        (pod(unschedulable_since=None), "NotYetScheduled"),
        (pod(deleted=before(seconds=5)), "PodDeleted"),
        (pod(nominated_node="m1"), "Preempting"),
        (running(), "Bound"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_that_does_not_wait_for_capacity_has_the_reason(explained, reason):
    explanation = explain_pod(explained, cluster_view(), [])

    assert explanation.reason == reason
    assert explanation.answer.startswith("Not waiting for capacity. ")


def test_a_pod_behind_the_budget_gate_is_held_by_a_budget():
    explanation = explain_pod(pod(gates=("forebay.dev/budget",)), cluster_view(), [])

    assert explanation.reason == "HeldByBudget"
    assert explanation.answer.startswith("Held by the scheduling gate forebay.dev/budget: ")


def test_a_bound_pod_shows_whether_forebay_powered_on_its_node():
    by_forebay = explain_pod(running(), cluster_view(record()), [])
    by_the_user = explain_pod(running(node="mine"), cluster_view(record()), [])

    assert by_forebay.answer.endswith("Forebay powered on m1 as GPUInstance m1, at $1.80/h.")
    assert by_the_user.answer.endswith("Forebay did not launch mine.")


def test_a_job_shows_its_unfinished_pods_and_the_next_step_of_a_waiting_one():
    job = JobView(namespace="team", name="sweep", completions=3, succeeded=1)
    owner = Owner(kind="Job", name="sweep", uid="j")
    pods = [running("a", owner=owner), pod("b", owner=owner)]
    events = {"team/b": [event("Too large.", about="team/b")]}

    explanation = explain_job(job, pods, cluster_view(record(pods=("a",))), [], events)

    assert explanation.answer == "Pods: 1 of 3 succeeded, 2 unfinished, 1 waiting for capacity."
    assert explanation.next == "NoOfferFits (30s ago): Too large."
    assert [each.about for each in explanation.pods] == ["Pod team/a", "Pod team/b"]


def test_a_suspended_job_shows_how_to_resume_it():
    job = JobView(namespace="team", name="sweep", suspended=True)

    assert "spec.suspend: false" in explain_job(job, [], cluster_view(), [], {}).next


def test_a_finished_job_needs_nothing():
    explanation = explain_job(JobView(namespace="team", name="sweep"), [], cluster_view(), [], {})

    assert (explanation.reason, explanation.next) == ("Ended", "Nothing. The Job has no pods that need capacity.")


def test_an_instance_shows_its_state_its_history_and_the_pods_on_its_node():
    view = cluster_view(record(), pods=[running(), running("other", node="elsewhere")])

    explanation = explain_instance(record(), view, [])

    (machine,) = explanation.machines
    assert explanation.answer == "Ready for 60s. It came."
    assert [(step.state, step.reason) for step in machine.history] == [
        ("Requested", "CapacityNeeded"),
        ("Ready", "NodeReady"),
    ]
    assert machine.pods == ["team/train"]
    assert machine.cost_exact == "3/50"


def test_a_node_shows_why_forebay_powered_it_on():
    view = cluster_view(record("m1", S.GONE, pods=("old",)), record(), pods=[running()])

    assert explain_node(node(), view, []).answer == (
        "Forebay powered on m1 for team/train, at $1.80/h. It is the cheapest that fits. Pods on the node: 1 "
        "(team/train)."
    )


def test_a_node_that_forebay_did_not_launch_is_not_managed():
    explanation = explain_node(node("mine"), cluster_view(record()), [])

    assert explanation.reason == "NotManaged"
    assert explanation.answer == "Forebay did not launch this node: no GPUInstance belongs to it."
    assert "neither terminates nor replaces" in explanation.next


def test_where_forebay_is_not_installed_the_answer_is_how_to_install_it():
    assert "forebay manifests install" in explain_pod(pod(), cluster_view(records=None), []).next
    assert "forebay manifests install" in explain_node(node(), cluster_view(records=None), []).next
