"""One object that a tick cannot handle: it is told, and the tick of all others goes on."""

from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState, PoolRef
from forebay.api.gpu_node_class import ProviderEntry
from forebay.api.gpu_node_pool import Disruption
from forebay.budgets.accounts import Accounts
from forebay.lifecycle.facts import source_of
from forebay.lifecycle.steps import WriteStatus
from forebay.model.reasons import Reason
from forebay.model.sources import Source
from forebay.reconcile.decisions import PodEvent, ReportBudget, ReportClass, ReportPool
from forebay.reconcile.isolation import Faults, ObjectId, without_faulty
from forebay.reconcile.snapshot import BudgetState, Snapshot
from forebay.reconcile.tick import tick
from tests.unit.budgets.factories import budget
from tests.unit.demand.builders import NOW, node, pod, running
from tests.unit.lifecycle.builders import NOW as LATER
from tests.unit.lifecycle.builders import RENTED, record
from tests.unit.lifecycle.builders import node as built_node
from tests.unit.reconcile.test_reports import node_class, pool


def decided(result, kind):
    return {each.name: each for each in result.decisions if isinstance(each, kind)}


def test_a_quota_that_cannot_be_read_is_told_on_its_budget_and_the_others_are_assessed():
    good, bad = budget("good"), budget("bad")
    accounts = Accounts()
    for each in (good, bad):
        accounts.open(each, NOW)
    # An edit of an existing budget: the account stays open.
    bad = replace(bad, spec=replace(bad.spec, quota=replace(bad.spec.quota, gpu_hours="lots")))
    state = BudgetState(accounts=accounts.frozen())

    result = tick(Snapshot(now=NOW, budgets=(bad, good), budget_state=state))

    reports = decided(result, ReportBudget)
    assert reports["good"].figures["remainingGpuHours"] == "100"
    assert {each.type: each.reason for each in reports["bad"].conditions} == {
        "Ready": Reason.RECONCILE_FAILED,
        "Degraded": Reason.RECONCILE_FAILED,
    }
    assert result.errors.keys() == {ObjectId("GPUWorkloadBudget", "default", "bad")}


def test_a_pool_whose_rules_cannot_be_read_is_told_so_and_the_tick_goes_on():
    bad, good = pool("bad"), pool("good")
    bad = replace(bad, spec=replace(bad.spec, disruption=Disruption(consolidate_after="lots")))

    result = tick(Snapshot(now=NOW, pools=(bad, good), classes=(node_class(),)))

    ready = {name: each.conditions[-1].reason for name, each in decided(result, ReportPool).items()}
    assert ready == {"bad": Reason.RECONCILE_FAILED, "good": Reason.NODE_CLASS_FOUND}
    assert result.errors.keys() == {ObjectId("GPUNodePool", "team", "bad")}


def test_a_class_that_cannot_be_handled_is_told_so_and_the_others_are_reported():
    bad = node_class("bad")
    bad = replace(bad, spec=replace(bad.spec, providers=(ProviderEntry(name="webhook", machines=None),)))

    result = tick(Snapshot(now=NOW, classes=(bad, node_class("good")), pools=(pool("p", "bad"), pool("q", "good"))))

    ready = {name: each.conditions[0] for name, each in decided(result, ReportClass).items()}
    assert {name: each.reason for name, each in ready.items()} == {
        "bad": Reason.RECONCILE_FAILED,
        "good": Reason.PROVIDERS_READY,
    }
    assert "which is a bug. The log has the details" in ready["bad"].message
    assert result.errors.keys() == {ObjectId("GPUNodeClass", "", "bad")}


def test_a_pod_that_cannot_be_handled_is_told_so_and_the_others_are_served():
    strange = pod("strange", node_selector=None)
    seen = Snapshot(now=NOW, pending=(strange, pod("train")), nodes={"n1": node("n1")})

    result = tick(seen)

    told = {each.pod.name: each.reason for each in result.decisions if isinstance(each, PodEvent)}
    assert told["strange"] is Reason.RECONCILE_FAILED
    assert result.memory.reservations.placed.keys() == {"uid-train"}
    assert result.errors.keys() == {ObjectId("Pod", "default", "strange")}


def found(snapshot, breaks):
    """What `without_faulty` blames where the stages fail for any snapshot that `breaks`."""

    def stages(seen):
        if breaks(seen):
            raise ArithmeticError
        return len(seen.pending), len(seen.pools)

    faults = Faults()
    result, left_out = without_faulty(snapshot, stages, faults)
    return result, {each.name for each in left_out}, {each.name for each in faults.errors}


TWO_OF_EACH = Snapshot(now=NOW, pending=(pod("x"), pod("y")), pools=(pool("p"), pool("q")))


def names(objects):
    return {each.key[1] for each in objects}


def test_the_object_that_breaks_the_stages_is_found():
    by_pool = found(TWO_OF_EACH, lambda seen: "p" in names(seen.pools) and seen.pending)
    by_pod = found(TWO_OF_EACH, lambda seen: "x" in names(seen.pending))
    by_pod_with_pools = found(TWO_OF_EACH, lambda seen: "x" in names(seen.pending) and seen.pools)
    by_both = found(TWO_OF_EACH, lambda seen: "x" in names(seen.pending) or ("p" in names(seen.pools) and seen.pending))

    assert by_pool == ((2, 1), set(), {"p"})
    assert by_pod == ((1, 2), {"x"}, {"x"})
    assert by_pod_with_pools == ((1, 2), {"x"}, {"x"})
    assert by_both == ((1, 1), {"x"}, {"x", "p"})


def test_a_bound_pod_that_cannot_be_read_is_told_so():
    result = tick(Snapshot(now=NOW, unreadable_pods=((running("odd"), "Expected `int`"),)))

    (told,) = result.decisions
    assert (told.pod.name, told.reason) == ("odd", Reason.UNREADABLE)
    assert "(Expected `int`)" in told.sentence


def test_a_machine_is_kept_while_its_pool_exists_but_cannot_be_read():
    machine = record(InstanceState.READY)
    machine = replace(machine, spec=replace(machine.spec, pool_ref=PoolRef(namespace="team", name="p")))
    class_name = machine.spec.node_class_name
    source = Source(key=source_of(machine), capabilities=RENTED)
    nodes = {machine.node_name: built_node(machine.node_name)}
    seen = Snapshot(now=LATER, records=(machine,), nodes=nodes, sources={source.key: source})

    def steps(snapshot):
        return [each.reason for each in tick(snapshot).decisions if isinstance(each, WriteStatus)]

    assert Reason.POOL_GONE in steps(seen)
    kept = replace(
        seen,
        unreadable_pools=frozenset({("team", "p")}),
        unreadable_classes=frozenset({class_name} if class_name else ()),
    )
    assert Reason.POOL_GONE not in steps(kept)
