"""The figures of `forebay status`."""

from datetime import timedelta

from forebay.api.gpu_node_pool import GPUNodePoolStatus
from forebay.api.parts import Condition, Truth
from forebay.cli.output import print_table
from forebay.reporting.cluster_view import EventLine, Leader, present
from forebay.reporting.status import ViewAge, figures, spent, told_leader, told_views
from tests.unit.cli.scenes import NOW, S, before, node, pod, pool, record, running


def seen(*, nodes=(), pods=(), waiting=(), records=(), pools=(), said=()):
    return figures(nodes, pods, waiting, records=records, pools=pools, said=said, gpu_resources=None, now=NOW)


def test_spend_is_the_rate_of_what_costs_now_and_the_sum_of_what_is_on_record():
    gone = record("old", S.GONE, price="3.60", billed_from=before(hours=1), billed_until=before(minutes=50))
    found = seen(records=[record(billed_from=before(minutes=10)), gone, record("new", S.REQUESTED, billed_from=None)])

    spend = found["spend"]
    assert spend.hourly == "1.8"
    assert spend.total_exact == "9/10"
    assert spent(spend) == "$1.80/h now; $0.90 since 2026-05-04 11:00 UTC for the 3 machines on record"
    assert [machine.name for machine in found["machines"]] == ["m1", "new", "old"]


def test_a_cluster_without_machines_has_spent_nothing():
    assert spent(seen()["spend"]) == "nothing: no machine is on record"


def test_waiting_pods_have_the_best_reason_there_is():
    coming = record("m2", S.LAUNCHED, pods=("a",), deadline=NOW + timedelta(minutes=3))
    word = EventLine(about="team/b", at=NOW, type="Warning", reason="NoOfferFits", note="Too large.")
    pods = [pod("a"), pod("b"), pod("c"), pod("d", gates=("x/y",)), pod("e", unschedulable_since=None)]

    found = seen(waiting=pods, records=[coming], said=[word])

    assert [each.reason for each in found["waiting"]] == [
        "CapacityLaunching: GPUInstance m2 is Launched, due in 3m.",
        "NoOfferFits: Too large.",
        "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "Gated: The pod has scheduling gates (x/y) and is not scheduled until they are removed.",
        "NotYetScheduled: The scheduler has not tried the pod yet; the pod was created 3m ago.",
    ]


def test_gpus_count_what_is_there_and_what_pods_on_nodes_ask_for():
    found = seen(nodes=[node(), node("m2", ready=False)], pods=[running(gpus=2), pod()])

    assert (found["nodes"], found["nodes_ready"], found["gpus"], found["gpus_requested"]) == (2, 1, 8, 2)


def test_a_pool_shows_its_ready_condition():
    told = pool()
    condition = Condition(
        type="Ready", status=Truth.FALSE, reason="DisruptionPaused", message="Look at it.", last_transition_time=NOW
    )
    told.status = GPUNodePoolStatus(conditions=(condition,), node_count=2, hourly_cost="3.6")

    views = seen(pools=[told, pool("untold")])["pools"]

    assert [(each.pool, each.nodes, each.hourly, each.ready, each.reason) for each in views] == [
        ("team/lab", 2, "3.6", "False", "DisruptionPaused: Look at it."),
        ("team/untold", 0, "0", "Unknown", "no operator has looked at it yet"),
    ]


def leader(holder="host_1", renewed=1):
    return Leader(
        namespace="forebay-system", holder=holder, renewed=before(seconds=renewed), duration=timedelta(seconds=15)
    )


def test_the_leader_is_named_or_its_absence_explained():
    assert told_leader([leader()], NOW) == "host_1 in namespace forebay-system, renewed 1s ago"
    assert "host_1 has not renewed its lease for 60s" in told_leader([leader(renewed=60)], NOW)
    assert "the last one has left" in told_leader([leader(holder="")], NOW)
    assert "start one with forebay run" in told_leader([], NOW)
    assert "may not list leases" in told_leader(None, NOW)


def test_views_say_how_old_they_are():
    ages = [ViewAge(kind="nodes", objects=3, seconds=0.2), ViewAge(kind="pods", objects=90, seconds=61.4)]

    assert told_views(ages) == "3 nodes, 90 pods, at most 61 s old"


def test_tables_are_not_cut_or_wrapped_where_a_program_reads_them(capsys):
    print_table(("A", "WHY"), [("x", "word " * 60)])

    assert len(capsys.readouterr().out.splitlines()) == 2


def test_ages_are_reckoned_by_the_clock_that_is_ahead():
    assert present([leader(renewed=-30)], NOW) == NOW + timedelta(seconds=30)
    assert present([leader(renewed=30)], NOW) == NOW
    assert present(None, NOW) == NOW
