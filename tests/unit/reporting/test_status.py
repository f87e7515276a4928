"""What `forebay status` shows."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_node_pool import GPUNodePoolStatus
from forebay.api.names import VIRTUAL_NODE
from forebay.api.parts import Condition, Truth
from forebay.budgets.bill_keys import BillKey, Cost
from forebay.model.quantities import Resources, Usd, UsdPerHour
from forebay.model.workloads import Phase
from forebay.reporting.cluster_view import EventLine, Leader, cluster_now
from forebay.reporting.status import ViewAge, bill, leader_text, spend_text, status_fields, view_age_text
from tests.unit.reporting.objects import NOW, S, before, node, pod, pool, record, running


def fields(*, nodes=(), pods=(), waiting=(), records=(), pools=(), events=()):
    return status_fields(nodes, pods, waiting, records=records, pools=pools, events=events, gpu_resources=None, now=NOW)


def test_cost_is_the_present_rate_and_the_sum_over_all_instances():
    gone = record("old", S.GONE, price="3.60", billed_from=before(hours=1), billed_until=before(minutes=50))
    found = fields(records=[record(billed_from=before(minutes=10)), gone, record("new", S.REQUESTED, billed_from=None)])

    spend = found["spend"]
    assert spend.hourly == "1.8"
    assert spend.total_exact == "9/10"
    assert spend_text(spend, None) == "$1.80/h now; $0.90 since 2026-05-04 11:00 UTC for 3 GPUInstances"
    assert [machine.name for machine in found["machines"]] == ["m1", "new", "old"]


def test_an_instance_that_was_just_ordered_has_no_status_yet_and_costs_nothing():
    created = record("new", S.REQUESTED)
    spend = fields(records=[record(billed_from=before(minutes=10)), replace(created, status=None)])["spend"]
    assert spend_text(spend, None) == "$1.80/h now; $0.30 since 2026-05-04 11:50 UTC for 2 GPUInstances"


def test_a_cluster_without_instances_costs_nothing():
    assert spend_text(fields()["spend"], []) == "$0.00: there are no GPUInstances"


def test_a_waiting_pod_shows_the_instance_that_launches_else_its_condition_or_event_else_the_scheduler():
    launching = record("m2", S.LAUNCHED, pods=("a",), deadline=NOW + timedelta(minutes=3))
    refused = EventLine(about="team/b", at=NOW, type="Warning", reason="NoOfferFits", note="Too large.")
    pods = [pod("a"), pod("b"), pod("c"), pod("d", gates=("x/y",)), pod("e", unschedulable_since=None)]
    pods.append(pod("f", capacity="LimitReached: No room."))
    pods.append(pod("g", gates=("forebay.dev/budget",), capacity="HeldByBudget: Until noon."))

    found = fields(waiting=pods, records=[launching], events=[refused])

    assert [each.reason for each in found["waiting"]] == [
        "CapacityLaunching: GPUInstance m2 is Launched; its deadline is in 3m.",
        "NoOfferFits: Too large.",
        "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "Gated: The pod has scheduling gates (x/y) and is not scheduled until they are removed.",
        "NotYetScheduled: The scheduler has not tried the pod yet; the pod was created 3m ago.",
        "LimitReached: No room.",
        "HeldByBudget: Until noon.",
    ]


def test_a_waiting_pod_shows_why_the_launch_for_it_is_repeated():
    message = "Power-on of m2 failed: no address is known for the host power-api. Trying again in 5s."
    repeated = record("m2", S.REQUESTED, pods=("a",), attempt=1, reason="ProviderUnavailable", message=message)
    found = fields(waiting=[pod("a")], records=[repeated])

    assert found["waiting"][0].reason == f"CapacityLaunching: GPUInstance m2 is Requested. {message}"


def test_a_container_that_lacks_something_is_not_called_launching():
    message = "Launch of NVIDIA A40 at runpod waits: Secret nope does not exist. Create it."
    held = record("c1", S.REQUESTED, pods=("a",), reason="ContainerConfigError", message=message)

    found = fields(waiting=[pod("a")], records=[held])

    assert found["waiting"][0].reason == f"ContainerConfigError: {message}"


@pytest.mark.parametrize("state", [S.DRAINING, S.TERMINATING, S.GONE])
def test_a_pod_does_not_wait_for_an_instance_that_is_leaving(state):
    found = fields(waiting=[pod("a")], records=[record("m2", state, pods=("a",))])

    assert found["waiting"][0].reason.startswith("Unschedulable: ")


def test_gpus_are_counted_as_allocatable_on_ready_nodes_and_as_requested_by_bound_pods():
    found = fields(nodes=[node(), node("m2", ready=False)], pods=[running(gpus=2), pod()])

    assert (found["nodes"], found["nodes_ready"], found["gpus"], found["gpus_requested"]) == (2, 1, 4, 2)


def test_figures_of_nodes_are_unknown_to_a_user_who_may_not_list_nodes():
    found = fields(nodes=None, pods=[running(gpus=2)], waiting=[pod("a", nominated_node="m1")])

    assert (found["nodes"], found["nodes_ready"], found["gpus"], found["gpus_requested"]) == (None, None, None, 2)
    assert found["waiting"][0].reason.startswith("Preempting: ")


def test_gpus_of_remote_containers_are_counted_apart_and_the_virtual_node_is_no_node():
    remote = running("far", node=VIRTUAL_NODE, gpus=2)
    virtual = replace(node(VIRTUAL_NODE), allocatable=Resources({"pods": 5000}))

    found = fields(nodes=[node(), virtual], pods=[running(), remote])

    assert (found["nodes"], found["nodes_ready"], found["gpus"]) == (1, 1, 4)
    assert (found["gpus_requested"], found["gpus_remote"]) == (1, 2)


def test_a_pool_shows_its_ready_condition():
    reconciled = pool()
    condition = Condition(
        type="Ready", status=Truth.FALSE, reason="DisruptionPaused", message="Look at it.", last_transition_time=NOW
    )
    shown = GPUNodePoolStatus(conditions=(condition,), node_count=2, hourly_cost="3.6")
    reconciled = replace(reconciled, status=shown)

    views = fields(pools=[reconciled, pool("new")])["pools"]

    assert [(each.pool, each.nodes, each.hourly, each.ready, each.reason) for each in views] == [
        ("team/lab", 2, "3.6", "False", "DisruptionPaused: Look at it."),
        ("team/new", 0, "0", "Unknown", "no operator has reconciled this pool yet"),
    ]


def leader(holder="host_1", renewed=1):
    return Leader(
        namespace="forebay-system", holder=holder, renewed=before(seconds=renewed), duration=timedelta(seconds=15)
    )


def test_the_leader_is_named_or_why_there_is_none():
    def text(leaders, *others):
        return leader_text(leaders, "forebay-system", others, NOW)

    assert text([leader()]) == "host_1 in namespace forebay-system, renewed 1s ago"
    assert "host_1 has not renewed its lease for 60s" in text([leader(renewed=60)])
    assert "renewed 15s ago" in text([leader(renewed=15)]), "a lease lasts until the end of its time"
    assert "the last leader released its lease 1s ago" in text([leader(holder="")])
    assert "start one with forebay run --namespace forebay-system" in text([])
    assert "Leases of that name are in: default; if your operator runs in one of these" in text([], "default")
    assert "may not read the Lease in namespace forebay-system" in text(None)


def test_the_age_of_the_data_is_that_of_the_oldest_view():
    ages = [ViewAge(kind="nodes", objects=3, seconds=0.2), ViewAge(kind="pods", objects=90, seconds=61.4)]

    assert view_age_text(ages) == "at most 61 s (3 nodes, 90 pods)"


def test_ages_use_the_clock_that_is_ahead():
    assert cluster_now([leader(renewed=-30)], NOW) == NOW + timedelta(seconds=30)
    assert cluster_now([leader(renewed=30)], NOW) == NOW
    assert cluster_now(None, NOW) == NOW


def test_a_pod_waits_since_the_scheduler_said_so_or_since_it_was_created():
    refused = pod("a", created=before(hours=2), unschedulable_since=before(hours=1))
    untried = pod("b", unschedulable_since=None)

    found = fields(waiting=[refused, untried])

    assert [each.since for each in found["waiting"]] == [before(hours=1), untried.created]


def test_a_pod_without_any_reason_says_that_the_scheduler_gave_none():
    found = fields(waiting=[pod("a", unschedulable_message=None)])

    assert found["waiting"][0].reason == "Unschedulable: kube-scheduler gave no message"


def test_a_deadline_that_has_passed_is_not_announced():
    found = fields(waiting=[pod("a")], records=[record("m2", S.LAUNCHED, pods=("x", "a"), deadline=NOW)])

    assert found["waiting"][0].reason == "CapacityLaunching: GPUInstance m2 is Launched."


def test_pods_that_ended_request_nothing_and_the_last_event_of_a_pod_counts():
    done = running("done", gpus=2)
    done = replace(done, phase=Phase.SUCCEEDED)
    told = [
        EventLine(about="team/b", at=NOW, type="Warning", reason="NoOfferFits", note=note) for note in ("Old.", "New.")
    ]

    found = fields(pods=[done, running(gpus=1)], waiting=[pod("b")], events=told)

    assert (found["gpus_requested"], found["pods"]) == (1, 2)
    assert found["waiting"][0].reason == "NoOfferFits: New."


def test_one_machine_is_one_and_without_a_start_there_is_no_since():
    found = fields(records=[record(state=S.REQUESTED, billed_from=None)])["spend"]

    assert spend_text(found, None) == "$0.00/h now; $0.00 for 1 GPUInstance"


def test_the_cost_of_31_days_is_that_of_the_bill_which_also_has_machines_whose_record_is_gone():
    spend = fields(records=[record(billed_from=before(minutes=10))])["spend"]
    keys = [BillKey("team", "", "a"), BillKey("lab", "", "b")]
    costs = [Cost(amount=Usd("40.25"), rate=UsdPerHour(0)), Cost(amount=Usd("1.85"), rate=UsdPerHour("1.80"))]

    assert spend_text(spend, bill(dict(zip(keys, costs, strict=True)))) == "$1.80/h now; $42.10 in 31 days"


def test_the_bill_has_the_largest_cost_first_and_nothing_that_cost_nothing():
    def cost(dollars, rate="0"):
        return Cost(amount=Usd(dollars), rate=UsdPerHour(rate))

    keys = [BillKey("team", "", name) for name in ("small", "large", "free", "begins")]
    rows = bill(dict(zip(keys, [cost("1"), cost("2"), cost("0"), cost("0", "3")], strict=True)))

    assert [(each.node_class, each.spent, each.hourly) for each in rows] == [
        ("large", "2.000000", "0"),
        ("small", "1.000000", "0"),
        ("begins", "0.000000", "3"),
    ]


def test_nothing_read_has_no_age():
    assert view_age_text([]) == "at most 0 s ()"
