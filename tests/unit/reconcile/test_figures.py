"""Figures of pools and classes, limits of remote containers, and what budgets are told where none is served."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState, Transition
from forebay.api.gpu_node_pool import PoolDecision
from forebay.api.parts import Truth
from forebay.model.kept import KeptTuple
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.planning.plan import Cap, PoolKey
from forebay.reconcile.machine_costs import MachineTotals, hourly_cost, totals_by_class, totals_by_pool
from forebay.reconcile.pool_figures import gpu_totals, last_decisions, offers_of, records_by_pool
from forebay.reconcile.remote_limits import RemainingLimits
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.unserved_budgets import is_served, report_unserved
from tests.unit.budgets.factories import budget
from tests.unit.demand.builders import NOW, ago, record

S = InstanceState
POOL, OTHER = PoolKey("team", "a"), PoolKey("team", "b")


def priced(name, state=S.READY, price="1.50", pool="a", node_class="c", **fields):
    made = record(name, state, pool=pool, **fields)
    return replace(made, spec=replace(made.spec, hourly_price=price, node_class_name=node_class))


def test_a_machine_costs_from_its_launch_call_until_it_is_proven_gone():
    states = {S.REQUESTED: "0", S.LAUNCHING: "1.5", S.READY: "1.5", S.TERMINATING: "1.5", S.GONE: "0"}

    assert {state: hourly_cost(priced("m", state)).exact() for state in states} == states


def test_totals_count_every_machine_that_is_not_gone_and_its_price_from_the_launch_call_on():
    machines = KeptTuple(
        (
            priced("a"),
            priced("b"),
            priced("c", price="2.00"),
            priced("d", S.REQUESTED),
            priced("e", S.GONE),
            priced("f", pool=None, node_class=None, price=None),
        )
    )

    assert totals_by_pool(machines) == {
        ("team", "a"): MachineTotals(4, UsdPerHour("5.00")),
        ("", ""): MachineTotals(1, UsdPerHour(0)),
    }
    assert totals_by_class(machines) == {"c": MachineTotals(4, UsdPerHour("5.00")), "": MachineTotals(1, UsdPerHour(0))}
    assert gpu_totals(machines) == {"nvidia.com/gpu": 40}
    assert {key: [each.metadata.name for each in found] for key, found in records_by_pool(machines).items()} == {
        ("team", "a"): ["a", "b", "c", "d", "e"],
        ("", ""): ["f"],
    }


def offer(**fields):
    known = {"gpu_count": 2, "price": UsdPerHour("1.00"), "allocatable": Resources()}
    return Offer(provider="x", instance_type="t", **{**known, **fields})


def test_offers_are_counted_when_every_provider_of_the_class_has_answered():
    def source(node_class, provider, offers):
        key = SourceKey(node_class, provider)
        return key, Source(key=key, capabilities=Capabilities(deliveries=(Delivery.NODE,)), offers=offers)

    known = dict([source("c", "x", (offer(), offer())), source("c", "y", (offer(),)), source("d", "x", None)])

    assert offers_of(Snapshot(now=NOW, sources=known), "c", 9) == 3
    assert offers_of(Snapshot(now=NOW, sources=known), "d", 9) == 9, "as it was shown before the restart"
    assert offers_of(Snapshot(now=NOW), "c", 9) == 0


def decided(name, *steps):
    """A record with these steps, as (state, seconds ago)."""
    made = [
        Transition(state=state, at=ago(seconds=before), reason="R", message=f"{state}" * 200) for state, before in steps
    ]
    return record(name, steps[-1][0], transitions=tuple(made), since=made[-1].at)


def lines(found):
    return [(each.instance, each.state, (NOW - each.at) // timedelta(seconds=1)) for each in found]


def test_the_last_few_decisions_are_kept_and_what_was_only_observed_is_none():
    first = last_decisions(KeptTuple((decided("a", (S.REQUESTED, 90), (S.LAUNCHED, 80), (S.DRAINING, 70)),)), ())
    assert lines(first) == [("a", "Requested", 90), ("a", "Draining", 70)]
    assert len(first[0].message) == 512

    more = KeptTuple(decided(name, (S.REQUESTED, 50 - number)) for number, name in enumerate("bcde"))
    second = last_decisions(more, first)
    assert lines(second) == [
        ("a", "Draining", 70),
        ("b", "Requested", 50),
        ("c", "Requested", 49),
        ("d", "Requested", 48),
        ("e", "Requested", 47),
    ]
    assert last_decisions(more, second) == second, "nothing is shown twice"
    late = KeptTuple((decided("z", (S.TERMINATING, 60)), decided("e", (S.REQUESTED, 47), (S.TERMINATING, 47))))
    assert lines(last_decisions(late, second))[-2:] == [("e", "Requested", 47), ("e", "Terminating", 47)]
    assert last_decisions(KeptTuple((record("n", None),)), ()) == ()


def test_two_decisions_of_one_second_are_both_shown():
    shown = (PoolDecision(at=ago(seconds=9), instance="m", state="Requested", reason="R", message=""),)

    found = last_decisions(KeptTuple((decided("a", (S.REQUESTED, 9)),)), shown)
    assert lines(found) == [("a", "Requested", 9), ("m", "Requested", 9)]


@pytest.mark.parametrize(
    ("cap", "refused"),
    [
        ({"nodes": 1}, False),
        ({"nodes": 0}, True),
        ({"hourly_cost": UsdPerHour("1.00")}, False),
        ({"hourly_cost": UsdPerHour("0.99")}, True),
        ({"resources": Resources({"nvidia.com/gpu": 2})}, False),
        ({"resources": Resources({"nvidia.com/gpu": 1})}, True),
        ({"resources": Resources({"amd.com/gpu": 1})}, False),
        ({}, False),
    ],
)
def test_a_container_is_refused_by_the_limit_that_it_would_break(cap, refused):
    limits = RemainingLimits([Cap(name="limits of team/a", pools=frozenset({POOL}), **cap)])

    assert limits.refusal(POOL, offer()) == ("limits of team/a" if refused else None)
    assert limits.refusal(OTHER, offer()) is None


@pytest.mark.parametrize(
    ("cap", "fit"),
    [
        ({"nodes": 2}, 2),
        ({"hourly_cost": UsdPerHour("3.50")}, 3),
        ({"resources": Resources({"nvidia.com/gpu": 4})}, 2),
        ({"resources": Resources({"nvidia.com/gpu": 5})}, 2),
    ],
)
def test_containers_of_one_tick_use_up_the_limits_of_their_pool(cap, fit):
    limits = RemainingLimits([Cap(name="limit", pools=frozenset({POOL}), **cap)])
    ordered = 0
    while limits.refusal(POOL, offer()) is None:
        limits.take(OTHER, offer())
        limits.take(POOL, offer())
        ordered += 1

    assert ordered == fit


def unserved(*budgets):
    return list(report_unserved(Snapshot(now=NOW, unserved_budgets=tuple(budgets))))


def test_a_budget_that_nobody_serves_is_told_so_once_and_again_when_it_was_changed():
    mine = budget("mine")
    mine = replace(mine, metadata=replace(mine.metadata, generation=3))

    (told,) = unserved(mine)

    assert {each.type: each.status for each in told.conditions} == {
        "Ready": Truth.FALSE,
        "QuotaExceeded": Truth.UNKNOWN,
        "Degraded": Truth.TRUE,
    }
    assert "--budgets off" in told.sentence
    assert set(told.figures.values()) == {None}, "figures that nobody counts any more are taken away"
    assert (told.namespace, told.name, told.generation) == ("default", "mine", 3)
    assert is_served(mine)
    known = replace(budget("mine", since=NOW), metadata=mine.metadata)
    known = replace(known, status=replace(known.status, conditions=told.conditions, observed_generation=3))
    assert not is_served(known)
    assert unserved(known) == []
    assert len(unserved(replace(known, metadata=replace(mine.metadata, generation=4)))) == 1
    assert unserved(replace(mine, metadata=replace(mine.metadata, deletion_timestamp=NOW))) == []
