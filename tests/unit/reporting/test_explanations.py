"""What `forebay explain` answers: how an object stands, and why. What comes next is tested in `test_next_steps`."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.meta import ObjectMeta
from forebay.api.names import PAUSED_AT_ANNOTATION, PAUSED_BY_ANNOTATION, VIRTUAL_NODE
from forebay.api.node_provisioner import NodeProvisioner, NodeProvisionerStatus
from forebay.api.parts import Condition, Truth
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner, Phase
from forebay.reporting.cluster_view import INSTANCES, NODES, JobView, operator_running, pods_by_node
from forebay.reporting.explanations import (
    explain_instance,
    explain_job,
    explain_node,
    explain_pod,
    explain_provisioner,
)
from tests.unit.reporting.objects import NOW, S, before, cluster_view, event, node, pod, record, running
from tests.unit.reporting.test_provisioner_views import SPEC
from tests.unit.reporting.test_status import leader


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


def test_a_user_who_may_not_list_nodes_is_told_what_is_known_without_them():
    without_nodes = replace(cluster_view(record(), nodes={}), hidden=(NODES,))
    neither = replace(without_nodes, records=(), hidden=(INSTANCES, NODES))

    assert explain_pod(running(), without_nodes, []).answer.endswith("as GPUInstance m1, at $1.80/h.")
    assert "launch" not in explain_pod(running(), neither, []).answer
    assert explain_pod(pod(nominated_node="mine"), without_nodes, []).reason == "Preempting"


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


def test_a_finished_job_shows_what_ran_its_pods_and_why_that():
    done, other = replace(running("done"), phase=Phase.SUCCEEDED), running("other")
    bought = record("m1", pods=("done",))
    view = cluster_view(bought, record("m2", pods=("done", "other")), record("m3", pods=("stranger",)))

    explanation = explain_job(JobView(namespace="team", name="sweep"), [done, other], view, [], {})

    assert [each.name for each in explanation.machines] == ["m1"], "m2 is shown with the pod that has not ended"
    assert explanation.machines[0].why == bought.spec.why


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
        "Forebay powered on m1 for team/train, at $1.80/h. Why: It is the cheapest that fits. Pods on the node: 1 "
        "(team/train)."
    )


def test_a_node_that_forebay_did_not_launch_is_not_managed():
    explanation = explain_node(node("mine"), cluster_view(record()), [])

    assert explanation.reason == "NotManaged"
    assert explanation.answer == "Forebay did not launch this node: no GPUInstance belongs to it."
    assert "neither terminates nor replaces" in explanation.next


def test_a_node_has_the_reason_of_its_machine_and_else_its_state():
    def reasons(**fields):
        machine = record(**fields)
        view = cluster_view(machine)
        return explain_node(node(), view, []).reason, explain_instance(machine, view, []).reason

    assert reasons(reason="NodeReady") == ("NodeReady", "NodeReady")
    assert reasons(reason=None) == ("Ready", "Ready")


def test_where_forebay_is_not_installed_the_answer_is_how_to_install_it():
    assert "forebay manifests install" in explain_pod(pod(), cluster_view(records=None), []).next
    assert "forebay manifests install" in explain_node(node(), cluster_view(records=None), []).next


def test_machines_that_were_launched_for_other_pods_too_are_shown_and_those_of_others_are_not():
    shared, others = record("m1", S.LAUNCHED, pods=("other", "train")), record("m2", S.LAUNCHED, pods=("other",))

    explanation = explain_pod(pod(), cluster_view(shared, others, nodes={}), [])

    assert [machine.name for machine in explanation.machines] == ["m1"]


def test_only_a_pod_that_waits_for_capacity_is_said_to_wait():
    assert explain_pod(pod(), cluster_view(), []).waits_for_capacity
    assert not explain_pod(running(), cluster_view(), []).waits_for_capacity


def test_a_pod_that_has_ended_says_nothing_about_its_node():
    ended = pod(node="m1", phase=Phase.SUCCEEDED)

    assert "m1" not in explain_pod(ended, cluster_view(record()), []).answer


def test_a_node_whose_machine_is_gone_was_not_launched_for_the_pod_that_runs_there_now():
    assert explain_pod(running(), cluster_view(record(state=S.GONE)), []).answer.endswith("Forebay did not launch m1.")


def remote(state=S.RUNNING, name="c1"):
    """The GPUInstance of a remote container."""
    made = record(name, state, price="0.39", instance_id="abc123")
    return replace(made, spec=replace(made.spec, provider="runpod", delivers=Delivery.CONTAINER, node=None))


def test_a_pod_on_the_virtual_node_that_gets_no_container_is_explained_by_its_condition():
    waits = pod(node=VIRTUAL_NODE, phase=Phase.PENDING, capacity="CoolingDown: All offers cool down.")
    explained = explain_pod(waits, cluster_view(remote(S.GONE)), [])

    assert explained.reason == Reason.COOLING_DOWN
    assert explained.answer.startswith("Waiting for a remote container.")
    assert explained.next == "CoolingDown: All offers cool down."


def test_a_pod_on_the_virtual_node_runs_in_a_container_that_is_named():
    bound = pod(node=VIRTUAL_NODE, phase=Phase.RUNNING)

    def answer(*records):
        return explain_pod(bound, cluster_view(*records), []).answer

    assert answer(remote(S.GONE, "c0"), remote()).endswith(
        "The pod runs remotely, in container abc123 at runpod: GPUInstance c1, at $0.39/h."
    )
    assert answer(remote(S.TERMINATING)).endswith(
        "Its container abc123 at runpod has not run and is terminated: GPUInstance c1, at $0.39/h."
    )
    assert answer(remote(S.GONE)).endswith("The node stands for remote containers, and none runs the pod now.")
    explained = explain_node(node(VIRTUAL_NODE), cluster_view(remote(), remote(S.GONE, "c0")), [])
    assert explained.answer.startswith("The node stands for remote containers, of which 1 run now.")
    assert "did not launch" not in explained.next


def test_a_pod_on_the_virtual_node_without_a_container_waits_and_says_for_what():
    bound = pod(node=VIRTUAL_NODE, phase=Phase.PENDING, labels={"runpod.io/managed": "true"})
    told = event("A40 is cooling down.", "CoolingDown")

    launching = explain_pod(bound, cluster_view(remote(S.GONE, "c0"), remote(S.LAUNCHED)), [])
    assert (launching.reason, launching.waits_for_capacity) == ("CapacityLaunching", False)
    assert "does not run yet: GPUInstance c1 is Launched, at $0.39/h." in launching.answer
    assert launching.next == "c1 must run its container; there is no deadline."
    for records in ([], [remote(S.GONE, "c0")]):
        waiting = explain_pod(bound, cluster_view(*records), [told])
        assert waiting.answer.startswith("Waiting for a remote container. ")
        assert waiting.next.startswith("CoolingDown (30s ago): A40 is cooling down.")
    nobody = replace(bound, labels={})
    assert explain_pod(nobody, cluster_view(), []).answer.startswith("Not waiting for capacity.")


def test_a_job_counts_failed_pods_leaves_out_ended_ones_and_shows_the_oldest_first():
    job = JobView(namespace="team", name="sweep", completions=3, failed=2)
    pods = [
        running("b", created=before(minutes=1)),
        running("z", created=before(minutes=9)),
        pod("done", node="m1", phase=Phase.SUCCEEDED),
    ]

    explanation = explain_job(job, pods, cluster_view(record()), [], {})

    assert explanation.answer == "Pods: 0 of 3 succeeded, 2 failed, 2 unfinished, 0 waiting for capacity."
    assert [each.about for each in explanation.pods] == ["Pod team/z", "Pod team/b"]
    assert (explanation.reason, explanation.next) == ("Bound", "Nothing. The pod has a node.")


def test_a_job_that_a_budget_paused_names_the_budget_and_since_when():
    paused = {PAUSED_BY_ANNOTATION: "quota", PAUSED_AT_ANNOTATION: "2026-05-04T11:00:00Z"}

    def explained(**fields):
        return explain_job(JobView(namespace="team", name="sweep", **fields), [], cluster_view(), [], {})

    by_budget = explained(suspended=True, annotations=paused)
    assert by_budget.reason == "Paused"
    assert by_budget.next.startswith("GPUWorkloadBudget quota suspended this Job at 2026-05-04T11:00:00Z.")
    assert explained(suspended=True).reason == "Suspended"
    assert explained(annotations=paused).reason == "Ended", "it was resumed since"


def test_an_idle_node_has_only_daemonset_pods_and_says_why_it_was_powered_on():
    answer = explain_node(node(), cluster_view(record()), []).answer

    assert answer.endswith("It is the cheapest that fits. Only DaemonSet pods run on it.")


def test_a_node_whose_machine_is_gone_says_so_and_nothing_about_its_pods():
    gone = record(state=S.GONE, message="m1 is off: missing from 2 consecutive listings of webhook.")

    answer = explain_node(node(), cluster_view(gone), []).answer

    assert answer.endswith(
        "Why: It is the cheapest that fits. m1 is off: missing from 2 consecutive listings of webhook."
    )


def test_the_name_of_a_machine_stays_as_it_is_in_the_reason_for_its_node():
    why = "rack-8 (8 GPUs) at $5.40/h was chosen: no other available offer fits the same pods."

    launched = record()
    launched = replace(launched, spec=replace(launched.spec, why=why))

    assert f"Why: {why}" in explain_node(node(), cluster_view(launched), []).answer


def condition(kind, status, message, reason="R"):
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=NOW)


READY = condition("Ready", Truth.TRUE, "All is well.")


def provisioner(**status):
    return NodeProvisioner(
        metadata=ObjectMeta(name="a100"), spec=SPEC, status=NodeProvisionerStatus(**status) if status else None
    )


def test_a_provisioner_that_was_never_sized_says_so():
    new = explain_provisioner(provisioner(), cluster_view(), [])
    assert (new.reason, new.answer) == ("GroupsNotListed", "Forebay has not sized its instance groups yet.")
    assert new.next == "The groups are sized when they can be listed."
    assert "No operator" in explain_provisioner(provisioner(), cluster_view(operator_running=False), []).next
    assert "sized when" in explain_provisioner(provisioner(), cluster_view(operator_running=None), []).next
    refused = provisioner(conditions=(condition("Ready", Truth.FALSE, "No permission.", "Denied"),))
    told = explain_provisioner(refused, cluster_view(), [])
    assert (told.reason, told.answer) == ("Denied", "No permission.")


def test_a_provisioner_shows_how_its_target_came_about_and_what_blocks_it():
    sized = {"target_size": 3, "current_size": 3, "message": "3 nodes.", "arithmetic": ("2 + 1", "3 nodes.")}
    fine = explain_provisioner(
        provisioner(**sized, conditions=(READY, condition("GrowthBlocked", Truth.FALSE, "Not now."))),
        cluster_view(),
        [],
    )
    assert (fine.reason, fine.answer, fine.steps) == ("GroupsReady", "3 nodes.", ["2 + 1"])
    assert fine.next == "Nothing, until pods come or leave."

    blocked = explain_provisioner(
        provisioner(
            **sized,
            reason="Blocked",
            conditions=(
                condition("GrowthBlocked", Truth.TRUE, "No quota."),
                condition("Ready", Truth.FALSE, "Bad key."),
            ),
        ),
        cluster_view(),
        [],
    )
    assert (blocked.reason, blocked.answer) == ("Blocked", "3 nodes. Growth is blocked: No quota. Bad key.")
    stopped = explain_provisioner(provisioner(**sized), cluster_view(operator_running=False), [])
    assert "No operator" in stopped.next


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({"target_size": 5, "current_size": 3, "tainted_nodes": 1}, "2 members are created."),
        ({"target_size": 5}, "5 members are created."),
        ({"target_size": 2, "current_size": 3, "tainted_nodes": 1}, "1 empty nodes are tainted and deleted"),
        ({"target_size": 2, "current_size": 3}, "Nodes go when they are empty"),
        ({"target_size": 3, "current_size": 3}, "Nothing, until pods come or leave."),
    ],
)
def test_what_comes_next_for_the_members_of_instance_groups(status, sentence):
    assert explain_provisioner(provisioner(**status), cluster_view(), []).next.startswith(sentence)


def test_pods_that_ended_do_not_occupy_their_node():
    here, there = running("a"), running("b", node="m2")

    assert pods_by_node([here, there, pod("done", node="m1", phase=Phase.SUCCEEDED), pod()]) == {
        "m1": [here],
        "m2": [there],
    }


def test_an_operator_runs_while_any_lease_is_valid():
    assert operator_running([leader(renewed=60), leader()], NOW) is True
    assert operator_running([leader(renewed=60)], NOW) is False
    assert operator_running([leader(holder="")], NOW) is False
    assert operator_running([], NOW) is False
    assert operator_running(None, NOW) is None
