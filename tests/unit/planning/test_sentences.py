"""What a plan says: why a node was chosen, and why a pod is left out and what would help."""

from datetime import date

import msgspec
import pytest

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelOperator, NodeSelectorTerm, Requirement
from forebay.planning.plan import Cap, Excluded
from forebay.planning.planner import plan
from forebay.planning.sentences import described, shown_amount
from tests.unit.planning.worlds import GPU, POOL, candidate, machine, pods, shape

POOLS = frozenset({POOL})


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        (candidate(1, "2", name="a100"), "a100 at $2.00/h (simulated)"),
        (candidate(2, "2", name="a100"), "2 x a100 at $2.00/h (simulated)"),
        (candidate(1, "2", name="p4d", gpu_type="A100"), "A100 at $2.00/h (simulated p4d)"),
        (candidate(1, "2", name="a", region="us"), "a in us at $2.00/h (simulated)"),
        (candidate(1, "2", name="a", region="us", zone="us-a"), "a in us-a at $2.00/h (simulated)"),
        (candidate(1, "2", name="a", spot=True), "spot a at $2.00/h (simulated)"),
        (
            candidate(1, "2", name="a", price_as_of=date(2026, 1, 2)),
            "a at $2.00/h (simulated, list price of 2026-01-02)",
        ),
        (machine("rack-1", 1), "rack-1 (1 GPU)"),
        (machine("rack-8", 8), "rack-8 (8 GPUs)"),
        (machine("rack-8", 8, "0.5"), "rack-8 (8 GPUs) at $0.50/h"),
    ],
)
def test_a_candidate_is_described_by_what_tells_it_from_others(offer, words):
    assert described(offer) == words


@pytest.mark.parametrize(
    ("name", "amount", "words"),
    [
        ("memory", 80 * 2**30, "80 GiB of memory"),
        ("ephemeral-storage", 2**29, "0.5 GiB of ephemeral-storage"),
        ("cpu", 3500, "3.5 cpu"),
        (GPU, 2, "2 nvidia.com/gpu"),
    ],
)
def test_amounts_are_written_as_people_write_them(name, amount, words):
    assert shown_amount(name, amount) == words


def why_chosen(first, *others):
    (only,) = plan(pods(1), [first, *others]).purchases
    return only.sentence


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ((), "a at $1.00/h (simulated) was chosen: no other available offer fits the same pods."),
        ([candidate(1, "2", name="b")], "same pods, 50 % cheaper."),
        ([candidate(1, "1.001", name="b")], "same pods, less than 1 % cheaper."),
        ([candidate(1, "1", name="b")], "same pods, same cost, and smaller or first by name."),
        ([candidate(1, "0.5", name="b", weight=9)], "same pods, and its pool has more weight (10 to 9)."),
    ],
    ids=["alone", "half", "little", "same", "weight"],
)
def test_a_choice_is_explained_by_the_best_alternative(others, words):
    assert why_chosen(candidate(1, "1", name="a"), *others).endswith(words)


def test_a_machine_of_ones_own_is_chosen_because_it_costs_nothing():
    told = why_chosen(machine("rack", 1), candidate(1, "1", name="b"))
    assert told == "rack (1 GPU) was chosen over b at $1.00/h (simulated): same pods, at no cost."


def test_a_warning_about_the_offer_is_told_with_the_choice():
    warned = msgspec.structs.replace(candidate(1, "1", name="a"), warning="it is new")
    assert why_chosen(warned).endswith(" Beware: it is new.")
    assert "Beware" not in why_chosen(candidate(1, "1", name="a"))


def why_left(waiting, offers, **fields):
    told = {(each.reason, each.sentence) for each in plan(waiting, offers, **fields).left_out}
    (only,) = told
    return only


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        ([Cap(name="maxNodes", pools=POOLS, nodes=0)], "maxNodes leaves no room for it: raise the limit (1 node more"),
        (
            [Cap(name="maxHourlyCost", pools=POOLS, hourly_cost=UsdPerHour("0.4"))],
            "maxHourlyCost leaves no room for it: raise the limit ($0.60/h more",
        ),
        (
            [Cap(name="limits", pools=POOLS, resources=Resources({GPU: 3}))],
            "limits leaves no room for it: raise the limit (1 nvidia.com/gpu more",
        ),
        (
            [Cap(name="limits", pools=POOLS, resources=Resources({GPU: -1}))],
            "limits leaves no room for it: raise the limit (4 nvidia.com/gpu more",
        ),
        (
            [Cap(name="one", pools=POOLS, nodes=0), Cap(name="two", pools=POOLS, nodes=0)],
            "one and two leave no room for it: raise the limits (1 node more",
        ),
    ],
    ids=["nodes", "cost", "resources", "nothing left", "two limits"],
)
def test_a_limit_says_how_far_it_has_to_be_raised_and_for_how_many_pods(caps, words):
    reason, told = why_left(pods(3, shape(2)), [candidate(4, "1", name="a")], caps=caps)

    assert reason is Reason.LIMIT_REACHED
    assert f"4 x a at $1.00/h (simulated) would fit, but {words} serves 2 of these pods), or wait" in told


def test_a_limit_that_a_single_gpu_would_exceed_has_to_be_raised_by_that():
    limit = Cap(name="limits", pools=POOLS, resources=Resources({GPU: -1}))
    told = why_left(pods(1), [candidate(1, "1", name="a")], caps=[limit])[1]
    assert "raise the limit (1 nvidia.com/gpu more serves 1 of these pods)" in told


def test_of_what_is_not_available_the_cheapest_is_told_and_how_many_others_there_are():
    def excluded(name, price):
        offer = candidate(1, price, name=name)
        return Excluded(candidate=offer, reason=Reason.COOLING_DOWN, sentence=f"{name} cools down")

    first, second, third = excluded("a", "3"), excluded("b", "2"), excluded("c", "4")
    reason, told = why_left(pods(1), [], excluded=[first, second])
    assert reason is Reason.COOLING_DOWN
    assert told == (
        "b at $2.00/h (simulated) would fit, but b cools down. 1 other offer that would fit is not available either."
    )
    assert "2 other offers that would fit are not" in why_left(pods(1), [], excluded=[first, second, third])[1]
    assert why_left(pods(1), [], excluded=[first])[1].endswith("but a cools down.")


def test_without_any_offer_that_fits_providers_that_have_not_answered_come_first():
    assert why_left(pods(1), [], unknown=["aws: away", "gcp: away"]) == (
        Reason.PROVIDER_UNAVAILABLE,
        (
            "No known offer fits the pod, and some providers have not answered (aws: away; gcp: away): Forebay keeps "
            "asking them."
        ),
    )
    assert why_left(pods(1), [])[0] is Reason.NO_CAPACITY_CONFIGURED


def of_type(operator, name):
    return (NodeSelectorTerm((Requirement("forebay.dev/gpu-type", LabelOperator(operator), (name,)),)),)


@pytest.mark.parametrize(
    ("of", "hint"),
    [
        (shape(16), "The pod requests 16 nvidia.com/gpu (largest offer: 8): request less, or allow larger machines."),
        (shape(1, resource="amd.com/gpu"), "No offer has amd.com/gpu: request another resource, or allow machines"),
        (shape(8, cpu="48"), "No single offer has everything the pod requests: request less of something, or allow"),
        (
            shape(1, node_selector={"team": "x"}),
            "Change the pod's node selector, affinity or tolerations, or the labels, taints and requirements of a pool",
        ),
        (shape(1, node_selector={"forebay.dev/gpu-type": "H1000"}), 'selects "H1000", which is not a known GPU model'),
        (
            shape(1, node_selector={"forebay.dev/gpu-type": "nvidia-a100-80gb"}),
            'The pod selects "nvidia-a100-80gb"; nodes with that GPU are labelled A100-80GB: select that.',
        ),
        (shape(1, node_affinity=of_type("In", "H1000")), 'selects "H1000", which is not a known GPU model'),
        (
            shape(1, node_selector={"team": "x"}, node_affinity=of_type("NotIn", "H1000")),
            "Change the pod's node selector, affinity or tolerations",
        ),
    ],
    ids=[
        "too many",
        "another resource",
        "not together",
        "selector",
        "misspelt",
        "another name",
        "affinity",
        "not that",
    ],
)
def test_a_pod_that_nothing_fits_is_told_what_to_change(of, hint):
    labels = {"forebay.dev/gpu-type": "A100-80GB"}
    offers = [candidate(8, "4", cpu="8", labels=labels), candidate(1, "1", cpu="64", labels=labels)]

    reason, told = why_left(pods(1, of), offers)

    assert reason is Reason.NO_OFFER_FITS
    assert told.startswith("None of 2 offers fits the pod (")
    assert hint in told


def test_offers_that_serve_other_namespaces_are_counted_so():
    offers = [candidate(1, "1", namespaces=frozenset({"other"})), candidate(1, "2", name="b", cpu="0")]
    told = why_left(pods(1), offers)[1]
    assert "1: serve other namespaces than team" in told
    assert "1: Insufficient cpu" in told


def test_a_pod_whose_namespace_no_pool_serves_is_told_so():
    told = why_left(pods(1), [candidate(1, "1", namespaces=frozenset({"other"}))])[1]
    assert "No GPUNodePool serves namespace team: one in the operator's own namespace does" in told
