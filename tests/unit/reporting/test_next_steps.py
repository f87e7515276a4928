"""What comes next for pods and GPUInstances, as `forebay explain` says it."""

from datetime import timedelta

import pytest

from forebay.api.gpu_instance import Transition
from forebay.reporting.explanations import explain_instance, explain_pod
from forebay.reporting.next_steps import scheduler_name
from tests.unit.reporting.objects import NOW, S, before, cluster_view, event, pod, pool, record, running


def next_of(explained, *records, events=(), **fields):
    return explain_pod(explained, cluster_view(*records, **fields), list(events)).next


def next_of_instance(machine, **fields):
    return explain_instance(machine, cluster_view(machine, **fields), []).next


def test_a_waiting_pod_shows_which_instance_launches_for_it_and_its_deadline():
    launching = record(state=S.LAUNCHED, deadline=NOW + timedelta(minutes=4))

    assert next_of(pod(), launching, nodes={}) == (
        "m1 must be a Ready node with its GPUs by 12:04:00 UTC (in 4m). Otherwise Forebay powers off m1, lets it cool "
        "down, and launches other capacity."
    )


def test_a_pod_that_nothing_fits_shows_the_last_event_of_its_own():
    events = [event("Too large for any machine."), event("Not this.", about="team/other")]

    assert next_of(pod(), events=events) == "NoOfferFits (30s ago): Too large for any machine."


def test_what_the_condition_of_a_pod_says_comes_before_an_event_which_may_be_older():
    told = pod(capacity="LimitReached: No room.")

    assert next_of(told, events=[event("Too large.")]) == "LimitReached: No room."
    assert explain_pod(told, cluster_view(), []).reason == "LimitReached"


def test_without_a_running_operator_nothing_is_said_to_happen():
    launching = record(state=S.LAUNCHED, deadline=NOW + timedelta(minutes=4))

    assert next_of(pod(), launching, operator_running=False).startswith("No operator is running")
    assert "No operator is running" in next_of(pod(), events=[event("Too large.")], operator_running=False)
    assert next_of_instance(record(), operator_running=False).startswith("No operator is running")


def test_where_leases_cannot_be_read_the_operator_is_assumed_to_run():
    assert next_of(pod(), operator_running=None).startswith("The operator has not decided yet")


@pytest.mark.parametrize(
    ("explained", "words"),
    [
        (pod(gates=("example.com/hold",)), "The controller that set example.com/hold must remove it"),
        (pod(gpus=0), "must request a GPU resource such as nvidia.com/gpu"),
        (pod(unschedulable_since=None), "kube-scheduler tries to schedule the pod (created 3m ago)"),
        (pod(deleted=before(seconds=5)), "needs no capacity any more"),
        (pod(nominated_node="m1"), "binds the pod to m1"),
        (pod(gates=("forebay.dev/budget",)), "the operator removes the gate within seconds"),
    ],
    ids=["gated", "no GPU", "not yet scheduled", "deleted", "preempting", "budget has room"],
)
def test_a_pod_that_does_not_wait_for_capacity_shows_what_would_help(explained, words):
    assert words in next_of(explained)


def test_the_default_scheduler_is_called_kube_scheduler():
    assert scheduler_name(pod()) == "kube-scheduler"


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (S.REQUESTED, "Forebay calls webhook to power on m1 now."),
        (S.JOINED, "m1 becomes a Ready node with its GPUs; there is no deadline."),
        (S.DRAINING, "Pods on m1 are evicted as their disruption budgets allow; then Forebay powers off m1."),
        (S.TERMINATING, "Forebay repeats the power-off of m1 until webhook confirms it; billed until then."),
        (S.GONE, "Nothing. m1 is gone, as webhook has confirmed. The record is kept for an hour."),
    ],
)
def test_every_state_of_an_instance_has_its_next_step(state, sentence):
    assert next_of_instance(record(state=state)) == sentence


def test_an_instance_that_failed_shows_until_when_it_cools_down_and_how_to_end_that():
    steps = (
        Transition(state=S.TERMINATING, at=before(minutes=2), reason="JoinTimeout", message="No node."),
        Transition(state=S.GONE, at=before(minutes=1), reason="Terminated", message="Off."),
    )
    failed = record(state=S.GONE, transitions=steps, failures=1)

    assert next_of_instance(failed) == (
        "Forebay does not power it on again before 12:03:00 UTC (in 3m): m1 failed 2m ago (JoinTimeout); next attempt "
        "in 3m. m1 is gone, as webhook has confirmed. The record is kept for an hour. To end the cooldown now, delete "
        "the record: kubectl delete gpuinstance m1"
    )


def test_an_idle_instance_shows_when_it_is_powered_off():
    idle = record(idle_since=before(minutes=1))

    assert next_of_instance(idle) == (
        "m1 has been idle for 60s. Forebay powers off m1 at 12:04:00 UTC (in 4m): consolidateAfter of pool lab is 5m."
    )
    assert "pool lab never consolidates idle nodes" in next_of_instance(idle, pools=(pool(after="Never"),))
    found_on = record(pool=None, idle_since=before(minutes=1))
    assert "belongs to no pool" in next_of_instance(found_on)
    overdue = next_of_instance(record(idle_since=before(minutes=6)))
    assert "as soon as disruption budgets and the scale-down interval allow" in overdue


def test_an_instance_with_pods_on_its_node_stays():
    assert next_of_instance(record(), pods=[running()]) == "m1 stays while pods run on it (now 1: team/train)."
