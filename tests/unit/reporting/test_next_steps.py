"""What comes next for pods and GPUInstances, as `forebay explain` says it."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import Transition
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.gpu_node_pool import Disruption
from forebay.api.meta import ObjectMeta
from forebay.api.parts import Condition, Truth
from forebay.model.quantities import Resources
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner, PodShape
from forebay.reconcile.orders import current_templates
from forebay.reporting.budget_waits import BudgetWait
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
        (S.JOINED, "m1 must be a Ready node with its GPUs; there is no deadline."),
        (S.DRAINING, "Pods on m1 are evicted as their disruption budgets allow; then Forebay powers off m1."),
        (S.TERMINATING, "Forebay repeats the power-off of m1 until webhook confirms it; billed until then."),
        (S.GONE, "Nothing. m1 is gone, as webhook has confirmed. The record is kept for an hour."),
    ],
)
def test_every_state_of_an_instance_has_its_next_step(state, sentence):
    assert next_of_instance(record(state=state)) == sentence


def test_a_record_without_a_status_is_about_to_be_launched():
    assert next_of_instance(replace(record(), status=None)) == "Forebay calls webhook to power on m1 now."


def test_a_machine_that_boots_for_pods_again_is_not_called_unneeded():
    """Its condition Idle is kept when it is idle no more."""
    used = Condition(type="Idle", status=Truth.FALSE, reason="InUse", message="", last_transition_time=NOW)
    booting = record(state=S.LAUNCHED, deadline=NOW + timedelta(minutes=4), conditions=(used,))
    assert next_of_instance(booting).startswith("m1 must be a Ready node with its GPUs by 12:04:00 UTC")
    idle = replace(used, status=Truth.TRUE)
    unneeded = record(state=S.LAUNCHED, deadline=NOW + timedelta(minutes=4), conditions=(idle,))
    assert "m1 boots for nobody" in next_of_instance(unneeded)


@pytest.mark.parametrize("state", [S.READY, S.DRAINING, S.TERMINATING, S.RUNNING, S.LAUNCHED])
def test_of_an_instance_whose_provider_is_not_configured_nothing_is_promised(state):
    found = record(state=state, reason="ProviderNotConfigured", idle_since=before(minutes=1))

    assert next_of_instance(found).startswith("Nothing, until webhook is configured for m1 again")


def test_a_machine_that_is_gone_needs_its_provider_no_more():
    gone = record(state=S.GONE, reason="ProviderNotConfigured")
    assert next_of_instance(gone).startswith("Nothing. m1 is gone")


def test_an_instance_that_failed_shows_until_when_it_cools_down_and_how_to_end_that():
    steps = (
        Transition(state=S.TERMINATING, at=before(minutes=2), reason="JoinTimeout", message="No node."),
        Transition(state=S.GONE, at=before(minutes=1), reason="Terminated", message="Off."),
    )
    failed = record(state=S.GONE, transitions=steps, failures=1)

    assert next_of_instance(failed) == (
        "Forebay does not power it on again before 12:03:00 UTC (in 3m): m1 failed at 11:58:00 UTC (JoinTimeout). "
        "m1 is gone, as webhook has confirmed. The record is kept for an hour. To end the cooldown now, delete "
        "the record: kubectl delete gpuinstance m1"
    )


def test_of_a_machine_that_was_never_started_no_confirmation_is_claimed():
    """Its provider may not have answered a single request."""
    steps = (
        Transition(state=S.REQUESTED, at=before(minutes=2), reason="CapacityNeeded", message="Cheapest."),
        Transition(state=S.LAUNCHING, at=before(minutes=2), reason="LaunchStarted", message="Powering on m1."),
        Transition(state=S.GONE, at=before(minutes=1), reason="ProviderUnavailable", message="Connection refused."),
    )

    said = next_of_instance(record(state=S.GONE, transitions=steps, billed_from=None))

    assert "m1 was not started. The record is kept for an hour." in said
    assert "confirmed" not in said


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


def test_a_pod_whose_machines_all_leave_is_told_why_it_waits_and_not_about_them():
    leaving = [record("m1", S.TERMINATING), record("m2", S.GONE), record("m3", S.DRAINING)]

    assert next_of(pod(), *leaving, events=[event("Too large.")]) == "NoOfferFits (30s ago): Too large."


def test_of_several_machines_the_newest_says_what_comes_next():
    older, newer = record("m1", S.READY), record("m2", S.LAUNCHED, deadline=NOW + timedelta(minutes=1))

    assert next_of(pod(), older, newer).startswith("m2 must be")


def test_a_budget_that_holds_a_waiting_pod_comes_before_what_was_told_earlier():
    waits = {"uid-train": BudgetWait(standing=("GPUWorkloadBudget q: full.",), sentence="Room at 13:00.")}

    assert next_of(pod(capacity="NoOfferFits: none."), budget_waits=waits) == "Room at 13:00."
    held = next_of(pod(), budget_waits=waits, operator_running=False)
    assert held.startswith("Room at 13:00. No operator is running")
    explained = explain_pod(pod(unschedulable_message=None), cluster_view(budget_waits=waits), [])
    assert explained.answer.endswith("for 2m. GPUWorkloadBudget q: full.")
    gated = explain_pod(pod(gates=("forebay.dev/budget",)), cluster_view(budget_waits=waits), [])
    assert gated.answer.endswith("GPUWorkloadBudget q: full.")
    runs = explain_pod(running(), cluster_view(record(), budget_waits=waits), [])
    assert "GPUWorkloadBudget" not in runs.answer, "it waits for nothing"


GATED = pod(gates=("forebay.dev/budget",))


@pytest.mark.parametrize(
    ("wait", "told", "expected"),
    [
        (BudgetWait(standing=(), sentence="Room at 13:00."), [event("Full.")], "Room at 13:00."),
        (None, [event("Full.", "HeldByBudget")], "HeldByBudget (30s ago): Full."),
        (BudgetWait(standing=(), unknown_because="no ledger"), [event("Full.", "Held")], "Held (30s ago): Full."),
        (BudgetWait(standing=(), unknown_because="no ledger"), [], "have room. When is unknown: no ledger."),
        (BudgetWait(standing=()), [event("Full.")], "The pod's budgets have room: the operator removes the gate"),
    ],
    ids=["known", "only told", "unknown but told", "unknown", "room by now"],
)
def test_a_gated_pod_is_told_when_its_budgets_have_room(wait, told, expected):
    waits = {} if wait is None else {"uid-train": wait}

    assert expected in next_of(GATED, events=told, budget_waits=waits)
    assert next_of(GATED, events=told, budget_waits=waits, operator_running=False).startswith("No operator is running")


def test_another_scheduler_is_called_by_its_own_name():
    mine = pod(shape=PodShape(requests=Resources({"nvidia.com/gpu": 1, "pods": 1}), scheduler_name="volcano"))

    assert scheduler_name(mine) == "volcano"


def test_a_launch_that_waits_shows_until_when():
    later = record(state=S.REQUESTED, not_before=NOW + timedelta(seconds=90))
    past = record(state=S.REQUESTED, not_before=before(seconds=1))

    assert next_of_instance(later) == "Forebay calls webhook to power on m1 at 12:01:30 UTC (in 90s)."
    assert next_of_instance(past) == "Forebay calls webhook to power on m1 now."


def test_a_deadline_that_has_passed_says_how_long_ago():
    assert "by 11:59:00 UTC (60s ago)" in next_of_instance(record(state=S.LAUNCHED, deadline=before(minutes=1)))


def test_a_machine_that_boots_for_nobody_shows_when_it_goes():
    unneeded = record(state=S.LAUNCHED, idle_since=before(minutes=1), deadline=NOW + timedelta(minutes=4))

    assert next_of_instance(unneeded).startswith("m1 boots for nobody. Forebay powers off m1 at 12:04:00 UTC")


def test_a_ready_machine_without_gpu_pods_shows_who_is_evicted_first_and_why_it_stays_till_then():
    cpu_only = running("web", shape=PodShape(requests=Resources({"cpu": 100, "pods": 1})))
    idle = record(idle_since=before(minutes=1))

    assert next_of_instance(idle, pods=[cpu_only]).startswith(
        "m1 has been idle for 60s but for pods without a GPU, which are evicted first (team/web). Forebay powers off"
    )
    assert next_of_instance(record()) == "m1 stays while it is needed."
    (condition,) = idle.status.conditions
    needed = record(conditions=(replace(condition, status=Truth.FALSE, message="Kept for team/next."),))
    assert next_of_instance(needed) == "Kept for team/next."


def rented(**fields):
    found = record()
    spec = replace(found.spec, delivers=Delivery.NODE, **fields)
    long_ago = tuple(replace(each, at=before(hours=25)) for each in found.status.transitions)
    status = replace(found.status, transitions=long_ago)
    return replace(
        found, metadata=replace(found.metadata, creation_timestamp=before(hours=26)), spec=spec, status=status
    )


@pytest.mark.parametrize(
    ("expire_after", "next_step"), [("24h", "replaces it"), ("48h", "m1 stays"), ("Never", "m1 s")]
)
def test_an_expired_machine_that_has_pods_waits_for_the_disruption_budgets_of_its_pool(expire_after, next_step):
    aging = pool()
    aging = replace(aging, spec=replace(aging.spec, disruption=Disruption(expire_after=expire_after)))
    found = next_of_instance(rented(), pods=[running()], pools=(aging,))

    assert next_step in found
    if expire_after == "24h":
        assert found == (
            "Node m1 is 26h old, past its pool's expireAfter of 24h. Forebay replaces it as soon as the disruption "
            "budgets of pool lab allow. Until then it runs 1 pod: team/train."
        )
    must_stay = running(annotations={"forebay.dev/do-not-disrupt": "true"})
    assert next_of_instance(rented(), pods=[must_stay], pools=(aging,)).startswith("m1 stays while pods run on it")


def test_a_machine_of_an_earlier_template_waits_for_them_too_unless_classes_may_not_be_listed():
    fields = {"pods": [running(owner=Owner("ReplicaSet", "web", "u"))], "pools": (pool(),)}
    node_class = GPUNodeClass(metadata=ObjectMeta(name="owned"), spec=GPUNodeClassSpec(providers=()))
    earlier = rented(template_hash="before")

    found = next_of_instance(earlier, classes=(node_class,), **fields)
    assert "earlier template of pool team/lab" in found
    assert "as soon as the disruption budgets of pool lab allow" in found
    current = current_templates((pool(),), (node_class,))["team", "lab"]
    assert "m1 stays" in next_of_instance(rented(template_hash=current), classes=(node_class,), **fields)
    assert "m1 stays" in next_of_instance(earlier, **fields)
    bare = {**fields, "pods": [running()]}
    assert "m1 stays" in next_of_instance(earlier, classes=(node_class,), **bare), "it would be lost"


@pytest.mark.parametrize(
    ("truth", "reason", "told"),
    [
        (Truth.TRUE, "ReplacementNeeded", True),
        (Truth.FALSE, "ReplacementUnavailable", True),
        (Truth.FALSE, "NotNeeded", False),
    ],
)
def test_what_was_told_of_its_replacement_comes_first(truth, reason, told):
    said = Condition(type="Replacement", status=truth, reason=reason, message="It is told.", last_transition_time=NOW)
    found = next_of_instance(record(conditions=(said,)), pods=[running()])
    assert found == ("It is told. Until then it runs 1 pod: team/train." if told else found)
    assert told is not found.startswith("m1 stays")


def test_a_machine_due_this_very_second_goes_as_soon_as_budgets_allow():
    assert "as soon as disruption budgets" in next_of_instance(record(idle_since=before(minutes=5)))


def test_a_machine_that_is_gone_needs_no_operator():
    assert next_of_instance(record(state=S.GONE), operator_running=False).startswith("Nothing. m1 is gone")
