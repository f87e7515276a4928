"""Which offer is chosen by price, weight and priority; and what limits, stock and cooldowns forbid."""

from datetime import timedelta

import pytest

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Billing
from forebay.planning.plan import Cap, Excluded, PoolKey, Preferences
from forebay.planning.planner import plan
from tests.unit.planning.worlds import GPU, POOL, bought, candidate, machine, pod, pods, served, shape, why

POOLS = frozenset({POOL})


def test_priority_of_a_provider_makes_its_prices_count_for_more_but_not_cost_more():
    offers = [candidate(1, "1.0", name="second", effective="1.5"), candidate(1, "1.2", name="first")]

    made = plan(pods(1), offers)

    assert bought(made) == ["first"]
    assert plan(pods(1), offers[:1]).price == UsdPerHour("1.0")
    assert plan(pods(1), offers[:1]).cost == UsdPerHour("1.5")


def test_minimum_billing_counts():
    day = Billing(minimum=timedelta(hours=24))
    offers = [candidate(1, "1", name="by-the-day", billing=day), candidate(1, "3", name="by-the-second")]

    assert bought(plan(pods(1), offers)) == ["by-the-second"]
    long = Preferences(expected_run=timedelta(hours=48))
    assert bought(plan(pods(1), offers, preferences=long)) == ["by-the-day"]


def test_spot_that_is_often_reclaimed_is_not_cheap():
    often = candidate(1, "0.9", name="spot", spot=True, reclaims_per_million_hours=500_000)

    assert bought(plan(pods(1), [often, candidate(1, "1", name="firm")])) == ["firm"]
    assert bought(plan(pods(1), [often, candidate(1, "2", name="firm")])) == ["spot"]


def test_even_the_rarest_reclaims_are_in_the_cost():
    rarely = candidate(1, "1", name="spot", spot=True, reclaims_per_million_hours=1)

    # Half an hour of work in a million hours.
    assert plan(pods(1), [rarely]).cost == UsdPerHour("1.0000005")


def test_ties_go_to_providers_in_use_and_to_fewer_nodes():
    known = Preferences(known_providers=frozenset({"old"}))
    offers = [candidate(1, "1", name="a", provider="new"), candidate(1, "1", name="z", provider="old")]

    assert bought(plan(pods(1), offers, preferences=known)) == ["z"]
    assert bought(plan(pods(8), [candidate(1, "1", name="one"), candidate(8, "8", name="eight")])) == ["eight"]


def test_pools_with_more_weight_come_first_whatever_they_cost():
    offers = [
        candidate(1, "5", name="heavy", weight=50, stock=2, pool=PoolKey("team", "heavy")),
        candidate(1, "1", name="light"),
    ]

    assert bought(plan(pods(3), offers)) == ["heavy", "heavy", "light"]
    assert "more weight (50 to 10)" in plan(pods(3), offers).purchases[-1].sentence
    assert "more weight" in plan(pods(1), offers).purchases[0].sentence


def test_owned_machines_are_used_before_money_is_spent():
    offers = [machine("own", 2), candidate(1, "0.1", name="rented")]

    assert bought(plan(pods(3), offers)) == ["own", "rented"]


def test_a_machine_with_a_price_for_its_power_competes_by_it():
    offers = [machine("own", 1, price="0.5"), candidate(1, "0.4", name="rented", stock=1)]

    assert bought(plan(pods(1), offers)) == ["rented"]
    assert bought(plan(pods(2), offers)) == ["own", "rented"]


def test_two_pools_share_the_stock_of_one_source():
    offers = [candidate(1, "1", name="few", stock=1, pool=PoolKey("team", name)) for name in ("a", "b")]

    made = plan(pods(2), offers)

    assert bought(made) == ["few"]
    assert list(why(made).values()) == [Reason.OUT_OF_STOCK]
    (told,) = [each.sentence for each in made.left_out]
    assert "other waiting pods get the stock of all 2 offers that would fit" in told
    (alone,) = [each.sentence for each in plan(pods(2), offers[:1]).left_out]
    assert "would fit, but other waiting pods get all of its stock" in alone


def test_an_owned_machine_is_one_machine_however_many_pools_may_use_it():
    offers = [machine("own", 1, pool=PoolKey("team", name)) for name in ("a", "b")]

    assert bought(plan(pods(2), offers)) == ["own"]


@pytest.mark.parametrize(
    "cap",
    [
        Cap(name="limits.maxNodes of GPUNodePool team/pool", pools=POOLS, nodes=2),
        Cap(name="limits.maxHourlyCost of GPUNodePool team/pool", pools=POOLS, hourly_cost=UsdPerHour("2.5")),
        Cap(name="limits.resources of GPUNodePool team/pool", pools=POOLS, resources=Resources({GPU: 2})),
    ],
    ids=["nodes", "money", "resources"],
)
def test_no_limit_is_exceeded_and_the_sentence_names_it(cap):
    made = plan(pods(3), [candidate(1, "1", name="one")], [cap])

    assert bought(made) == ["one", "one"]
    assert list(why(made).values()) == [Reason.LIMIT_REACHED]
    assert cap.name in made.left_out[0].sentence
    assert "raise the limit" in made.left_out[0].sentence


def test_all_limits_that_forbid_an_offer_are_named_with_what_each_must_be_raised_by():
    limits = [
        Cap(name="maxNodes", pools=POOLS, nodes=1),
        Cap(name="maxCost", pools=POOLS, hourly_cost=UsdPerHour("1.25")),
    ]

    made = plan(pods(2), [candidate(1, "1", name="one")], limits)

    assert "maxCost and maxNodes leave no room for it: raise the limits" in made.left_out[0].sentence
    assert "($0.75/h and 1 node more serves 1 of these pods)" in made.left_out[0].sentence


def test_where_nodes_are_limited_larger_ones_are_bought():
    cap = Cap(name="limits.maxNodes of GPUNodePool team/pool", pools=POOLS, nodes=2)
    offers = [candidate(1, "1", name="one"), candidate(8, "9", name="eight")]

    assert bought(plan(pods(16), offers, [cap])) == ["eight", "eight"]


def test_a_limit_of_another_pool_does_not_count():
    cap = Cap(name="limits.maxNodes of GPUNodePool other/pool", pools=frozenset({PoolKey("other", "pool")}), nodes=0)

    assert bought(plan(pods(1), [candidate(1, "1", name="one")], [cap])) == ["one"]


def test_when_capacity_is_short_priority_decides_and_then_age():
    young, old = pod(name="young"), pod(name="old", age=timedelta(hours=1))
    urgent = pod(shape(priority=1000), name="urgent")

    made = plan([young, old, urgent], [candidate(1, "1", stock=2)])

    assert served(made) == {"urgent", "old"}


def test_excluded_candidates_are_named_in_the_sentence_of_pods_that_need_them():
    cooling = Excluded(
        candidate=candidate(8, "8", name="eight"),
        reason=Reason.COOLING_DOWN,
        sentence="is cooling down until 12:30 after a failed launch",
    )

    made = plan(pods(1, shape(gpus=8)), [candidate(1, "1")], excluded=[cooling])

    assert list(why(made).values()) == [Reason.COOLING_DOWN]
    assert made.left_out[0].sentence == (
        "8 x eight at $8.00/h (simulated) would fit, but is cooling down until 12:30 after a failed launch."
    )


def test_sources_without_known_offers_are_named():
    made = plan(pods(1), [], unknown=["aws of GPUNodeClass gpu: it does not answer"])

    assert list(why(made).values()) == [Reason.PROVIDER_UNAVAILABLE]
    assert "aws of GPUNodeClass gpu: it does not answer" in made.left_out[0].sentence


def test_a_machine_stays_off_when_a_larger_one_takes_its_pods_too():
    """Smallest first would power on both, with one pod on each."""
    made = plan(pods(2, shape(gpus=2)), [machine("small", 2), machine("large", 4)])

    assert bought(made) == ["large"]
    assert not made.left_out
    assert bought(plan(pods(1, shape(gpus=2)), [machine("small", 2), machine("large", 4)])) == ["small"]
    assert bought(plan(pods(3, shape(gpus=2)), [machine("small", 2), machine("large", 4)])) == ["large", "small"]
