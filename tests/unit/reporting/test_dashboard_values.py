"""Values of the dashboard: money over time, the decision log, life lines, figures at a glance, pages of lists."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import Transition
from forebay.api.gpu_node_pool import GPUNodePoolStatus
from forebay.api.names import VIRTUAL_NODE
from forebay.api.node_provisioner import NodeProvisionerStatus
from forebay.api.parts import Condition, Truth
from forebay.budgets.bill_keys import BillKey
from forebay.lifecycle.steps import Adopt
from forebay.model.quantities import Resources
from forebay.model.reasons import Reason
from forebay.model.sources import SourceKey
from forebay.model.workloads import Owner
from forebay.reconcile.decisions import CreateInstance, OwnerEvent, PodEvent, SetClassFinalizer
from forebay.reporting.decision_log import DecisionLog, decision_line
from forebay.reporting.life_lines import axis_start, life_line
from forebay.reporting.listed import list_page, machine_page, waiting_page, waiting_reasons
from forebay.reporting.machines import machine_view
from forebay.reporting.money import SPANS, money_view
from forebay.reporting.observation import find_pod
from forebay.reporting.overview import overview, problems
from tests.unit.reporting.objects import NOW, S, before, node, pod, pool, record
from tests.unit.reporting.test_provisioner_views import FINE
from tests.unit.web.observations import bill, observed

A, B = BillKey("team", "team/lab", "owned"), BillKey("", "", "cloud")


@pytest.mark.parametrize("span", SPANS)
def test_money_adds_up_in_every_span_and_by_every_key(span):
    view = money_view({**bill(A, dollars=2), **bill(B, dollars=1)}, {"owned": "webhook", "cloud": "x, y"}, NOW, span)

    assert view.total.spent == "9.000000", "three hours at three dollars"
    assert len(view.bounds) == SPANS[span].slices + 1
    for lines in (view.by_pool, view.by_namespace, view.by_provider):
        assert sum(float(each.spent) for each in lines) == 9
        assert sum(float(part) for each in lines for part in each.slices) == pytest.approx(9, abs=0.001)
    assert [each.name for each in view.by_pool] == ["team/lab", "none"], "the largest first"
    assert [each.name for each in view.by_provider] == ["webhook", "x, y"]


def test_money_is_shown_in_the_slice_in_which_it_was_spent():
    view = money_view(bill(A, dollars=2, hours=1), {}, NOW, "24h")

    spent = [float(each) for each in view.total.slices]
    assert spent[-2:] == [1.0, 1.0]
    assert not any(spent[:-2])


def test_without_a_ledger_there_is_no_money():
    view = money_view({}, {}, NOW, "24h")

    assert (view.total.spent, view.by_pool) == ("0.000000", [])
    assert len(view.total.slices) == 48


def told(sentence, name="waits"):
    return PodEvent(pod=pod(name), reason=Reason.NO_OFFER_FITS, sentence=sentence)


def test_a_decision_that_only_repeats_the_last_one_is_logged_once():
    log = DecisionLog()
    for number in range(5):
        log.add([told(f"None of {number} offers fits.")], NOW + timedelta(seconds=number))
    log.add([told("Too dear.")], NOW + timedelta(minutes=1))
    log.add([told("None of 9 offers fits.")], NOW + timedelta(minutes=2))

    lines = log.newest_first()
    assert [each.sentence for each in lines] == ["None of 9 offers fits.", "Too dear.", "None of 0 offers fits."]
    assert {(each.kind, each.name, each.decision) for each in lines} == {("Pod", "team/waits", "PodEvent")}


def test_a_machine_that_is_bought_again_for_the_same_reason_is_logged_again():
    log = DecisionLog()
    bought = CreateInstance(name="m1", spec=None, reason=Reason.CAPACITY_NEEDED, sentence="m1 was chosen.")
    for number in range(3):
        log.add([bought], NOW + timedelta(seconds=number))
    log.add(
        [Adopt(name="m1", spec=None, status=None, reason=Reason.ADOPTED, sentence="m1 runs.")],
        NOW + timedelta(minutes=1),
    )
    log.add([bought], NOW + timedelta(hours=1))

    assert [each.decision for each in log.newest_first()] == ["CreateInstance", "Adopt", "CreateInstance"]


def test_several_decisions_of_one_object_that_each_tick_repeats_are_logged_once():
    log = DecisionLog()
    for number in range(3):
        log.add([told("first"), told("second")], NOW + timedelta(seconds=number))

    assert [each.sentence for each in log.newest_first()] == ["second", "first"]


def test_the_log_names_owners_and_leaves_out_what_has_no_reason():
    log = DecisionLog(most=2)
    owner = OwnerEvent(
        namespace="team",
        owner=Owner("Job", "train", "u"),
        pods=9,
        reason=Reason.NO_OFFER_FITS,
        sentence="s",
        warning=True,
    )
    created = CreateInstance(name="m1", spec=record().spec, reason=Reason.CAPACITY_NEEDED, sentence="Pods wait.")
    log.add([SetClassFinalizer(node_class=None, present=True)], NOW)
    assert log.newest_first() == ()
    log.add([told("first"), created, owner], NOW)

    assert [(each.kind, each.name) for each in log.newest_first()] == [("Job", "team/train"), ("GPUInstance", "m1")]


def test_a_life_line_has_each_state_until_the_next_and_ends_with_the_machine():
    alive = machine_view(record(), {}, NOW)
    start = axis_start([alive], NOW)
    assert start == NOW - timedelta(minutes=10), "the shortest axis"
    assert [(each.state, each.start, each.end) for each in life_line(alive, start, NOW)] == [
        ("Requested", before(minutes=2), before(minutes=1)),
        ("Ready", before(minutes=1), NOW),
    ]
    gone = machine_view(record(state=S.GONE), {}, NOW)
    assert [each.state for each in life_line(gone, start, NOW)] == ["Requested"]
    assert [each.start for each in life_line(alive, before(seconds=30), NOW)] == [before(seconds=30)]


def test_the_overview_counts_and_names_what_needs_a_person():
    seen = observed(
        records=(
            record(),
            record("bad", S.TERMINATING, reason="TerminationFailed", message="The provider says no."),
            record("lost", reason="ProviderNotConfigured", message="Forebay cannot terminate it."),
        ),
        unusable={SourceKey("owned", "x"): "its Secret is missing"},
        unreadable_records={"odd": "a field is missing"},
    )

    view = overview(seen.snapshot)

    assert (view.billed, view.states, view.waiting) == (3, {"Ready": 2, "Terminating": 1}, 1)
    assert (view.gpus, view.gpus_requested) == (4, 3)
    assert view.hourly == "5.4"
    assert [(each.about, each.sentence.split(":")[0]) for each in view.problems] == [
        ("GPUInstance bad", "The provider says no."),
        ("GPUInstance lost", "Forebay cannot terminate it."),
        ("GPUInstance odd", "cannot be read, so nothing is decided about it"),
        ("x of GPUNodeClass owned", "its Secret is missing"),
        ("Pod team/waits", "None of 3 offers fits the pod."),
    ]


def test_a_pod_that_no_waiting_helps_needs_a_person_and_one_that_capacity_is_found_for_does_not():
    hopeless = [
        pod(name, capacity="NoOfferFits: Request less.", created=before(minutes=age))
        for name, age in [("b", 5), ("a", 9), ("c", 1)]
    ]
    patient = pod("d", capacity="OutOfStock: All are in use.")
    snapshot = replace(observed().snapshot, pending=(*hopeless, patient))

    assert [(each.about, each.sentence) for each in problems(snapshot)] == [
        ("Pod team/a and 2 other pods", "Request less.")
    ]


def test_lists_are_filtered_before_they_are_paged():
    machines = tuple(record(f"m{number}", S.GONE if number < 3 else S.READY) for number in range(120))
    snapshot = observed(records=machines).snapshot

    page = machine_page(snapshot, page=3)
    assert (page.page, page.pages, page.total, len(page.rows)) == (3, 3, 120, 20)
    assert {each.state for each in page.rows[-3:]} == {"Gone"}, "those that are Gone come last"
    assert machine_page(snapshot, state="Gone").matching == 3
    assert [each.name for each in machine_page(snapshot, "M77").rows] == ["m77"]
    assert machine_page(snapshot, page=99).page == 3
    assert machine_page(snapshot).page == 1
    assert list_page([], 0, 1, str).pages == 1


def test_waiting_pods_are_counted_by_reason_and_shown_with_it():
    held = pod("held", capacity="HeldByBudget: no headroom")
    seen = observed(pending=(pod("new", 8), held, pod("held-2", 4, capacity="HeldByBudget: no headroom")))

    assert waiting_reasons(seen.snapshot) == [("HeldByBudget", 2, 5), ("NotYetScheduled", 1, 8)]
    found = waiting_page(seen, "held")
    assert (found.matching, found.total) == (2, 3)
    assert found.rows[0].reason == "HeldByBudget: no headroom"


def test_a_pod_that_is_bound_to_the_virtual_node_and_gets_no_container_waits_too():
    bound = pod("bound", 2, node=VIRTUAL_NODE)
    told = replace(bound, capacity="CoolingDown: All offers cool down.")

    assert waiting_page(observed(pending=(), stranded=(bound,))).total == 0, "its container is ordered in a moment"
    seen = observed(pending=(), stranded=(told,))
    assert [each.reason for each in waiting_page(seen).rows] == ["CoolingDown: All offers cool down."]
    assert waiting_reasons(seen.snapshot) == [("CoolingDown", 1, 2)]
    figures = overview(seen.snapshot)
    assert (figures.waiting, figures.waiting_gpus) == (1, 2)
    assert find_pod(seen.snapshot, *told.key) is told


@pytest.mark.parametrize("query", ["M7", "team/lab", "owned", "webhook", "l40s", "ready"])
def test_a_machine_is_found_by_any_of_its_words(query):
    bare = record("bare", S.REQUESTED, pool=None, reason=None)
    bare = replace(bare, spec=replace(bare.spec, offer=None, node_class_name=None, provider="x"))
    snapshot = observed(records=(record("m7"), bare)).snapshot

    assert [each.name for each in machine_page(snapshot, query).rows] == ["m7"]
    assert machine_page(snapshot, "none").matching == 0, "what a machine lacks is not a word of it"


def test_a_waiting_pod_is_found_by_its_name_its_reason_or_its_owner_and_the_oldest_comes_first():
    mine = pod("x-1", created=before(hours=1), owner=Owner("Job", "sweep", "u"), unschedulable_since=before(minutes=9))
    told = pod("b", created=before(hours=2), capacity="LimitReached: No room.", unschedulable_since=None)
    seen = observed(pending=(pod("a"), mine, told))

    assert [each.pod for each in waiting_page(seen).rows] == ["team/b", "team/x-1", "team/a"]
    assert [each.pod for each in waiting_page(seen, "SWEEP").rows] == ["team/x-1"]
    assert [each.pod for each in waiting_page(seen, "limit").rows] == ["team/b"]
    first, second, _ = waiting_page(seen).rows
    assert (first.since, second.since) == (before(hours=2), before(minutes=9))


def test_machines_are_listed_newest_first():
    old, new = record("a"), record("b")
    old = replace(old, metadata=replace(old.metadata, creation_timestamp=before(days=2)))
    unknown = replace(record("c"), metadata=replace(record("c").metadata, creation_timestamp=None))

    page = machine_page(observed(records=(unknown, old, new)).snapshot)
    assert [each.name for each in page.rows] == ["b", "a", "c"]


@pytest.mark.parametrize(("page", "shown"), [(-3, 1), (1, 1), (2, 2), (3, 2)])
def test_a_page_that_is_not_there_is_the_nearest_one(page, shown):
    found = list_page(list(range(4)), 9, page, str, rows=2)

    assert (found.page, found.pages, found.matching, found.total) == (shown, 2, 4, 9)
    assert found.rows == (["0", "1"] if shown == 1 else ["2", "3"])


def test_a_source_a_pool_the_ledger_and_budgets_that_need_a_person_are_named():
    seen = observed()
    key, source = next(iter(seen.snapshot.sources.items()))
    ready = [
        Condition(type=kind, status=status, reason="R", message=f"{kind} {status}", last_transition_time=NOW)
        for kind, status in [("Ready", Truth.FALSE), ("Other", Truth.FALSE)]
    ]
    fine = Condition(type="Ready", status=Truth.TRUE, reason="R", message="fine", last_transition_time=NOW)
    snapshot = replace(
        seen.snapshot,
        sources={key: replace(source, error="The key is refused.")},
        pools=(
            replace(pool(), status=GPUNodePoolStatus(conditions=tuple(ready))),
            replace(pool("fine"), status=GPUNodePoolStatus(conditions=(fine,))),
            pool("new"),
        ),
        provisioners=(
            replace(FINE, status=NodeProvisionerStatus(conditions=tuple(ready))),
            replace(FINE, status=NodeProvisionerStatus(conditions=(fine,))),
            replace(FINE, status=None),
        ),
        budget_state=replace(seen.snapshot.budget_state, unstored="no permission"),
        gate_missing="Nothing holds new pods.",
    )

    assert [(each.about, each.sentence) for each in overview(snapshot).problems] == [
        ("webhook of GPUNodeClass owned", "The key is refused."),
        ("GPUNodePool team/lab", "Ready False"),
        ("NodeProvisioner pool", "Ready False"),
        ("Pod team/waits", "None of 3 offers fits the pod."),
        ("The ledger", "cannot be stored: no permission"),
        ("Budgets", "Nothing holds new pods."),
    ]
    assert overview(replace(seen.snapshot, budget_state=None, pending=())).problems == []


def test_gpus_in_use_on_nodes_that_are_gone_do_not_count():
    used = {"m1": Resources({"nvidia.com/gpu": 3}), "left": Resources({"nvidia.com/gpu": 8})}
    seen = observed(used=used, pending=(pod("a", 2), pod("b", 3)), nodes={"m1": node(), "m2": node("m2", ready=False)})

    view = overview(seen.snapshot)
    assert (view.gpus_requested, view.waiting_gpus, view.nodes, view.nodes_ready) == (3, 5, 2, 1)


def test_remote_containers_use_no_gpus_of_nodes_and_one_that_lacks_something_needs_a_person():
    used = {"m1": Resources({"nvidia.com/gpu": 3}), VIRTUAL_NODE: Resources({"nvidia.com/gpu": 2})}
    held = record("c1", S.REQUESTED, pods=("far",), reason="ContainerConfigError", message="Its Secret is missing.")
    seen = observed(used=used, nodes={"m1": node(), VIRTUAL_NODE: node(VIRTUAL_NODE)}, records=(held,), pending=())

    view = overview(seen.snapshot)

    assert (view.gpus, view.gpus_requested, view.gpus_remote, view.nodes) == (4, 3, 2, 1)
    assert [(each.about, each.sentence) for each in view.problems] == [("Pod team/far", "Its Secret is missing.")]


def test_a_life_line_shows_at_most_a_day_and_a_machine_without_history_from_its_beginning():
    old = record(transitions=(Transition(state=S.READY, at=before(days=3), reason="r", message="m"),))
    assert axis_start([machine_view(old, {}, NOW)], NOW) == NOW - timedelta(hours=24)
    without = machine_view(record(transitions=()), {}, NOW)
    assert axis_start([without], NOW) == NOW - timedelta(minutes=10)
    assert [(each.state, each.start, each.end) for each in life_line(without, before(hours=1), NOW)] == [
        ("Ready", before(minutes=1), NOW)
    ]
    assert life_line(machine_view(record(), {}, NOW), before(hours=1), before(minutes=2)) == [], "not there yet"
    assert [each.state for each in life_line(machine_view(record(), {}, NOW), before(minutes=1), NOW)] == ["Ready"]


def test_money_of_lines_that_share_a_name_adds_up_and_what_costs_nothing_is_left_out():
    other = BillKey("other", "team/lab", "owned")
    ledgers = {**bill(A, dollars=2), **bill(other, dollars=1), **bill(B, dollars=0)}

    view = money_view(ledgers, {}, NOW, "24h")

    assert [(each.name, each.spent, each.hourly) for each in view.by_pool] == [("team/lab", "9.000000", "0")]
    assert [(each.name, each.spent) for each in view.by_namespace] == [("team", "6.000000"), ("other", "3.000000")]
    assert [each.name for each in view.by_provider] == ["owned"], "a class without known providers is its own name"


def test_a_decision_with_a_reason_and_no_sentence_is_not_a_line():
    class Odd(NamedTuple):
        reason: Reason
        sentence: str | None

    assert decision_line(Odd(Reason.NO_OFFER_FITS, None), NOW) is None
    assert decision_line(Odd("because", "A sentence."), NOW) is None


def test_a_waiting_pod_in_the_list_shows_the_machine_that_launches_for_it():
    launching = record("m2", S.LAUNCHED, pods=("x", "new"))
    seen = observed(pending=(pod("new"), pod("other")), records=(launching,))

    shown = {each.pod: each.reason for each in waiting_page(seen).rows}
    assert shown["team/new"] == "CapacityLaunching: GPUInstance m2 is Launched."
    assert shown["team/other"].startswith("Unschedulable: ")
