"""Snapshots as files: every field is the same after saving and loading."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.api.machines import Machine
from forebay.api.meta import ObjectMeta
from forebay.api.names import BUDGET_GATE
from forebay.api.node_provisioner import GroupProvider, NodeProvisioner, NodeProvisionerSpec
from forebay.api.parts import Limits
from forebay.budgets.accounts import Accounts
from forebay.budgets.assessment import Assessor
from forebay.budgets.enforcement import Evict, EvictionBackoff, Pause, PausedJob, RemovePauseMarks, Resume
from forebay.budgets.usage import seconds
from forebay.demand.reservation import Reservations
from forebay.demand.scheduler_waits import SchedulerWaits
from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import LabelOperator, LabelSelector, NodeSelectorTerm, Requirement, Toleration
from forebay.model.signing_requests import SigningRequest
from forebay.model.sources import (
    Billing,
    Capabilities,
    Delivery,
    Found,
    Instance,
    InstancePhase,
    Listing,
    Offer,
    Source,
    SourceKey,
)
from forebay.model.workloads import Owner, PodShape
from forebay.offload.departure import MarkedJob, PortablePod
from forebay.reconcile.saved_pods import NotASnapshot
from forebay.reconcile.saved_snapshot import is_snapshot, load_snapshot, save_snapshot
from forebay.reconcile.snapshot import BudgetState, Memory, OperatorRules, Snapshot
from forebay.reconcile.tick import tick
from tests.unit.budgets.factories import at, budget
from tests.unit.budgets.factories import pod as counted_pod
from tests.unit.reporting.objects import NOW, node, pod, pool, record, running

KEY = SourceKey("owned", "webhook")
OWNED = GPUNodeClassSpec(providers=(ProviderEntry(name="aws", priority=4),), limits=Limits(max_nodes=3))
CONSTRAINED = PodShape(
    requests=Resources({"cpu": 1, "pods": 1, "nvidia.com/gpu": 2}),
    node_affinity=(NodeSelectorTerm((Requirement("zone", LabelOperator.IN, ("a", "b")),)),),
    tolerations=(Toleration("gpu", "Exists", "", "NoSchedule", None),),
    host_ports=((8080, "TCP"),),
)


def provisioner():
    spec = NodeProvisionerSpec(
        existing_instance_group_names=("a3-a",),
        min_gpu_utilization_percent=80,
        provider=GroupProvider(name="simulated", endpoint="http://market"),
    )
    return NodeProvisioner(metadata=ObjectMeta(name="a3"), spec=spec)


JOB = MarkedJob(namespace="team", name="j", uid="u", created=NOW, annotations={"runpod.io/managed": "true"})


def a_full_snapshot():
    offer = Offer(
        provider="webhook",
        instance_type="m1",
        price=UsdPerHour("0.1234567890123"),
        allocatable=Resources({"cpu": 8000, "nvidia.com/gpu": 4}),
        billing=Billing(minimum=timedelta(minutes=10)),
        node_name="m1",
    )
    found = Found(instances=(Instance(id="m1", phase=InstancePhase.RUNNING),), unknown=frozenset({"m2"}))
    same_shape = pod("b")
    return Snapshot(
        now=NOW,
        cluster="c-1",
        classes=(GPUNodeClass(metadata=ObjectMeta(name="owned", finalizers=["f"]), spec=OWNED),),
        pools=(pool(),),
        provisioners=(provisioner(),),
        namespaces={"team": {"kind": "lab"}},
        nodes={"m1": node()},
        pending=(
            pod("a", shape=CONSTRAINED),
            same_shape,
            replace(same_shape, name="c", uid="uid-c"),
            pod("d", owner=Owner("Job", "j", "u")),
        ),
        used={"m1": Resources({"cpu": 500})},
        ports={"m1": frozenset({(80, "TCP")})},
        daemons=(CONSTRAINED,),
        last_seen_nodes={"m2": node("m2")},
        pods_by_node={"m1": (running(),)},
        container_pods={"uid-far": replace(running("far"), uid="uid-far")},
        portable={"uid-d": PortablePod(job=JOB, image="work:1", obstacles=("It has a volume.",), pull_secrets=("s",))},
        unread=frozenset({"uid-c"}),
        remote_prevented="The operator cannot list Jobs.",
        stranded=(replace(running("lost"), uid="uid-lost"),),
        records=(record(),),
        signing_requests=(
            SigningRequest(
                name="csr-1",
                uid="uid-csr-1",
                resource_version=3,
                created=NOW,
                username="system:bootstrap:abc123",
                node_name="m1",
                public_key="key",
            ),
        ),
        pod_disruption_budgets=(
            PodDisruptionBudget(
                namespace="team", name="keep", uid="uid-keep", resource_version=4, selector=LabelSelector({"a": "b"})
            ),
        ),
        budgets=(budget(),),
        unserved_budgets=(budget(),),
        gate_missing="Nothing holds new pods.",
        unrecorded_cost=frozenset({"uid-m9"}),
        unreadable_pools=frozenset({("team", "odd")}),
        unreadable_classes=frozenset({"odd"}),
        unreadable_provisioners=frozenset({"odd"}),
        unreadable_records={"odd": "Invalid enum value"},
        unreadable_pods=((running("odd"), "Expected `int`"),),
        told_but_bound=(running("placed", capacity="NoOfferFits: None."),),
        pending_claims=(pod("claims"),),
        sources={
            KEY: Source(
                key=KEY,
                capabilities=Capabilities(deliveries=(Delivery.POWER,), poll=timedelta(seconds=7)),
                priority=3,
                listing=Listing(asked=NOW, found=found),
                offers=(offer,),
                error="it is slow",
            )
        },
        unusable={SourceKey("owned", "aws"): "not in this release"},
        claimed_twice={"owned": {"m3": "the environment"}},
        memory=Memory(
            reservations=Reservations(fitting={"uid-a": NOW}),
            scheduler_waits=SchedulerWaits(unreported={"uid-a": NOW}, nominated={"uid-b": ("n1", NOW)}),
        ),
        intolerant=frozenset({"uid-b"}),
        calls_in_flight=frozenset({"m1"}),
        rules=OperatorRules(gpu_resources=frozenset({"acme.com/gpu"}), idle_delay=timedelta(seconds=3)),
    )


def test_a_snapshot_is_the_same_after_saving_and_loading():
    before = a_full_snapshot()

    data = save_snapshot(before)

    assert is_snapshot(data)
    assert load_snapshot(data) == before
    assert save_snapshot(load_snapshot(data)) == data


def test_no_field_of_a_snapshot_is_left_out_of_these_tests():
    before, nothing = a_full_snapshot(), Snapshot(now=NOW)
    left_empty = {
        name
        for name in Snapshot.__struct_fields__
        if name not in ("now", "budget_state") and getattr(before, name) == getattr(nothing, name)
    }

    assert left_empty == set(), "the test above would not notice if these were lost"


def test_pods_of_one_template_share_their_shape_again():
    shapes = [each.shape for each in load_snapshot(save_snapshot(a_full_snapshot())).pending]

    assert shapes[1] is shapes[2]
    assert len(msgspec.json.decode(save_snapshot(a_full_snapshot()))["shapes"]) == 2


def test_times_keep_their_zone():
    assert load_snapshot(save_snapshot(Snapshot(now=datetime(2026, 1, 1, tzinfo=UTC)))).now.tzinfo is not None


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"format": "other"}', b"kind: Pod\n"])
def test_other_files_are_not_snapshots(data):
    assert not is_snapshot(data)
    with pytest.raises(NotASnapshot):
        load_snapshot(data)


def with_budget_state():
    """A budget that one pod used for an hour, with another pod running and a third one gated."""
    mine, accounts = budget(usd="5"), Accounts()
    account = accounts.open(mine, at(0))
    accounts.see(counted_pod("ended", started=-7200, finished=-3600), at(0))
    accounts.see(counted_pod("runs", 2, started=-600), at(0))
    account.money.record("machine", seconds(at(-3600)), seconds(at(0)), UsdPerHour("3").units)
    gate = counted_pod("gated", gates=(BUDGET_GATE,))
    state = BudgetState(accounts=accounts.frozen(), gated=(gate,), damages={mine.key: "Damaged."})
    return Snapshot(now=at(0), budgets=(mine,), budget_state=state)


def test_budgets_are_the_same_after_saving_and_loading():
    before = with_budget_state()
    after = load_snapshot(save_snapshot(before))
    one, other = (Assessor().assess(each.budgets, each.budget_state.accounts, each.now) for each in (before, after))
    assert one == other
    (standing,) = other.values()
    assert (str(standing.consumed), str(standing.consumed_usd)) == ("1.333 GPU-h", "$3.00")
    assert after.budget_state.gated == before.budget_state.gated
    assert after.budget_state.damages == before.budget_state.damages
    assert save_snapshot(after) == save_snapshot(before)


def exceeded(action, **state):
    """A used-up budget: one pod that has used most may not be stopped, another has used more than a third one."""
    mine, accounts = budget(hours="1", action=action, since=at(-3600)), Accounts()
    accounts.open(mine, at(0))
    for name, gpus, started in (("most", 8, -7200), ("more", 4, -7200), ("less", 4, -600)):
        accounts.see(counted_pod(name, gpus, started=started, job=name), at(0))
    accounts.see(counted_pod("ended", 8, started=-7200, finished=-3600), at(0))
    before = BudgetState(accounts=accounts.frozen(), blocked=frozenset({"uid-most"}), **state)
    return Snapshot(now=at(0), budgets=(mine,), budget_state=before)


PAUSED = PausedJob(
    namespace="default", job=Owner("Job", "earlier", "uid-earlier"), budget=("default", "deleted"), since=at(-60)
)
UNMARKED = RemovePauseMarks(namespace="default", job=Owner("Job", "later", "uid-later"), resource_version="7")


@pytest.mark.parametrize(
    ("snapshot", "decision", "about"),
    [
        (exceeded(EnforcementAction.EVICT), Evict, "more"),
        (exceeded(EnforcementAction.PAUSE), Pause, "more"),
        (exceeded(EnforcementAction.EVICT, awaiting=frozenset({("default", "team-a")})), None, None),
        (
            exceeded(
                EnforcementAction.EVICT,
                backoffs={"uid-of-job-more": EvictionBackoff(at(-2 * 86_400), at(60))},
            ),
            Evict,
            "less",
        ),
        (exceeded(EnforcementAction.ALERT_ONLY, paused=(PAUSED,)), Resume, None),
        (exceeded(EnforcementAction.ALERT_ONLY, resumed_by_hand=(UNMARKED,)), RemovePauseMarks, None),
    ],
    ids=["evicts", "pauses", "under way", "spared for a while", "of a deleted budget", "resumed by hand"],
)
def test_a_replayed_tick_stops_the_same_pods(snapshot, decision, about):
    first, again = tick(snapshot), tick(load_snapshot(save_snapshot(snapshot)))

    assert again.decisions == first.decisions
    assert again.requeue_at == first.requeue_at
    stopped = [each for each in first.decisions if isinstance(each, Evict | Pause | Resume | RemovePauseMarks)]
    assert [type(each) for each in stopped] == ([] if decision is None else [decision])
    assert [each.pod.name for each in stopped if about is not None] == ([] if about is None else [about])


def test_an_account_without_its_budget_is_rejected():
    data = save_snapshot(with_budget_state()).replace(b'"team-a"', b'"team-b"', 1)
    with pytest.raises(NotASnapshot):
        load_snapshot(data)


def test_a_saved_snapshot_keeps_no_credentials_in_the_urls_of_machines():
    machine = Machine(
        name="m1",
        gpu_count=1,
        scale_up_endpoint="https://me:planted-secret@power.lan:8443/m1/on?token=planted-secret#planted-secret",
        scale_down_endpoint="https://power.lan/m1/off?planted-secret",
    )
    spec = GPUNodeClassSpec(providers=(ProviderEntry(name="webhook", machines=(machine,)),))
    owned = GPUNodeClass(metadata=ObjectMeta(name="owned"), spec=spec)

    saved = save_snapshot(Snapshot(now=NOW, classes=(owned,)))

    assert b"planted" not in saved
    (loaded,) = load_snapshot(saved).classes
    (kept,) = loaded.spec.providers[0].machines
    assert kept.scale_up_endpoint == "https://power.lan:8443"
    assert kept.scale_down_endpoint == "https://power.lan"


def test_a_saved_snapshot_keeps_no_secret_path_and_no_copy_of_what_was_applied():
    applied = {"kubectl.kubernetes.io/last-applied-configuration": '{"token": "planted-secret"}', "note": "kept"}
    machine = Machine(name="m1", gpu_count=1, scale_up_endpoint="https://power.lan/hooks/planted-secret")
    entry = ProviderEntry(name="webhook", endpoint="https://me:planted-secret@api.lan/v1?planted", machines=(machine,))
    owned = GPUNodeClass(
        metadata=ObjectMeta(name="owned", annotations=applied), spec=GPUNodeClassSpec(providers=(entry,))
    )
    full = a_full_snapshot()
    provisioner = full.provisioners[0]
    provider = replace(provisioner.spec.provider, endpoint="https://planted-secret@market/v1")
    sized = NodeProvisioner(
        metadata=replace(provisioner.metadata, annotations=applied), spec=replace(provisioner.spec, provider=provider)
    )
    of_team = replace(full.pools[0], metadata=replace(full.pools[0].metadata, annotations=applied))

    saved = save_snapshot(Snapshot(now=NOW, classes=(owned,), pools=(of_team,), provisioners=(sized,)))

    assert b"planted" not in saved
    loaded = load_snapshot(saved)
    assert loaded.classes[0].metadata.annotations == loaded.pools[0].metadata.annotations == {"note": "kept"}
    assert loaded.classes[0].spec.providers[0].endpoint == "https://api.lan/v1"
    assert loaded.provisioners[0].spec.provider.endpoint == "https://market/v1"
