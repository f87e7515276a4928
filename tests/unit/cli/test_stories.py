"""What `forebay explain` answers: how it stands, why, and what comes next."""

from datetime import timedelta
from fractions import Fraction

import pytest

from forebay.cli.explain.command import target
from forebay.cli.parser import UserError
from forebay.model.workloads import Owner
from forebay.reporting.cluster_view import EventLine, JobView, pods_by_node
from forebay.reporting.explanations import ClusterView, explain_instance, explain_job, explain_node, explain_pod
from forebay.reporting.machines import cost, decimal
from tests.unit.cli.scenes import NOW, S, before, node, pod, pool, record, running


def scene(*records, pods=(), **fields):
    return ClusterView(
        **{
            "now": NOW,
            "records": records,
            "pools": (pool(),),
            "nodes": {"m1": node()},
            "pods_by_node": pods_by_node(pods),
            "acting": True,
            **fields,
        }
    )


def said(note, reason="NoOfferFits", about="team/train"):
    return EventLine(about=about, at=before(seconds=30), type="Warning", reason=reason, note=note)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("pod/x", "pod", "x"),
        ("po/x", "pod", "x"),
        ("job.batch/x", "job", "x"),
        ("Node/x", "node", "x"),
        ("gpuinstance.forebay.dev/a.b", "gi", "a.b"),
    ],
)
def test_things_are_named_as_kubectl_names_them(text, kind, name):
    assert target(text) == (kind, name)


@pytest.mark.parametrize("text", ["x", "pod/", "/x", "deployment/x", ""])
def test_what_cannot_be_explained_is_said_with_what_can(text):
    with pytest.raises(UserError, match="give pod/NAME, job/NAME, node/NAME or gi/NAME"):
        target(text)


def test_a_waiting_pod_is_told_which_machine_comes_and_by_when():
    coming = record(state=S.LAUNCHED, deadline=NOW + timedelta(minutes=4))

    story = explain_pod(pod(), scene(coming, nodes={}), [])

    assert story.reason == "Unschedulable"
    assert "asks for 1 GPU and the scheduler has found no node for it for 2m" in story.answer
    assert "1 Insufficient nvidia.com/gpu" in story.answer
    assert "m1 must be a ready node with its GPUs by 12:04:00 UTC (in 4m)" in story.next
    assert [machine.name for machine in story.machines] == ["m1"]


def test_a_pod_that_nothing_can_serve_hears_forebays_last_word():
    story = explain_pod(pod(), scene(), [said("Too large for any machine."), said("Not this.", about="team/other")])

    assert story.next == "NoOfferFits, said 30s ago: Too large for any machine."


def test_a_machine_that_failed_is_part_of_the_story_but_not_of_the_future():
    failed = record("m1", S.TERMINATING)
    coming = record("m2", S.LAUNCHING, deadline=NOW + timedelta(minutes=9))

    story = explain_pod(pod(), scene(failed, coming), [])

    assert [machine.name for machine in story.machines] == ["m1", "m2"]
    assert story.next.startswith("m2 must be")


def test_without_an_operator_at_work_nothing_is_promised():
    stopped = scene(record(state=S.LAUNCHED, deadline=NOW + timedelta(minutes=4)), acting=False)

    assert "No operator is at work" in explain_pod(pod(), stopped, []).next
    assert "No operator is at work" in explain_pod(pod(), scene(acting=False), [said("Too large.")]).next
    assert "said nothing about it yet" in explain_pod(pod(), scene(acting=None), []).next


def test_without_forebays_kinds_it_says_how_to_install_them():
    assert "forebay manifests install" in explain_pod(pod(), scene(records=None), []).next
    assert "forebay manifests install" in explain_node(node(), scene(records=None), []).next


@pytest.mark.parametrize(
    ("asked", "reason", "words"),
    [
        (pod(gates=("example.com/hold",)), "Gated", "Whoever set example.com/hold takes it away"),
        (pod(gpus=0), "NoGPUAsked", "must ask for a resource such as nvidia.com/gpu"),
        (pod(unschedulable_since=None), "NotYetScheduled", "default-scheduler tries it (waiting for 3m)"),
        (pod(deleted=before(seconds=5)), "PodDeleted", "needs no capacity any more"),
        (pod(nominated_node="m1"), "Preempting", "placed on m1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_that_is_no_demand_is_told_why_and_what_would_help(asked, reason, words):
    story = explain_pod(asked, scene(), [])

    assert story.reason == reason
    assert story.answer.startswith("It is not demand: the ")
    assert words in story.next


def test_a_pod_with_a_node_learns_whose_it_is():
    of_forebay = explain_pod(running(), scene(record()), [])
    of_the_user = explain_pod(running(node="mine"), scene(record()), [])

    assert "obtained that node, as GPUInstance m1, at $1.80/h" in of_forebay.answer
    assert "did not obtain that node" in of_the_user.answer


def test_a_job_tells_of_the_pods_that_are_not_over():
    job = JobView(namespace="team", name="sweep", completions=3, succeeded=1)
    owner = Owner(kind="Job", name="sweep", uid="j")
    pods = [running("a", owner=owner), pod("b", owner=owner)]

    story = explain_job(job, pods, scene(record(pods=("a",))), [], {"team/b": [said("Too large.", about="team/b")]})

    assert story.answer == "Pods: 1 of 3 succeeded, 2 not over, 1 waiting for capacity."
    assert story.next == "NoOfferFits, said 30s ago: Too large."
    assert [each.about for each in story.pods] == ["Pod team/a", "Pod team/b"]


def test_a_suspended_job_is_told_how_to_resume():
    job = JobView(namespace="team", name="sweep", suspended=True)

    assert "spec.suspend: false" in explain_job(job, [], scene(), [], {}).next


def test_the_cost_of_a_machine_is_exact_to_the_second_it_was_billed_for():
    on = record(billed_from=before(seconds=100))
    off = record(state=S.GONE, billed_from=before(hours=2), billed_until=before(hours=2) + timedelta(seconds=7))
    never = record(state=S.REQUESTED, billed_from=None)

    assert cost(on, NOW).dollars == Fraction(180, 3600)
    assert cost(off, NOW).dollars == Fraction("1.80") * 7 / 3600
    assert cost(never, NOW).dollars == 0
    assert cost(record(hourly_price="3.60", billed_from=before(seconds=1)), NOW).dollars == Fraction(1, 1000)


def test_money_for_scripts_is_rounded_to_a_millionth_and_keeps_its_sign():
    assert decimal(Fraction(1, 3)) == "0.333333"
    assert decimal(Fraction(-5, 2)) == "-2.500000"
    assert decimal(Fraction(12345678)) == "12345678.000000"


def test_a_machine_tells_its_history_and_who_is_on_it():
    story = explain_instance(record(), scene(record(), pods=[running(), running("other", node="elsewhere")]), [])

    (machine,) = story.machines
    assert [(step.state, step.reason) for step in machine.history] == [
        ("Requested", "CapacityNeeded"),
        ("Ready", "NodeReady"),
    ]
    assert machine.pods == ["team/train"]
    assert machine.cost_exact == "3/50"
    assert story.next == "It stays while pods run on it (now: 1)."


def test_an_idle_machine_says_when_it_goes():
    idle = record(idle_since=before(minutes=1))

    assert "It goes at 12:04:00 UTC (in 4m): consolidateAfter of pool lab is 5m" in _next(idle)
    assert "never gives idle nodes back" in _next(idle, pools=(pool(after="Never"),))
    assert "--idle-delay" in _next(record(pool=None, idle_since=before(minutes=1)))
    assert "as soon as budgets and the interval allow" in _next(record(idle_since=before(minutes=6)))


def _next(machine, **fields):
    return explain_instance(machine, scene(machine, **fields), []).next


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (S.REQUESTED, "webhook is asked for m1 at once"),
        (S.DRAINING, "as their disruption budgets allow"),
        (S.TERMINATING, "until then it is billed"),
        (S.GONE, "nothing of it is left"),
        (S.JOINED, "nothing says by when"),
    ],
)
def test_every_state_has_its_next_step(state, words):
    assert words in _next(record(state=state))


def test_a_node_says_why_it_is_here():
    obtained = explain_node(node(), scene(record("m1", S.GONE, pods=("old",)), record(), pods=[running()]), [])
    own = explain_node(node("mine"), scene(record()), [])

    assert obtained.answer == (
        "Forebay obtained it for team/train, at $1.80/h. It is the cheapest that fits. Pods on it: 1."
    )
    assert own.reason == "NotObtained"
    assert "neither gives it back nor replaces it" in own.next
