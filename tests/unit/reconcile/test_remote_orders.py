"""Which pods of a tick leave for remote containers, and which limits, prices and plans keep them."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState, Transition
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec, NodeClassRef
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER
from forebay.api.parts import Limits
from forebay.budgets.admission import Admission
from forebay.model.reasons import Reason
from forebay.model.sources import FailureScope
from forebay.model.workloads import Owner, Phase
from forebay.offload.departure import MarkedJob, OffloadRules, PortablePod
from forebay.planning.gangs import GANG
from forebay.planning.plan import LeftOut
from forebay.reconcile.remote_orders import order_containers
from forebay.reconcile.snapshot import OperatorRules, Snapshot
from tests.unit.budgets.factories import assessed, at, budget
from tests.unit.budgets.factories import pod as budget_pod
from tests.unit.demand.builders import NOW, node, pod
from tests.unit.offload.test_offer_choice import offer, source

MANAGED = {"runpod.io/managed": "true"}


def job(name, **annotations):
    return MarkedJob(namespace="default", name=name, uid=f"job-{name}", created=NOW, annotations=MANAGED | annotations)


def waiting(name, **fields):
    return pod(name, owner=Owner("Job", name, f"job-{name}"), **fields)


def snapshot(*pods, offers=(offer(),), limits=None, jobs=None, **fields):  # noqa: B008 (immutable)
    entry = ProviderEntry(name="runpod")
    metadata = ObjectMeta(name="remote", finalizers=[CLASS_FINALIZER])
    pool = GPUNodePool(
        metadata=ObjectMeta(name="pool", namespace="forebay-system"),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="remote"), limits=limits),
    )
    found = source(*offers)
    portable = {
        each.uid: PortablePod(job=(jobs or {}).get(each.name) or job(each.name), image="work:1") for each in pods
    }
    return Snapshot(
        **{
            "now": NOW,
            "classes": (GPUNodeClass(metadata=metadata, spec=GPUNodeClassSpec(providers=(entry,))),),
            "pools": (pool,),
            "namespaces": {"default": {}, "forebay-system": {}},
            "sources": {found.key: found},
            "pending": pods,
            "portable": portable,
            **fields,
        }
    )


def ordered(given):
    return order_containers(given, given.pending, None)


@pytest.mark.parametrize(
    ("prevented", "sentence"),
    [
        (None, "which run pods of Jobs that are marked runpod.io/managed"),
        ("This operator orders no remote containers.", "(runpod). This operator orders no remote containers."),
    ],
)
def test_a_pod_that_only_remote_containers_could_run_is_told_why_none_does(prevented, sentence):
    given = snapshot(waiting("a"), portable={}, remote_prevented=prevented)
    left = LeftOut(pod=given.pending[0], reason=Reason.NO_CAPACITY_CONFIGURED, sentence="No machines are configured.")
    (told,) = ordered(given).explained([left])
    assert told.sentence.startswith("No machines are configured, only remote containers (runpod)")
    assert sentence in told.sentence
    no_provider = replace(given, sources={})
    assert ordered(no_provider).explained([left]) == (left,)


def test_a_pod_that_leaves_is_ordered_a_container_and_no_node():
    found = ordered(snapshot(waiting("a")))
    (created,) = found.decisions
    assert found.left == ()
    assert created.spec.container.node_name == "runpod-virtual-node"
    assert created.spec.container.image == "work:1"
    assert (created.spec.pool_ref.name, created.spec.node_class_name) == ("pool", "remote")
    assert [each.name for each in created.spec.pods] == ["a"]


def test_the_same_snapshot_gives_the_same_order_so_that_two_leaders_cannot_order_two():
    given = snapshot(waiting("a"))
    assert ordered(given).decisions[0].name == ordered(given).decisions[0].name


def test_pods_of_a_gang_get_no_containers_because_they_must_reach_each_other():
    gang = waiting("a", annotations={GANG: "true"})
    found = ordered(snapshot(gang))
    assert found.decisions == ()
    reason, sentence = found.notes[gang.uid]
    assert (reason, "must reach each other" in sentence) == (Reason.OFFLOAD_NOT_POSSIBLE, True)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (Limits(max_nodes=2), 2),
        (Limits(max_hourly_cost="0.85"), 2),
        (Limits(max_hourly_cost="0.80"), 2),
        (Limits(resources={"nvidia.com/gpu": "1"}), 1),
        (Limits(resources={"nvidia.com/gpu": "0"}), 0),
        (Limits(resources={"amd.com/gpu": "1"}), 3),
    ],
)
def test_limits_hold_within_one_tick(limits, most):
    found = ordered(snapshot(waiting("a"), waiting("b"), waiting("c"), limits=limits))
    assert len(found.decisions) == most
    assert len(found.left) == 3 - most
    assert {each[0] for each in found.notes.values()} <= {Reason.LIMIT_REACHED}
    assert len(found.notes) == 3 - most


def test_containers_that_run_count_against_the_limits():
    first = ordered(snapshot(waiting("a"))).decisions[0]
    record = GPUInstance(metadata=ObjectMeta(name=first.name, uid="r1"), spec=first.spec)
    limits = Limits(resources={"nvidia.com/gpu": "1"})
    assert ordered(snapshot(waiting("b"), limits=limits, records=(record,))).decisions == ()
    gone = GPUInstance(metadata=record.metadata, spec=record.spec, status=GPUInstanceStatus(state=InstanceState.GONE))
    assert len(ordered(snapshot(waiting("b"), limits=limits, records=(gone,))).decisions) == 1


def test_nothing_is_decided_about_a_pod_that_is_not_read_yet():
    a, b = waiting("a"), waiting("b")
    given = snapshot(a, b)
    found = ordered(replace(given, portable={a.uid: given.portable[a.uid]}, unread=frozenset({b.uid})))
    assert [each.spec.pods[0].name for each in found.decisions] == ["a"]
    # No node is bought for it either.
    assert found.left == ()


def test_a_pod_that_waits_for_nodes_is_looked_at_again_in_time():
    rules = OperatorRules(offload=OffloadRules(max_pending=timedelta(minutes=5)))
    found = ordered(snapshot(waiting("a"), rules=rules))
    assert found.decisions == ()
    assert [each.name for each in found.left] == ["a"]
    assert found.notes[found.left[0].uid][0] is Reason.OFFLOAD_NOT_DUE
    assert NOW < found.requeue_at <= NOW + timedelta(minutes=5)


def stranded(record_state, *reached):
    """A pod that is bound to the virtual node, with one earlier container that went so far."""
    bound = waiting("a", node="runpod-virtual-node")
    first = ordered(snapshot(waiting("a"))).decisions[0]
    steps = tuple(Transition(state=each, at=NOW, reason="NoCapacity") for each in (*reached, record_state))
    status = GPUInstanceStatus(state=record_state, transitions=steps)
    record = GPUInstance(metadata=ObjectMeta(name=first.name, uid="r1"), spec=first.spec, status=status)
    given = snapshot(waiting("a"))
    return replace(given, pending=(), stranded=(bound,), records=(record,)), first


def test_a_bound_pod_whose_container_could_not_start_gets_the_next_one():
    given, first = stranded(InstanceState.GONE)
    (again,) = ordered(given).decisions
    assert again.name != first.name


def test_a_pod_whose_order_was_refused_is_offered_that_again_when_its_cooldown_is_over():
    given, _ = stranded(InstanceState.GONE)
    (record,) = given.records
    status = replace(record.status, failures=1, failure_scope=FailureScope.ORDER)

    def found(after):
        return ordered(replace(given, records=(replace(record, status=status),), now=NOW + after))

    early = found(timedelta(minutes=5) - timedelta(seconds=1))
    assert (early.decisions, early.requeue_at) == ((), NOW + timedelta(minutes=5))
    assert [reason for reason, _ in early.notes.values()] == [Reason.LAUNCH_REJECTED]
    assert len(found(timedelta(minutes=5)).decisions) == 1


def test_no_pod_leaves_while_the_virtual_node_is_cordoned_and_those_that_have_left_are_served():
    virtual = node("runpod-virtual-node", gpus=0, unschedulable=True)
    found = ordered(snapshot(waiting("a"), nodes={virtual.name: virtual}))
    assert found.decisions == ()
    reason, sentence = found.notes[found.left[0].uid]
    assert (reason, "is cordoned" in sentence) == (Reason.NOT_ALLOWED, True)
    given, _ = stranded(InstanceState.GONE)
    assert len(ordered(replace(given, nodes={virtual.name: virtual})).decisions) == 1


def test_a_bound_pod_gets_no_other_container_while_its_budget_is_used_up():
    given, _ = stranded(InstanceState.GONE)
    bound = replace(given.stranded[0], labels={"team": "a"})
    given = replace(given, stranded=(bound,), now=at(7200))
    done = budget_pod("done", 8, started=0, finished=3600)
    accounts, standings, by_key = assessed(done, budgets=[budget(hours="8")], when=7200)
    found = order_containers(given, (), Admission(accounts, by_key, standings, given.now))
    assert found.decisions == ()
    (held,) = found.held
    assert (held.pod, held.reason) == (bound, Reason.HELD_BY_BUDGET)
    assert "0 GPU-h left of 8 GPU-h" in held.sentence
    assert found.left_out == (), "told once"


@pytest.mark.parametrize("reached", [(), (InstanceState.RUNNING,)])
def test_a_pod_whose_container_lives_or_has_run_gets_no_other(reached):
    given, _ = stranded(InstanceState.GONE if reached else InstanceState.TERMINATING, *reached)
    assert ordered(given).decisions == ()


def test_a_pod_that_runs_and_whose_record_was_taken_away_gets_no_other_container():
    given, _ = stranded(InstanceState.GONE)
    runs = replace(given.stranded[0], phase=Phase.RUNNING)
    assert ordered(replace(given, stranded=(runs,), records=())).decisions == ()


def test_a_bound_pod_whose_job_is_not_marked_any_more_is_told_so():
    given, _ = stranded(InstanceState.GONE)
    (left,) = ordered(replace(given, portable={})).left_out
    assert left.reason is Reason.OFFLOAD_NOT_POSSIBLE
    assert "Delete the pod" in left.sentence


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"obstacles": ("Volume data is a hostPath.",)}, "hostPath"),
        ({"job": job("a", **{"runpod.io/ports": "70000/tcp"})}, "runpod.io/ports"),
    ],
)
def test_what_cannot_be_carried_is_a_reason_and_no_order(changed, words):
    given = snapshot(waiting("a"))
    ((uid, portable),) = given.portable.items()
    found = ordered(replace(given, portable={uid: replace(portable, **changed)}))
    assert found.decisions == ()
    reason, sentence = found.notes[uid]
    assert reason is Reason.OFFLOAD_NOT_POSSIBLE
    assert words in sentence


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, (None, ("registry",), None)),
        # Credentials that somebody stored there himself need no Secret.
        ({"runpod.io/container-registry-auth-id": "r1"}, ("r1", (), None)),
        ({"runpod.io/templateId": "t1"}, (None, ("registry",), "t1")),
    ],
)
def test_the_record_says_how_the_image_is_pulled(annotations, expected):
    given = snapshot(waiting("a"))
    ((uid, portable),) = given.portable.items()
    changed = replace(portable, pull_secrets=("registry",), job=job("a", **annotations))
    (made,) = ordered(replace(given, portable={uid: changed})).decisions
    found = made.spec.container
    assert (found.registry_auth, found.pull_secrets, found.template) == expected


def test_a_pool_that_serves_other_namespaces_orders_nothing():
    given = snapshot(waiting("a"))
    (pool,) = given.pools
    elsewhere = GPUNodePool(metadata=ObjectMeta(name="pool", namespace="team"), spec=pool.spec)
    found = ordered(replace(given, pools=(elsewhere,)))
    assert found.decisions == ()
    assert found.notes
