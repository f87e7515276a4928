"""Bad input: every pod gets a reason, and `plan` never raises."""

import time
from datetime import timedelta

import msgspec
import pytest

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelOperator, NodeSelectorTerm, Requirement
from forebay.model.sources import Billing
from forebay.model.workloads import PodShape
from forebay.planning.plan import Cap, Preferences
from forebay.planning.planner import plan
from tests.unit.planning.worlds import GPU, POOL, bought, candidate, machine, pod, pods, shape, why


def test_nothing_is_bought_at_a_negative_price():
    odd = msgspec.structs.replace(candidate(1, "1"), effective_price=UsdPerHour("-1"))

    made = plan(pods(1), [odd])

    assert list(why(made).values()) == [Reason.OFFER_INVALID]
    assert "its price is negative" in made.left_out[0].sentence
    assert bought(plan(pods(2), [odd, candidate(1, "2", name="sound")])) == ["sound", "sound"]


def test_a_price_that_is_not_a_number_is_refused():
    for text in ("NaN", "inf", "1e999"):
        with pytest.raises(ValueError, match="not a price"):
            UsdPerHour(text)


def test_an_offer_without_any_capacity_fits_no_pod():
    empty = msgspec.structs.replace(candidate(1, "1"), node=candidate(0, "1", cpu="0", memory="0").node)

    assert set(why(plan(pods(2), [empty])).values()) == {Reason.NO_OFFER_FITS}


def test_a_selector_that_no_offer_meets_is_named_and_blocks_no_other_pod():
    terms = (NodeSelectorTerm((Requirement("a", LabelOperator.GT, ("x",)),)), NodeSelectorTerm())

    made = plan([*pods(1, shape(node_affinity=terms)), *pods(1)], [candidate(1, "1")])

    assert list(why(made).values()) == [Reason.NO_OFFER_FITS]
    assert "Change the pod's node selector" in made.left_out[0].sentence


@pytest.mark.parametrize("stock", [0, -3])
def test_stock_of_0_or_less(stock):
    made = plan(pods(2), [candidate(1, "1", stock=stock)])

    assert set(why(made).values()) == {Reason.OUT_OF_STOCK}


def test_limits_that_are_already_exceeded():
    caps = [
        Cap(name="nodes", pools=frozenset({POOL}), nodes=-1),
        Cap(name="money", pools=frozenset({POOL}), hourly_cost=UsdPerHour("-3")),
        Cap(name="gpus", pools=frozenset({POOL}), resources=Resources({GPU: -1})),
    ]
    for cap in caps:
        assert set(why(plan(pods(2), [candidate(1, "1")], [cap])).values()) == {Reason.LIMIT_REACHED}


def test_a_pod_that_requests_nothing_fits_anywhere():
    nothing = PodShape(requests=Resources({}))

    assert len(plan(pods(3, nothing), [candidate(1, "1")]).purchases) == 1
    assert plan(pods(1, nothing), []).left_out


def test_a_million_pods_of_one_shape():
    one = pod(shape())
    many = [one] * 1_000_000
    start = time.monotonic()

    made = plan(many, [candidate(1, "1", name="one"), candidate(8, "6", name="eight", stock=10)])

    assert len(made.purchases) == 1_000_000 - 70
    assert time.monotonic() - start < 60


def test_invalid_billing_terms():
    odd = Billing(minimum=timedelta(seconds=-5), increment=timedelta(0))

    assert bought(plan(pods(1), [candidate(1, "1", name="odd", billing=odd)])) == ["odd"]


def test_a_deadline_of_0_gives_the_greedy_plan():
    instant = Preferences(deadline=timedelta(0))
    mixed = [*pods(40), *pods(40, shape(gpus=2, cpu="5"))]

    made = plan(mixed, [candidate(1, "1"), candidate(8, "7", cpu="20")], preferences=instant)

    assert not made.left_out
    assert made.cost >= made.bound


def test_machines_of_which_only_the_gpus_are_known():
    made = plan(pods(20, shape(cpu="900", memory="9Ti")), [machine(f"m{n}", 4) for n in range(6)])

    assert len(made.purchases) == 5


def test_a_negative_request_makes_no_room_for_others():
    """No API server accepts one, but a file may hold it. Many different pods, so that column generation runs."""
    sizes = [(7919 * n % 40 + 10, 104729 * n % 40 + 10 if n % 6 else -1) for n in range(60)]
    odd = [pod(PodShape(requests=Resources({"cpu": cpu, "memory": memory}))) for cpu, memory in sizes]

    made = plan(odd, [candidate(1, "1", cpu="100m", memory="100")])

    assert not made.left_out
    for purchase in made.purchases:
        assert sum(max(each.shape.requests["memory"], 0) for each in purchase.pods) <= 100
