"""A dry run lays over each snapshot what it would have done: bought machines run their pods, ended ones are gone."""

from datetime import timedelta

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.instance_order import BillingTerms
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER
from forebay.demand.reservation import Reservation, Reservations
from forebay.lifecycle.facts import source_of
from forebay.lifecycle.steps import Adopt, DeleteRecord, Terminate, WriteStatus
from forebay.model.quantities import Resources
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery, Found, Instance, InstancePhase, Listing, Source
from forebay.model.workloads import Phase
from forebay.reconcile.decisions import CreateInstance, SetClassFinalizer
from forebay.reconcile.shadow_fleet import ShadowFleet
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import GPU, NOW, node, pod, record, running

S = InstanceState
HOUR = timedelta(hours=1)
PLANNED = replace(record("new", pods=(pod(),), pool="lab").spec, hourly_price="2.00", delivers=Delivery.NODE)
#: A machine of the cluster, whose node is Ready.
REAL = replace(record("real"), spec=replace(record("real").spec, hourly_price="1.00"))
REAL = replace(REAL, status=replace(REAL.status, billed_from=NOW - HOUR))


def create(name="new", spec=PLANNED):
    return CreateInstance(name=name, spec=spec, reason=Reason.CAPACITY_NEEDED, sentence="Pods wait.")


class DryRun:
    """A fleet in a cluster that a test changes."""

    def __init__(self, *records, pending=(), nodes=(), **fields):
        self.fleet = ShadowFleet(HOUR)
        self.pods = {each.key: each for each in pending}
        self.real = Snapshot(
            now=NOW, records=records, pending=tuple(pending), nodes={each.name: each for each in nodes}, **fields
        )

    def seen(self, after=timedelta(0), **changes):
        self.real = replace(self.real, now=NOW + after, **changes)
        return self.fleet.overlay(self.real, self.pods.get, lambda _: ())

    def decide(self, *decisions, placed=(), after=timedelta(0)):
        """`placed`: pods that have room on the machine that was bought."""
        reservations = {each.uid: Reservation(node="new", reason=Reason.FITS_EXISTING, sentence="s") for each in placed}
        self.fleet.apply(decisions, Reservations(placed=reservations), self.seen(after))

    def end(self, name, after):
        (mine,) = [each for each in self.seen(after).records if each.metadata.name == name]
        status = replace(mine.status, state=S.TERMINATING)
        self.decide(WriteStatus(record=mine, reason=Reason.IDLE, sentence="s", status=status), after=after)


def test_a_machine_that_would_have_been_bought_is_ready_and_its_pods_run_there():
    waits = replace(pod(), uid="uid-waits", name="waits")
    dry = DryRun(pending=(waits, pod("other")))

    dry.decide(create())
    (bought,) = dry.seen().records
    assert (bought.state, bought.node_name) == (S.READY, "new")
    assert dry.seen().nodes["new"].ready
    assert dry.seen().nodes["new"].ready_since == NOW
    dry.decide(placed=(waits,))
    after = dry.seen()
    assert [each.name for each in after.pending] == ["other"]
    assert [(each.name, each.node) for each in after.pods_by_node["new"]] == [("waits", "new")]
    assert after.used["new"].amount(GPU) == 1
    (time,) = dry.fleet.purchases
    assert (time.name, time.pool, time.provider, time.pods, time.until) == ("new", "team/lab", "webhook", 1, None)
    assert time.price.exact() == "2"
    assert dry.fleet.savings == ()


def test_a_pod_ends_when_it_ends_in_reality_and_else_after_the_assumed_time():
    long, done, deleted, bound = (pod(name) for name in ("long", "done", "deleted", "bound"))
    dry = DryRun(pending=(long, done, deleted, bound))
    dry.decide(create())
    dry.decide(placed=(long, done, deleted, bound))
    assert len(dry.seen().pods_by_node["new"]) == 4

    dry.pods[done.key] = replace(done, phase=Phase.SUCCEEDED)
    dry.pods[deleted.key] = replace(deleted, deleted=NOW)
    dry.pods[bound.key] = running("bound", "elsewhere")
    shown = dry.seen(HOUR - timedelta(seconds=1), pending=(long,))
    assert [each.name for each in shown.pods_by_node["new"]] == ["long", "bound"]
    over = dry.seen(HOUR)
    assert [each.name for each in over.pods_by_node["new"]] == ["bound"]
    assert over.pending == (), "it would not wait any more"
    del dry.pods[bound.key]
    assert dry.seen(HOUR, pending=()).pods_by_node["new"] == ()
    again = replace(long, uid="uid-again")
    assert dry.seen(HOUR, pending=(again,)).pending == (again,)


def test_a_machine_that_was_bought_costs_until_it_would_have_been_terminated():
    waits = pod()
    dry = DryRun(pending=(waits,))
    dry.decide(create())
    dry.decide(placed=(waits,))
    dry.end("new", HOUR / 2)

    (time,) = dry.fleet.purchases
    assert (time.since, time.until) == (NOW, NOW + HOUR / 2)
    after = dry.seen(HOUR / 2)
    assert (after.records, after.nodes, after.pending) == ((), {}, (waits,))
    assert dry.fleet.savings == ()


def test_a_machine_that_would_be_off_saves_until_it_is_off_or_used_in_reality():
    def saved(**changes):
        dry = DryRun(REAL, nodes=(node("real"),))
        dry.end("real", timedelta(0))
        hidden = dry.seen()
        assert (hidden.records, "real" in hidden.nodes) == ((), False)
        dry.seen(HOUR, **changes)
        (time,) = dry.fleet.savings
        return time

    assert (saved().since, saved().until, saved().pods, saved().price.exact()) == (NOW, None, 0, "1")
    assert saved(nodes={}).until == NOW + HOUR
    assert saved(nodes={"real": node("real", ready=False)}).until == NOW + HOUR
    assert saved(used={"real": Resources({GPU: 1})}).until == NOW + HOUR
    assert saved(used={"real": Resources({"cpu": 1})}).until is None


def test_what_the_cluster_says_of_a_machine_counts_unless_the_dry_run_decided_otherwise():
    dry = DryRun(REAL, nodes=(node("real"),))
    told = replace(REAL.status, message="Idle.")
    dry.decide(WriteStatus(record=REAL, reason=Reason.IDLE, sentence="s", status=told))
    assert dry.seen().records[0].status.message == "Idle."
    newer = replace(REAL, metadata=replace(REAL.metadata, resource_version="8"))
    assert dry.seen(records=(newer,)).records == (newer,)
    assert dry.seen(records=()).records == (), "it is gone in reality"
    dry.decide(Terminate(record=REAL, instance_id="i", reason=Reason.IDLE, sentence="s", status=None))
    assert dry.fleet.savings == (), "nobody knows it any more"


def test_adopted_and_forgotten_machines_and_held_classes_are_as_if_they_were_written():
    node_class = GPUNodeClass(metadata=ObjectMeta(name="c", uid="u"), spec=GPUNodeClassSpec(providers=()))
    dry = DryRun(classes=(node_class,))
    found = GPUInstanceStatus(state=S.READY, node_name="found", billed_from=NOW)
    adopted = Adopt(name="found", spec=PLANNED, status=found, reason=Reason.ADOPTED, sentence="s")

    dry.decide(SetClassFinalizer(node_class=node_class, present=True), adopted)
    shown = dry.seen()
    assert shown.classes[0].metadata.finalizers == [CLASS_FINALIZER]
    assert [each.metadata.name for each in shown.records] == ["found"]
    assert dry.fleet.purchases == ()
    dry.decide(DeleteRecord(record=shown.records[0], reason=Reason.NOT_NEEDED, sentence="s"))
    assert dry.seen().records == ()
    leaving = replace(found, state=S.TERMINATING)
    dry.decide(Adopt(name="orphan", spec=PLANNED, status=leaving, reason=Reason.LEFTOVER, sentence="s"))
    assert dry.seen().records == ()
    assert [each.name for each in dry.fleet.savings] == ["orphan"]


def test_a_container_is_not_bought_by_a_dry_run():
    dry = DryRun()
    dry.decide(create(spec=replace(PLANNED, delivers=Delivery.CONTAINER)))
    assert (dry.fleet.purchases, dry.seen().records) == ((), ())


def test_listings_show_the_machines_of_the_dry_run_and_not_those_that_would_be_off():
    rented = replace(REAL, spec=replace(REAL.spec, delivers=Delivery.NODE))
    rented = replace(rented, status=replace(rented.status, instance_id="i-1"))
    key = source_of(rented)
    instances = tuple(Instance(id=each, phase=InstancePhase.RUNNING) for each in ("i-1", "i-2"))
    source = Source(
        key=key,
        capabilities=Capabilities(deliveries=(Delivery.NODE,)),
        listing=Listing(asked=NOW, found=Found(instances=instances, unknown=frozenset({"i-1", "i-3"}))),
    )
    dry = DryRun(rented, nodes=(node("real"),), sources={key: source})
    dry.end("real", timedelta(0))
    dry.decide(create())

    listed = dry.seen().sources[key].listing.found
    assert [each.id for each in listed.instances][:1] == ["i-2"]
    assert [each.node_name for each in listed.instances] == [None, "new"]
    (bought,) = dry.seen().records
    assert listed.instances[1].id == bought.status.instance_id, "else it would be taken for a machine that vanished"
    assert listed.unknown == {"i-3"}


def test_machines_of_the_dry_run_are_told_apart_and_each_is_counted():
    dry = DryRun()
    dry.decide(create())
    dry.decide(create("second", replace(PLANNED, hourly_price="3.00")))

    assert len({each.uid for each in dry.seen().records}) == 2
    assert [(each.name, each.price.exact()) for each in dry.fleet.purchases] == [("new", "2"), ("second", "3")]


def test_a_machine_with_a_least_time_is_paid_for_until_its_end_though_it_goes_earlier():
    dry = DryRun()
    dry.decide(create(spec=replace(PLANNED, billing=BillingTerms(minimum="2h"))))
    dry.end("new", HOUR)

    (time,) = dry.fleet.purchases
    assert time.until == NOW + 2 * HOUR
