"""Status of pools: conditions, totals, and when they are written."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import (
    GPUInstance,
    GPUInstanceSpec,
    GPUInstanceStatus,
    InstanceState,
    PoolRef,
    ResourceLifetime,
    SecondaryResource,
    Transition,
)
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, GPUNodeClassStatus, ProviderEntry
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec, GPUNodePoolStatus
from forebay.api.instance_order import OfferRecord
from forebay.api.machines import Machine
from forebay.api.meta import ObjectMeta
from forebay.api.parts import Condition, LabelSelectorEntry, NodeClassRef, Truth
from forebay.model.reasons import Reason
from forebay.model.signing_requests import SigningRequest
from forebay.model.sources import Capabilities, Check, Delivery, Source, SourceKey
from forebay.reconcile.reports import report_classes, report_pools
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import tick
from tests.unit.demand.builders import running

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
EVERYBODY = LabelSelectorEntry()


def pool(name="p", class_name="c", status=None, spec=None, **metadata):
    return GPUNodePool(
        metadata=ObjectMeta(
            name=name, namespace="team", uid=f"uid-{name}", resource_version="7", generation=2, **metadata
        ),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name=class_name), **(spec or {})),
        status=status,
    )


def node_class(name="c", *, allows=EVERYBODY, **metadata):
    spec = GPUNodeClassSpec(providers=(), allowed_namespaces=allows)
    return GPUNodeClass(metadata=ObjectMeta(name=name, **{"uid": f"uid-{name}", **metadata}), spec=spec)


def reported(*, pools, classes=(), now=NOW, namespaces=None):
    snapshot = Snapshot(now=now, classes=tuple(classes), pools=tuple(pools), namespaces=namespaces or {})
    return tuple(report_pools(snapshot, {}))


def stuck(name, state, since, **status):
    return GPUInstance(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version="1"),
        spec=GPUInstanceSpec(provider="webhook", delivers=Delivery.POWER, pool_ref=PoolRef(namespace="team", name="p")),
        status=GPUInstanceStatus(state=state, since=since, node_name=name, **status),
    )


def test_a_pool_says_which_of_its_machines_cannot_go_and_when_they_have_gone():
    failing = stuck("box", InstanceState.TERMINATING, NOW, reason=Reason.TERMINATION_FAILED)
    blocked = stuck("rack", InstanceState.DRAINING, NOW - timedelta(minutes=5))
    fresh = stuck("fresh", InstanceState.DRAINING, NOW - timedelta(minutes=4))
    on_nodes = dict.fromkeys(("rack", "fresh"), (running(),))

    def told(seen, records):
        snapshot = Snapshot(
            now=NOW, classes=(node_class(),), pools=(seen,), records=tuple(records), pods_by_node=on_nodes
        )
        (decision,) = report_pools(snapshot, {})
        found = (each for each in decision.conditions if each.type == "TerminationBlocked")
        return decision, next(found, None)

    decision, said = told(pool(), [failing, blocked, fresh])
    assert (said.status, said.reason) == (Truth.TRUE, Reason.TERMINATION_FAILED)
    assert "pods cannot be evicted from rack, termination of box fails;" in said.message
    assert told(pool(), [fresh])[1] is None
    going = stuck("gone", InstanceState.TERMINATING, NOW, reason=Reason.TERMINATION_STARTED)
    assert told(pool(), [going, stuck("empty", InstanceState.DRAINING, NOW - timedelta(minutes=9))])[1] is None
    assert told(after(decision, pool()), [])[1].status is Truth.FALSE


def test_a_pool_names_its_machines_that_cool_down_with_the_end():
    failed = Transition(
        state=InstanceState.TERMINATING, at=NOW - timedelta(minutes=1), reason="JoinTimeout", message="No node."
    )
    records = tuple(
        GPUInstance(
            metadata=ObjectMeta(name=name),
            spec=GPUInstanceSpec(
                provider="webhook",
                delivers=Delivery.POWER,
                pool_ref=PoolRef(namespace="team", name=in_pool),
                offer=OfferRecord(instance_type=name, gpu_count=1),
            ),
            status=GPUInstanceStatus(state=InstanceState.TERMINATING, failures=1, transitions=(failed,)),
        )
        for name, in_pool in (("box-1", "p"), ("box-2", "other"))
    )
    snapshot = Snapshot(now=NOW, classes=(node_class(),), pools=(pool(),), records=records)
    (decision,) = report_pools(snapshot, {})

    ready = next(each for each in decision.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == (Truth.TRUE, "CoolingDown")
    assert "Cooling down after a failure: box-1 until 12:04:00 UTC. To end a cooldown, delete its" in ready.message
    # The sentence is the same a minute later: it is not written again in every tick.
    later = replace(snapshot, now=NOW + timedelta(minutes=1), pools=(after(decision, pool()),))
    assert tuple(report_pools(later, {})) == ()


def test_a_new_pool_is_told_together_with_its_first_offers_and_others_at_once():
    """An operator that begins to lead would write the status of every pool made meanwhile twice."""
    key = SourceKey("c", "webhook")
    source = Source(key=key, capabilities=Capabilities(deliveries=(Delivery.POWER,)), since=NOW)
    told_before = pool("told", status=GPUNodePoolStatus(offers=3))
    starting = Snapshot(
        now=NOW,
        classes=(node_class(), node_class("other")),
        pools=(pool("new"), pool("elsewhere", "other"), told_before),
        sources={key: source},
    )

    def told(snapshot):
        return {each.name: each.offers for each in report_pools(snapshot, {})}

    assert told(starting) == {"elsewhere": 0, "told": 3}
    assert tick(starting).requeue_at == NOW + timedelta(seconds=5), "whether the provider answers or not"
    shown = replace(node_class(), status=GPUNodeClassStatus(offers=2))
    assert told(replace(starting, classes=(shown, node_class("other"))))["new"] == 2, "as the class says until then"
    answered = replace(starting, sources={key: replace(source, offers=())})
    assert told(answered) == {"new": 0, "elsewhere": 0, "told": 0}
    for silent in (
        replace(starting, now=NOW + timedelta(seconds=5)),
        replace(starting, sources={key: replace(source, error="no answer")}),
    ):
        assert told(silent)["new"] is None


@pytest.mark.parametrize(
    ("class_name", "status", "reason"),
    [("c", Truth.TRUE, Reason.PROVIDERS_READY), ("other", Truth.FALSE, Reason.NO_NODE_POOL)],
)
def test_a_class_that_no_pool_names_says_that_it_serves_nobody(class_name, status, reason):
    (decision,) = report_classes(Snapshot(now=NOW, classes=(node_class(),), pools=(pool(class_name=class_name),)))

    ready = next(each for each in decision.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == (status, reason)
    assert ("create one with spec.nodeClassRef.name" in ready.message) == (status is Truth.FALSE)


WEBHOOK = SourceKey("c", "webhook")


def checked(check=None, conditions=()):
    """Conditions of a class with one provider, after its check, by type."""
    spec = GPUNodeClassSpec(providers=(ProviderEntry(name="webhook"),), allowed_namespaces=EVERYBODY)
    status = GPUNodeClassStatus(conditions=tuple(conditions)) if conditions else None
    seen = replace(node_class(), spec=spec, status=status)
    source = Source(key=WEBHOOK, capabilities=Capabilities(deliveries=(Delivery.POWER,)), offers=(), check=check)
    snapshot = Snapshot(now=NOW, classes=(seen,), pools=(pool(),), sources={WEBHOOK: source})
    found = {each.type: each for decision in report_classes(snapshot) for each in decision.conditions}
    return {name: (each.status, each.reason) for name, each in found.items()}, tuple(found.values())


def test_nobody_calls_a_provider_ready_that_was_not_checked_yet():
    told, _ = checked()
    assert set(told.values()) == {(Truth.UNKNOWN, Reason.PROVIDER_NOT_CHECKED)}

    told, _ = checked(Check(ok=True, sentence="5 of 5 machines report their power state."))
    assert set(told.values()) == {(Truth.TRUE, Reason.PROVIDERS_READY)}


def test_what_is_wrong_goes_before_what_is_not_known_yet():
    spec = GPUNodeClassSpec(providers=(ProviderEntry(name="webhook"), ProviderEntry(name="acme")))
    snapshot = Snapshot(
        now=NOW, classes=(replace(node_class(), spec=spec),), unusable={SourceKey("c", "acme"): "No provider is acme."}
    )
    (decision,) = report_classes(snapshot)

    ready, valid, *each = decision.conditions
    assert {(ready.status, ready.reason), (valid.status, valid.reason)} == {(Truth.FALSE, Reason.PROVIDER_NOT_SERVED)}
    assert [told.reason for told in each] == [Reason.PROVIDER_NOT_CHECKED, Reason.PROVIDER_NOT_SERVED]


def test_machines_that_two_claim_are_named_by_their_names_with_the_other():
    machines = tuple(Machine(name=name, gpu_count=8) for name in ("rack-2", "rack-1", "rack-3"))
    spec = GPUNodeClassSpec(providers=(ProviderEntry(name="webhook", machines=machines),))
    twice = {"c": {"rack-1": "the environment", "rack-2": "class d"}}
    snapshot = Snapshot(now=NOW, classes=(replace(node_class(), spec=spec),), pools=(pool(),), claimed_twice=twice)
    (decision,) = report_classes(snapshot)

    (told,) = {each.message for each in decision.conditions if each.reason == Reason.CLAIMED_TWICE}
    assert told == (
        "Machines claimed twice are skipped: rack-1 (claimed by the environment); rack-2 (claimed by class d). "
        "Name each machine in one place only."
    )


@pytest.mark.parametrize("ok", [True, False])
def test_a_new_leader_keeps_what_the_last_one_found_until_it_has_asked(ok):
    before, conditions = checked(Check(ok=ok, sentence="Its Secret was read." if ok else "Its Secret is missing."))

    told, _ = checked(conditions=conditions)

    assert told in ({}, before), "nothing is written, or nothing else"
    assert before["WebhookReady"][0] is (Truth.TRUE if ok else Truth.FALSE)


def after(decision, seen):
    """The pool once the decision has been written."""
    status = GPUNodePoolStatus(
        observed_generation=decision.generation,
        conditions=decision.conditions,
        node_count=decision.node_count,
        hourly_cost=decision.hourly_cost,
        resources={name: str(count) for name, count in decision.resources.items()},
        offers=decision.offers,
        last_decisions=decision.last_decisions,
    )
    return GPUNodePool(metadata=seen.metadata, spec=seen.spec, status=status)


@pytest.mark.parametrize(
    ("classes", "reason", "status"),
    [
        pytest.param([node_class()], Reason.NODE_CLASS_FOUND, Truth.TRUE, id="exists"),
        pytest.param([node_class("other")], Reason.NODE_CLASS_NOT_FOUND, Truth.FALSE, id="missing"),
        pytest.param([node_class(deletion_timestamp=NOW)], Reason.NODE_CLASS_DELETING, Truth.FALSE, id="deleting"),
    ],
)
def test_a_pool_is_ready_only_while_its_class_exists(classes, reason, status):
    (decision,) = reported(pools=[pool()], classes=classes)

    conditions = {each.type: each for each in decision.conditions}
    assert decision.reason is reason
    assert conditions["NodeClassReady"].status is status
    assert conditions["NodeClassReady"].message == decision.sentence
    assert conditions["Ready"].status is status, "without its class a pool gets no capacity"
    assert (decision.uid, decision.resource_version, decision.generation) == ("uid-p", 7, 2)


def test_an_unchanged_status_is_not_written_again():
    before = pool()
    (decision,) = reported(pools=[before], classes=[node_class()])

    assert reported(pools=[after(decision, before)], classes=[node_class()], now=NOW + timedelta(hours=1)) == ()


def test_a_condition_keeps_its_transition_time_until_its_status_changes():
    before = pool()
    (missing,) = reported(pools=[before])
    (found,) = reported(pools=[after(missing, before)], classes=[node_class()], now=NOW + timedelta(hours=1))

    times = {each.type: each.last_transition_time for each in found.conditions}
    assert times == dict.fromkeys(("NodeClassReady", "Ready"), NOW + timedelta(hours=1))


def test_conditions_of_other_writers_stay():
    foreign = Condition(type="Audited", status=Truth.TRUE, reason="ByHand", last_transition_time=NOW)
    (decision,) = reported(pools=[pool(status=GPUNodePoolStatus(conditions=(foreign,)))])

    assert foreign in decision.conditions


def test_a_pool_that_is_being_deleted_gets_no_status():
    going = pool("going", deletion_timestamp=NOW, finalizers=["x"])
    assert [each.name for each in reported(pools=[going, pool()])] == ["p"]


def test_a_report_of_a_pool_gives_the_reason_of_what_is_wrong():
    seen = pool()
    snapshot = Snapshot(now=NOW, classes=(node_class(),), pools=(seen,))

    (paused,) = report_pools(snapshot, {seen.key: "Too many nodes are unhealthy."})
    (fine,) = report_pools(snapshot, {})

    assert (paused.reason, paused.sentence) == (Reason.DISRUPTION_PAUSED, "Too many nodes are unhealthy.")
    assert [each.status for each in paused.conditions] == [Truth.TRUE, Truth.FALSE]
    assert fine.reason is Reason.NODE_CLASS_FOUND


def test_a_sentence_that_is_too_long_for_the_api_is_shortened():
    paused = "so many nodes are unhealthy " * 2000
    seen = pool()
    snapshot = Snapshot(now=NOW, classes=(node_class(),), pools=(seen,))

    (decision,) = report_pools(snapshot, {seen.key: paused})

    assert all(len(each.message) <= 32768 for each in decision.conditions)
    assert tuple(report_pools(replace(snapshot, pools=(after(decision, seen),)), {seen.key: paused})) == ()


def test_a_pool_of_a_namespace_that_its_class_does_not_allow_is_told_what_to_do():
    closed = node_class(allows=None)
    (report,) = reported(pools=[pool()], classes=[closed])
    (on_class,) = report_classes(Snapshot(now=NOW, classes=(closed,), pools=(pool(),)))

    assert {each.type: (each.status, each.reason) for each in report.conditions} == {
        "NodeClassReady": (Truth.FALSE, Reason.NAMESPACE_NOT_ALLOWED),
        "Ready": (Truth.FALSE, Reason.NAMESPACE_NOT_ALLOWED),
    }
    assert report.conditions[0].message == (
        "This pool gets no capacity: GPUNodeClass c does not allow GPUNodePools of namespace team: select the "
        "namespace in the class's spec.allowedNamespaces, or create the pool in namespace forebay-system."
    )
    assert (on_class.conditions[0].status, on_class.reason) == (Truth.FALSE, Reason.NAMESPACE_NOT_ALLOWED)
    assert "No GPUNodePool of this class may use it (team/p)" in on_class.sentence


def test_a_pool_is_told_which_of_the_namespaces_it_selects_it_may_not_serve():
    wide = pool(spec={"namespace_selector": LabelSelectorEntry(match_labels={"kind": "lab"})})
    (report,) = reported(
        pools=[wide], classes=[node_class()], namespaces={"team": {"kind": "lab"}, "rival": {"kind": "lab"}, "x": {}}
    )

    assert report.conditions[0].status is Truth.TRUE
    assert "does not permit this pool to serve rival: select these in the class's spec.allowedPodNamespaces" in (
        report.conditions[0].message
    )


def test_a_pool_and_a_class_show_what_their_machines_cost_and_a_change_of_that_alone_is_written():
    def machine(name, price, state=InstanceState.READY):
        made = stuck(name, state, NOW)
        return replace(made, spec=replace(made.spec, hourly_price=price, node_class_name="c"))

    def written(seen, *records):
        snapshot = Snapshot(now=NOW, classes=(node_class(),), pools=(seen,), records=records)
        (on_class,) = report_classes(snapshot)
        return list(report_pools(snapshot, {})), on_class

    pools, on_class = written(pool(), machine("a", "1.20"), machine("b", "0.30"), machine("c", "9", InstanceState.GONE))
    assert [(each.node_count, each.hourly_cost) for each in pools] == [(2, "1.5")]
    assert (on_class.active_nodes, on_class.hourly_cost) == (2, "1.5")
    (fewer,), on_class = written(after(pools[0], pool()), machine("a", "1.20"))
    assert (fewer.node_count, fewer.hourly_cost, fewer.conditions) == (1, "1.2", pools[0].conditions)
    (none,), _ = written(pool())
    assert (none.node_count, none.hourly_cost) == (0, "0")


def test_of_many_machines_that_cannot_go_a_few_are_named_and_the_others_counted():
    failing = [
        stuck(f"box-{number}", InstanceState.TERMINATING, NOW, reason=Reason.TERMINATION_FAILED) for number in range(7)
    ]
    empty = stuck("rack", InstanceState.DRAINING, NOW - timedelta(hours=1))
    snapshot = Snapshot(now=NOW, classes=(node_class(),), pools=(pool(),), records=(*failing, empty))

    (decision,) = report_pools(snapshot, {})

    (said,) = (each.message for each in decision.conditions if each.type == "TerminationBlocked")
    assert "termination of box-4 fails and 2 more" in said
    assert "box-5" not in said
    assert "rack" not in said, "no pod is on its node"


def test_a_class_is_written_when_only_its_figures_change_and_not_when_nothing_does():
    def reports(seen, *records):
        return list(report_classes(Snapshot(now=NOW, classes=(seen,), pools=(pool(),), records=records)))

    made = stuck("a", InstanceState.READY, NOW)
    made = replace(made, spec=replace(made.spec, hourly_price="2", node_class_name="c"))
    (first,) = reports(node_class())
    status = GPUNodeClassStatus(
        conditions=first.conditions, active_nodes=first.active_nodes, hourly_cost=first.hourly_cost, offers=first.offers
    )
    seen = replace(node_class(), status=status)
    assert reports(seen) == []
    (second,) = reports(seen, made)
    assert (second.active_nodes, second.hourly_cost, second.conditions) == (1, "2", first.conditions)


def joining(approval_reason=None, token="abc123"):
    """A machine of class c that joins with a token of its own, and its request for a certificate."""
    made = SecondaryResource(kind="BootstrapToken", name="abc123", until=ResourceLifetime.JOINED, attempt=1)
    machine = stuck("pool-abc", InstanceState.LAUNCHED, NOW, secondary_resources=(made,))
    machine = replace(machine, spec=replace(machine.spec, delivers=Delivery.NODE, node_class_name="c"))
    asked = SigningRequest(
        name="csr-1",
        uid="uid-1",
        resource_version=5,
        created=NOW,
        username=f"system:bootstrap:{token}",
        node_name="pool-abc",
        public_key="key",
        approved=approval_reason is not None,
        approval_reason=approval_reason,
    )
    return Snapshot(now=NOW, classes=(node_class(),), pools=(pool(),), records=(machine,), signing_requests=(asked,))


def restricted(snapshot):
    (decision,) = report_classes(snapshot)
    return next((each for each in decision.conditions if each.type == "JoinRestricted"), None)


def test_a_class_says_when_the_cluster_approves_every_machine_by_itself():
    said = restricted(joining("AutoApproved"))
    assert (said.status, said.reason) == (Truth.FALSE, Reason.NODE_CERTIFICATE_AUTO_APPROVED)
    assert "approves the certificates of joining machines by itself (AutoApproved), for any node name" in said.message

    ours = restricted(joining(Reason.NODE_CERTIFICATE_APPROVED))
    assert (ours.status, ours.reason) == (Truth.TRUE, Reason.NODE_CERTIFICATE_APPROVED)


def test_requests_that_nobody_approved_and_those_of_strangers_say_nothing_about_the_class():
    assert restricted(joining()) is None
    assert restricted(joining("AutoApproved", token="zzz999")) is None
