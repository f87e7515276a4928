"""Replays of traces: who runs where and when, and what it costs."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.quantities import Resources, Usd, UsdPerHour
from forebay.model.sources import Delivery, Offer
from forebay.planning.candidates import CandidateContext, candidates
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.what_if import with_table
from forebay.simulate.hindsight import always_on, hindsight_bound
from forebay.simulate.policies import FirstFitPolicy, PlannerPolicy, SpendingLimits
from forebay.simulate.replay import Replay, ReplayTerms
from forebay.simulate.traces import read_trace

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def offer(gpus, price, *, spot=False, stock=None, name=None):
    return Offer(
        provider="cloud",
        instance_type=name or f"gpu-{gpus}",
        gpu_count=gpus,
        price=UsdPerHour(price),
        spot=spot,
        stock=stock,
        allocatable=Resources({"nvidia.com/gpu": gpus, "cpu": gpus * 8000, "memory": gpus * 2**35, "pods": 110}),
    )


SMALL, LARGE = offer(1, "1"), offer(4, "3")


def market(*offers):
    snapshot = with_table(Snapshot(now=NOW), offers, {"cloud": Delivery.NODE}, spot=True)
    return candidates(snapshot.sources, (), (), CandidateContext(now=NOW)).candidates


def pods(*rows):
    """Each: second of submission, seconds, GPUs."""
    lines = ["submitted,duration,gpus", *(",".join(map(str, row)) for row in rows)]
    return read_trace(line + "\n" for line in lines).pods


def replay(trace, *offers, policy=PlannerPolicy, limits=None, **terms):
    found = market(*offers)
    return Replay(trace, policy(found, limits or SpendingLimits()), found, ReplayTerms(**terms)).run()


def test_a_pod_waits_for_its_machine_which_is_paid_from_purchase_to_the_end_of_its_idle_time():
    outcome = replay(pods((0, 600, 1)), SMALL, boot=180, idle=60)
    assert outcome.waits == (180,)
    assert outcome.cost == UsdPerHour("1") * _span(180 + 600 + 60)
    assert outcome.gpu_seconds_used == 600
    assert outcome.gpu_seconds_rented == 840


def test_a_pod_that_comes_while_a_machine_is_free_waits_for_nothing():
    outcome = replay(pods((0, 600, 1), (800, 600, 1)), SMALL, boot=180, idle=60)
    assert outcome.waits == (0, 180)
    assert outcome.machines == 1


def test_pods_that_come_together_share_the_cheaper_large_machine_and_first_fit_rents_small_ones():
    trace = pods(*((0, 3600, 1) for _ in range(4)))
    planned, fitted = replay(trace, SMALL, LARGE), replay(trace, SMALL, LARGE, policy=FirstFitPolicy)
    assert (planned.machines, fitted.machines) == (1, 4)
    assert planned.cost < fitted.cost


def test_a_limit_of_nodes_makes_the_second_pod_wait_for_the_first():
    for policy in (PlannerPolicy, FirstFitPolicy):
        outcome = replay(pods((0, 600, 1), (0, 600, 1)), SMALL, policy=policy, limits=SpendingLimits(nodes=1), boot=100)
        assert outcome.waits == (100, 700)
        assert max(moment.gpus_rented for moment in outcome.timeline) == 1


def test_a_limit_of_dollars_holds_in_every_second():
    trace = pods(*((second, 1000, 1) for second in range(0, 500, 50)))
    for policy in (PlannerPolicy, FirstFitPolicy):
        outcome = replay(trace, SMALL, LARGE, policy=policy, limits=SpendingLimits(hourly=UsdPerHour("3.5")))
        assert len(outcome.waits) == 10
        assert all(moment.hourly <= UsdPerHour("3.5") for moment in outcome.timeline)


def test_what_is_out_of_stock_is_not_rented():
    trace = pods((0, 600, 1), (0, 600, 1), (0, 600, 1))
    for policy in (PlannerPolicy, FirstFitPolicy):
        outcome = replay(trace, offer(1, "1", stock=2), policy=policy, boot=100)
        assert max(moment.gpus_rented for moment in outcome.timeline) == 2
        assert outcome.waits == (100, 100, 700)


def test_a_pod_that_no_machine_fits_is_counted_and_keeps_nobody_waiting():
    outcome = replay(pods((0, 600, 8), (0, 600, 1)), SMALL, LARGE)
    assert (outcome.unserved, outcome.left_waiting, len(outcome.waits)) == (1, 0, 1)


def test_a_reclaimed_spot_machine_costs_until_then_and_its_pod_begins_again():
    outcome = replay(pods((0, 7_200, 1)), offer(1, "1", spot=True), reclaims=1.0, seed=3)
    assert outcome.interruptions >= 1
    assert outcome.gpu_seconds_lost > 0
    assert outcome.gpu_seconds_used == 7_200 + outcome.gpu_seconds_lost
    assert outcome.left_waiting == 0
    assert outcome == replay(pods((0, 7_200, 1)), offer(1, "1", spot=True), reclaims=1.0, seed=3)


def test_a_pod_that_needs_longer_than_spot_machines_last_is_given_up_after_twenty_of_them():
    outcome = replay(pods((0, 360_000, 1)), offer(1, "1", spot=True), reclaims=1.0, seed=3)
    assert (outcome.left_waiting, outcome.interruptions) == (1, 20)
    assert outcome.gpu_seconds_used == outcome.gpu_seconds_lost


def test_machines_on_demand_are_never_reclaimed():
    assert replay(pods((0, 36_000, 1)), SMALL, reclaims=1.0).interruptions == 0


def test_a_used_up_budget_holds_pods_until_usage_leaves_the_window():
    trace = pods((0, 3600, 1), (4000, 60, 1))
    held = replay(trace, SMALL, quota=1, window=7200, boot=0)
    # The first pod's hour leaves the window of two hours from 7,200 s on.
    assert held.waits[0] == 0
    assert 3200 <= held.waits[1] <= 3200 + 300
    assert replay(trace, SMALL, quota=2, window=7200, boot=0).waits == (0, 0)


class Forgetful(PlannerPolicy):
    """Plans anew whenever pods wait."""

    def buy(self, pods, held):
        self.set_candidates(self._candidates)
        return super().buy(pods, held)


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from((600, 7_200)), st.sampled_from((1, 1, 2, 3, 4))),
        min_size=2,
        max_size=24,
    ),
    stock=st.none() | st.integers(1, 3),
    nodes=st.none() | st.integers(3, 6),
    hourly=st.none() | st.just(UsdPerHour("5")),
)
def test_what_is_planned_once_is_what_planning_every_time_buys(rows, stock, nodes, hourly):
    trace = pods(*((turn * 1_000, duration, gpus) for turn, duration, gpus in rows))
    offers = (offer(1, "1", spot=True, stock=stock), offer(4, "3", spot=True), offer(3, "2.5", spot=True))
    limits = SpendingLimits(nodes, hourly)

    once, every_time = (
        replay(trace, *offers, policy=policy, limits=limits, reclaims=1.0) for policy in (PlannerPolicy, Forgetful)
    )

    assert once == every_time


class Counting(PlannerPolicy):
    planned = 0

    def _plan(self, pods, held, rented):
        self.planned += 1
        return super()._plan(pods, held, rented)


def test_the_same_pods_are_planned_once():
    found = market(SMALL, LARGE)
    policy = Counting(found, SpendingLimits())

    trace = pods(*((turn * 10_000, 600, 2) for turn in range(20)))
    outcome = Replay(trace, policy, found, ReplayTerms()).run()

    assert (outcome.machines, policy.planned) == (20, 1)


def test_always_on_is_the_busiest_second_for_the_whole_time():
    found = market(SMALL, LARGE)
    always = always_on(pods((0, 3600, 1), (7200, 3600, 4), (7200, 10, 1)), found)
    assert (always.machines, always.gpus, always.seconds) == (2, 5, 10_800)
    assert always.cost == UsdPerHour("4") * _span(10_800)


def test_pods_that_no_machine_fits_do_not_make_a_second_the_busiest():
    trace = pods((0, 3600, 1), (7200, 3600, 5))
    always = always_on(trace, market(SMALL, LARGE))
    assert (always.machines, always.gpus, always.unserved) == (1, 1, 1)
    assert always.gpu_seconds_used == 3600
    assert always.cost >= hindsight_bound(trace, market(SMALL, LARGE))


def test_the_bound_is_what_the_pods_own_gpus_cost_where_they_are_cheapest():
    assert hindsight_bound(pods((0, 3600, 1)), market(SMALL, LARGE)) == Usd("0.75")


@pytest.mark.parametrize("policy", [PlannerPolicy, FirstFitPolicy])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5000), st.integers(1, 5000), st.sampled_from((1, 2, 3, 4))), min_size=1, max_size=12
    ),
    boot=st.integers(0, 600),
    idle=st.integers(0, 600),
)
def test_no_policy_is_below_the_bound_and_every_pod_runs_its_time(policy, rows, boot, idle):
    trace = pods(*rows)
    outcome = replay(trace, SMALL, LARGE, policy=policy, boot=boot, idle=idle)
    assert outcome.cost >= hindsight_bound(trace, market(SMALL, LARGE))
    assert outcome.gpu_seconds_used == sum(duration * gpus for _, duration, gpus in rows)
    assert len(outcome.waits) == len(rows)
    assert max(outcome.waits) <= boot
    last = outcome.timeline[-1]
    assert (last.gpus_used, last.gpus_rented, last.waiting, last.hourly) == (0, 0, 0, UsdPerHour.zero())
    assert all(moment.gpus_used <= moment.gpus_rented for moment in outcome.timeline)


def _span(seconds):
    return timedelta(seconds=seconds)
