"""Budgets by chance: pods that end, restart and are deleted, faults of the API server and deaths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.budget_worlds import Limit, Scenario, Work, happens
from tests.crash.findings import no_law_is_broken
from tests.crash.mortal import Moment
from tests.crash.test_budgets import BOUGHT
from tests.crash.test_random_worlds import CONFLICT
from tests.crash.worlds import Weather
from tests.deep import worlds_in_deep
from tests.net.faults import Answer, CutAfter, Delay, LoseAnswer, LoseRequest, Reset

#: Faults of the API server: error answers, lost and cut ones, and delays shorter than the lease allows.
rates = st.sampled_from([0.0, 0.01, 0.05])
weathers = st.builds(
    Weather,
    kube=st.tuples(
        *(
            st.tuples(st.just(fault), rates)
            for fault in (
                Answer(503),
                Answer(409, body=CONFLICT),
                LoseAnswer(),
                LoseRequest(),
                Reset(),
                CutAfter(700),
                Delay(1.5),
            )
        )
    ),
    until=st.just(100.0),
)
deaths = st.dictionaries(st.integers(1, 80), st.sampled_from(Moment), max_size=4)
budgets = st.lists(
    st.builds(
        Limit,
        seconds=st.sampled_from([30, 90, 400, 10**6]),
        action=st.sampled_from(["Evict", "Pause", "AlertOnly"]),
        accounting=st.sampled_from(["Exact", "Observed"]),
        grace=st.sampled_from([0, 0, 7]),
    ),
    min_size=1,
    max_size=3,
)


fair = st.none()
one = st.just(1)


@st.composite
def worlds(draw, *, weather=fair, replicas=one, machines=(), most=5):
    work = []
    for number in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, 40))
        work.append(
            Work(
                name=f"w{number}",
                gpus=draw(st.sampled_from([1, 2, 4])),
                at=at,
                runs=draw(st.sampled_from([2, 11, 45])),
                deleted=draw(st.none() | st.integers(at + 1, at + 50)),
                force=draw(st.booleans()),
                exits=draw(st.sampled_from(["0", "0", "1,0", "1,1,1,0"])),
                job=draw(st.booleans()),
                team=draw(st.sampled_from("aaab")),
            )
        )
    limits = [
        Limit(
            name=f"b{number}",
            seconds=each.seconds,
            action=each.action,
            accounting=each.accounting,
            grace=each.grace,
            team=draw(st.sampled_from("aab")),
        )
        for number, each in enumerate(draw(budgets))
    ]
    return Scenario(
        budgets=tuple(limits),
        work=tuple(work),
        gpus=0 if machines else 8,
        machines=machines,
        outages=tuple(
            (begin, length)
            for begin, length in draw(st.lists(st.tuples(st.integers(2, 70), st.integers(2, 40)), max_size=2))
        ),
        away=draw(st.sampled_from([2.0, 15.0])),
        # Without policies, a Job creates pods to be evicted until its backoffLimit.
        policies=draw(st.booleans()) or any(each.job for each in work),
        replicas=draw(replicas),
        plan=draw(weather),
        seed=draw(st.integers(0, 999)),
    )


many = worlds_in_deep(600)


@pytest.mark.law
@many
@given(worlds(), deaths)
def test_ledgers_are_correct_whenever_operators_die(scenario, dead):
    no_law_is_broken(happens(scenario, dead))


@pytest.mark.law
@many
@given(worlds(weather=weathers, replicas=st.integers(1, 2)), deaths)
def test_ledgers_are_correct_with_api_server_faults(scenario, dead):
    no_law_is_broken(happens(scenario, dead))


@pytest.mark.law
@many
@given(worlds(weather=weathers, machines=BOUGHT.machines, most=3), deaths)
def test_no_more_machines_are_launched_than_budgets_allow(scenario, dead):
    no_law_is_broken(happens(scenario, dead))
