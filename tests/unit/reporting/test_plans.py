"""The result of `forebay plan` as values: machines, what they are for, what is left out, and what --what-if changes."""

import pytest
from msgspec.structs import replace

from forebay.demand.assessment import Assessment, NotDemand
from forebay.demand.reservation import Reservation, Reservations
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Offer, SourceKey
from forebay.planning.plan import Alternative, Candidate, LeftOut, Plan, PoolKey, Purchase
from forebay.reconcile.decisions import PodEvent
from forebay.reporting.plans import plan_report, what_if_report
from forebay.reporting.what_if import DryRun
from tests.unit.reporting.objects import node, pod

HOUR = UsdPerHour("1.00")


def candidate(kind="a", pool=("team", "lab"), node_class="rented", **fields):
    known = {"price": HOUR, "gpu_count": 2, "allocatable": Resources(), "region": "us-east"}
    return Candidate(
        pool=PoolKey(*pool),
        source=SourceKey(node_class, "x"),
        offer=Offer(provider="x", instance_type=kind, **{**known, **fields}),
        node=node(kind),
        effective_price=HOUR,
    )


def bought(*candidates, pods=(), alternatives=()):
    return tuple(
        Purchase(candidate=each, pods=pods, reason=Reason.CAPACITY_NEEDED, sentence="s", alternatives=alternatives)
        for each in candidates
    )


def plan(*purchases, left_out=(), price="2", cost="3", bound="2"):
    return Plan(
        purchases=purchases,
        left_out=tuple(LeftOut(pod=each, reason=Reason.NO_OFFER_FITS, sentence="Too large.") for each in left_out),
        price=UsdPerHour(price),
        cost=UsdPerHour(cost),
        bound=UsdPerHour(bound),
    )


def reported(made, demand=(), not_demand=(), held=(), **reservations):
    assessment = Assessment(demand=tuple(demand), not_demand=tuple(not_demand))
    return plan_report(
        DryRun(assessment=assessment, reservations=Reservations(**reservations), plan=made, held=tuple(held))
    )


def test_a_machine_shows_what_it_is_where_it_is_and_what_else_would_have_done():
    other = Alternative(candidate=candidate("b", gpu_type="L4"), more=UsdPerHour("0.25"))
    made = plan(*bought(candidate(gpu_type="H100", zone="z1"), pods=(pod(),), alternatives=(other,)))

    report = reported(made, [pod()])

    (machine,) = report.machines
    assert (machine.kind.title, machine.kind.gpus, machine.kind.where) == ("x a", "2 x H100", "z1")
    assert (machine.kind.pool, machine.kind.node_class, machine.pods) == ("team/lab", "rented", ["team/train"])
    assert [(each.kind.title, each.more) for each in machine.alternatives] == [("x b", "0.25")]
    assert (report.pods, report.price, report.cost, report.bound, report.gap) == (1, "2", "3", "2", 0.5)


def test_an_owned_machine_is_called_by_its_name_and_nothing_stands_for_what_is_not_there():
    owned = candidate(node_name="rack-4", pool=("", ""), node_class="", region=None)

    (machine,) = reported(plan(*bought(owned))).machines

    assert (machine.kind.title, machine.kind.gpus, machine.kind.where) == ("machine rack-4", "2", "-")
    assert (machine.kind.pool, machine.kind.node_class) == (None, None)
    assert reported(plan(bound="0")).gap is None, "a plan that costs something where nothing would do has no share"
    assert reported(plan(cost="0", bound="0")).gap == 0.0


def test_every_pod_that_gets_nothing_is_shown_with_the_reason_and_placed_ones_apart():
    large, refused, held, gated, plain = (
        pod("large"),
        pod("refused"),
        pod("held"),
        pod("gated", gates=("forebay.dev/budget",)),
        pod("plain", gates=("x/y",)),
    )
    told = [PodEvent(pod=each, reason=Reason.HELD_BY_BUDGET, sentence="Until noon.") for each in (held, gated)]

    report = reported(
        plan(left_out=(large,)),
        [large, refused, held, pod("placed")],
        [NotDemand(pod=each, reason=Reason.GATED, sentence="Gated.") for each in (gated, plain)],
        told,
        notes={"uid-large": "It seems to fit on m1."},
        refused=(NotDemand(pod=refused, reason=Reason.UNSCHEDULABLE, sentence="Refused."),),
        placed={"uid-placed": Reservation(node="m1", reason=Reason.FITS_EXISTING, sentence="Fits on m1.")},
    )

    assert [(each.pod, each.reason, each.sentence) for each in report.left_out] == [
        ("team/refused", "Unschedulable", "Refused."),
        ("team/large", "NoOfferFits", "It seems to fit on m1. Too large."),
        ("team/held", "HeldByBudget", "Until noon."),
    ]
    assert [(each.pod, each.sentence) for each in report.placed] == [("team/placed", "Fits on m1.")]
    assert [(each.pod, each.sentence) for each in report.others] == [
        ("team/gated", "Until noon."),
        ("team/plain", "Gated."),
    ]


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        pytest.param(
            "NotAllowed: As a remote container: Node runpod-virtual-node is cordoned.",
            "No machines are configured, and a plan leaves out remote containers (runpod). NotAllowed: As a remote "
            "container: Node runpod-virtual-node is cordoned.",
            id="the operator has said why no container runs it",
        ),
        pytest.param(
            "NoCapacityConfigured: No machines are configured, only remote containers.",
            "No machines are configured, only remote containers.",
            id="its Job is not marked",
        ),
        pytest.param(
            None,
            "No machines are configured, and a plan leaves out remote containers (runpod), which run pods of Jobs that "
            "are marked runpod.io/managed.",
            id="no operator has said anything",
        ),
    ],
)
def test_where_only_remote_containers_are_configured_the_plan_says_what_the_operator_has_said(told, sentence):
    waiting = replace(pod(), capacity=told)
    left = LeftOut(
        pod=waiting, reason=Reason.NO_CAPACITY_CONFIGURED, sentence="No machines are configured: create one."
    )
    made = replace(plan(), left_out=(left,))
    found = DryRun(assessment=Assessment(demand=(waiting,)), reservations=Reservations(), plan=made)

    assert [each.sentence for each in plan_report(found, ["runpod"]).left_out] == [sentence]
    assert [each.sentence for each in plan_report(found).left_out] == [left.sentence]


def test_a_what_if_shows_how_many_machines_of_each_kind_come_and_go_and_who_is_served():
    a, b, gone = candidate("a"), candidate("b"), candidate("c")
    before = reported(plan(*bought(a, a, gone), left_out=(pod("z"), pod("y"), pod("same"))))
    cheaper = candidate("a", price=UsdPerHour("0.50"))
    after = reported(plan(*bought(cheaper, cheaper, b, b, b), left_out=(pod("same"), pod("new")), price="5", cost="4"))

    found = what_if_report(["price=a:0.5"], before, after).difference

    assert [(each.kind.instance_type, each.before, each.after) for each in found.machines] == [("c", 1, 0), ("b", 0, 3)]
    assert (found.served, found.no_longer_served) == (["team/y", "team/z"], ["team/new"])
    assert (found.price, found.cost) == ("3", "1")
