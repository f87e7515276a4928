"""Prices that change while a trace is replayed, and a trace of a cluster's own past."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.budgets.ledger.ledger import Ledger
from forebay.model.quantities import UsdPerHour
from forebay.simulate.ledger_trace import ledger_trace
from forebay.simulate.policies import FirstFitPolicy, PlannerPolicy, SpendingLimits
from forebay.simulate.price_history import HistoryError, PricesFrom, read_history
from forebay.simulate.replay import Replay, ReplayTerms
from tests.unit.simulate.test_replay import market, offer, pods

SPOT = offer(1, "1", spot=True, name="g")
FIXED = offer(1, "2", name="f")


def history(text, *offers):
    return read_history(text.splitlines(keepends=True), offers)


def replay(changes, *offers, rows, policy=PlannerPolicy, **terms):
    found = market(*offers)
    return Replay(pods(*rows), policy(found, SpendingLimits()), found, ReplayTerms(**terms), changes).run()


def placed(each, **where):
    return replace(each, **where)


def test_spot_prices_of_a_wide_table_are_of_their_type_and_zone():
    here, there = placed(SPOT, zone="z1"), placed(SPOT, zone="z2")
    found = history("snapshot_unix_utc,g@z1,g@z3\n100,0.5,9\n200,0.5,9\n300,,9\n", here, there)
    assert found.changes == (
        PricesFrom(100, {here.key: UsdPerHour("0.5")}),
        PricesFrom(300, {here.key: None}),
    )
    assert found.since(250) == (PricesFrom(0, {here.key: UsdPerHour("0.5")}), PricesFrom(50, {here.key: None}))


def test_what_a_snapshot_does_not_list_could_not_be_had():
    east = placed(FIXED, region="east")
    text = (
        "snapshot_unix_utc,provider,instance_type,gpu_name,gpu_count,region,price_ondemand_usd_h\n"
        "100,x,f,A,1,east,2\n200,x,other,A,1,east,2\n300,x,f,A,1,east,3\n"
    )
    assert history(text, east).changes == (
        PricesFrom(100, {east.key: UsdPerHour("2")}),
        PricesFrom(200, {east.key: None}),
        PricesFrom(300, {east.key: UsdPerHour("3")}),
    )


def test_a_table_of_changes_keeps_a_price_until_the_next_row():
    east = placed(FIXED, region="east")
    text = "first_seen_unix_utc,instance_type,gpu_name,region,ondemand_usd_h\n1,f,A,east,4\n9,f,A,east,2\n"
    assert history(text, east).changes == (
        PricesFrom(1, {east.key: UsdPerHour("4")}),
        PricesFrom(9, {east.key: UsdPerHour("2")}),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("a,b\n1,2\n", "its first column is neither", id="no history"),
        pytest.param("snapshot_unix_utc,x@y\n1,2\n", "names none of the offers", id="other offers"),
        pytest.param("snapshot_unix_utc,g@z\n1,much\n", "a row cannot be read", id="no price"),
    ],
)
def test_a_table_that_is_no_history_is_refused_with_a_reason(text, sentence):
    with pytest.raises(HistoryError, match=sentence):
        history(text, placed(SPOT, zone="z"))


@pytest.mark.parametrize("policy", [PlannerPolicy, FirstFitPolicy])
def test_a_spot_machine_costs_what_spot_costs_while_it_runs(policy):
    changes = (PricesFrom(1800, {SPOT.key: UsdPerHour("3")}),)
    outcome = replay(changes, SPOT, rows=[(0, 3600, 1)], policy=policy, boot=0, idle=0)
    assert outcome.cost == UsdPerHour("1") * timedelta(minutes=30) + UsdPerHour("3") * timedelta(minutes=30)
    assert outcome.interruptions == 0


def test_a_spot_machine_that_cannot_be_had_any_more_is_reclaimed_and_its_pod_begins_again_elsewhere():
    changes = (PricesFrom(600, {SPOT.key: None}),)
    outcome = replay(changes, SPOT, FIXED, rows=[(0, 3600, 1)], boot=0, idle=0)
    assert outcome.interruptions == 1
    assert outcome.gpu_seconds_lost == 600
    assert outcome.cost == UsdPerHour("1") * timedelta(minutes=10) + UsdPerHour("2") * timedelta(hours=1)


def test_a_rented_machine_keeps_its_price_and_the_next_one_has_the_new():
    changes = (PricesFrom(600, {FIXED.key: UsdPerHour("5")}),)
    outcome = replay(changes, FIXED, rows=[(0, 3600, 1), (3600 * 2, 3600, 1)], boot=0, idle=0)
    assert outcome.cost == UsdPerHour("2") * timedelta(hours=1) + UsdPerHour("5") * timedelta(hours=1)


def test_a_pod_waits_while_nothing_can_be_had():
    changes = (PricesFrom(0, {FIXED.key: None}), PricesFrom(900, {FIXED.key: UsdPerHour("2")}))
    outcome = replay(changes, FIXED, rows=[(0, 60, 1)], boot=0, idle=0)
    assert outcome.waits == (900,)
    assert outcome.left_waiting == 0


def test_a_trace_of_the_ledger_has_the_pods_it_names_and_makes_up_the_others():
    ledger = Ledger("team")
    ledger.record("old", 0, 3600, 4000)
    ledger.compact(200_000 * 10**6, 300_000 * 10**6, ())
    ledger.record("new", 190_000, 190_600, 2000)
    ledger.begin("runs", 199_000, 1000, 199_000)
    found = ledger_trace([("team-a", ledger)], 0, 200_000)
    assert [(each.submitted, each.duration, int(each.pod.shape.gpus())) for each in found.pods] == [
        (0, 3600, 4),
        (190_000, 600, 2),
        (199_000, 1000, 1),
    ]
    assert {each.pod.namespace for each in found.pods} == {"team-a"}


def test_what_was_before_the_span_is_left_out_and_a_pod_of_two_budgets_counts_once():
    one, other = Ledger("one"), Ledger("other")
    for ledger in (one, other):
        ledger.record("pod", 1000, 2000, 1000)
    found = ledger_trace([("a", one), ("a", other)], 1500, 3000)
    assert [(each.duration, int(each.pod.shape.gpus())) for each in found.pods] == [(500, 1)]
