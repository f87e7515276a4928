"""Worlds by chance: machines, pods, faults and deaths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import Boot, breaks_off, fails_after_acting, lies, refuses, silent, slow
from tests.crash.findings import no_law_is_broken
from tests.crash.mortal import Late, Moment
from tests.crash.people import Deed, Event
from tests.crash.worlds import Scenario, Weather, Work, happens
from tests.deep import worlds_in_deep
from tests.net.faults import Answer, CutAfter, Delay, LoseAnswer, LoseRequest, Reset

CONFLICT = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"injected","code":409}'

#: Powers of two: what fits by size fits in any order, so that "would it have fit elsewhere?" has one answer.
gpus = st.sampled_from([1, 2, 4])
deaths = st.dictionaries(st.integers(1, 160), st.sampled_from(Moment), max_size=4)
rates = st.sampled_from([0.0, 0.01, 0.05])
#: Of the API server: answers for it, lost and cut ones, delays within the time that a lease leaves.
kube_faults = st.tuples(
    st.tuples(st.just(Answer(503)), rates),
    st.tuples(st.just(Answer(500)), rates),
    st.tuples(st.just(Answer(409, body=CONFLICT)), rates),
    st.tuples(st.just(LoseAnswer()), rates),
    st.tuples(st.just(LoseRequest()), rates),
    st.tuples(st.just(Reset()), rates),
    st.tuples(st.just(CutAfter(700)), rates),
    st.tuples(st.just(Delay(1.5)), rates),
)
power_weather = st.tuples(
    st.tuples(st.just(Late(8.0)), rates), st.tuples(st.just(Reset()), rates), st.tuples(st.just(Delay(1.5)), rates)
)
switch_faults = st.lists(
    st.sampled_from(
        [
            None,
            refuses(500),
            refuses(429, headers={"Retry-After": "20"}),
            refuses(404),
            fails_after_acting(500),
            slow(4),
            silent(acts=True),
            silent(acts=False),
            breaks_off(acts=True),
            breaks_off(acts=False),
        ]
    ),
    max_size=3,
).map(tuple)
lying = st.sampled_from([(), (lies(),), (lies(), lies())])
#: One that comes up after its deadline is given back, and who has come to it by then must leave: worlds with these have
#: Jobs, which begin again.
boots = st.lists(
    st.sampled_from([Boot(), Boot(joins=False), Boot(gpus_appear=False), Boot(after=55), Boot(after=70)]), max_size=2
).map(tuple)


none = st.just(())
fair = st.none()


@st.composite
def events_of(draw, machines):
    def event():
        deed, machine = draw(st.sampled_from(Deed)), draw(st.sampled_from(machines))
        return Event(deed, machine.name, at=draw(st.integers(0, 150)), lasts=draw(st.sampled_from([15, 60, 300])))

    return tuple(event() for _ in range(draw(st.integers(1, 3))))


@st.composite
def worlds(draw, *, switches=none, starts=none, weather=fair, replicas=1, jobs=False, people=False):
    sizes = draw(st.lists(gpus, min_size=1, max_size=3))
    machines = tuple(
        Powered(
            name=f"m{number}",
            gpus=size,
            boot=draw(st.sampled_from([5, 20, 45])),
            driver=draw(st.sampled_from([0, 0, 8])),
            shutdown=2,
            failed_gpus=draw(st.sampled_from([0, 0, 1])) if people and size > 1 else 0,
        )
        for number, size in enumerate(sizes)
    )
    work = tuple(
        Work(f"p{number}", draw(gpus), at=draw(st.integers(0, 90)), runs=draw(st.sampled_from([5, 20, 60])))
        for number in range(draw(st.integers(1, 4)))
    )
    begun = {machine.name: draw(starts) for machine in machines}
    faults = {(machine.name, asked): draw(switches) for machine in machines for asked in (PowerCall.ON, PowerCall.OFF)}
    return Scenario(
        machines=machines,
        work=work,
        boots={
            name: tuple(boot for boot in each if boot.joins or not _lies(faults, name)) for name, each in begun.items()
        },
        faults=faults,
        plan=draw(weather),
        replicas=replicas,
        jobs=jobs,
        events=draw(events_of(machines)) if people else (),
        status=draw(st.booleans()),
        seed=draw(st.integers(0, 999)),
    )


def _lies(faults, name):
    """Of a machine that says it is off, is not, and never joins, nobody could know that it is on."""
    return lies() in faults[name, PowerCall.OFF]


many = worlds_in_deep(700)


@pytest.mark.law
@many
@given(worlds(), deaths)
def test_operators_may_die_at_any_time(scenario, dead):
    no_law_is_broken(happens(scenario, dead))


@pytest.mark.law
@many
@given(worlds(switches=switch_faults, starts=boots, weather=st.builds(Weather, power=power_weather), jobs=True), deaths)
def test_machines_and_their_switches_may_fail(scenario, dead):
    no_law_is_broken(happens(scenario, dead))


@pytest.mark.law
@many
@given(worlds(weather=st.builds(Weather, kube=kube_faults)), deaths)
def test_the_api_server_may_be_hard_to_reach(scenario, dead):
    no_law_is_broken(happens(scenario, dead))


@pytest.mark.law
@many
@given(worlds(starts=boots, weather=st.builds(Weather, kube=kube_faults), replicas=2, jobs=True), deaths)
def test_there_may_be_two_replicas(scenario, dead):
    no_law_is_broken(happens(scenario, dead))


@pytest.mark.law
@many
@given(worlds(jobs=True, people=True), deaths)
def test_people_may_use_the_machines_too(scenario, dead):
    no_law_is_broken(happens(scenario, dead))


@pytest.mark.law
@many
@given(worlds(weather=st.builds(Weather, kube=kube_faults), replicas=2, jobs=True, people=True), deaths)
def test_people_may_do_so_while_the_api_server_is_hard_to_reach(scenario, dead):
    no_law_is_broken(happens(scenario, dead))


@pytest.mark.law
@many
@given(
    worlds(
        switches=switch_faults | lying,
        starts=boots | st.sampled_from([(Boot(loses_power_after=30),), (Boot(loses_power_after=70),)]),
        weather=st.builds(Weather, kube=kube_faults, power=power_weather),
        replicas=2,
        jobs=True,
    ),
    deaths,
)
def test_all_of_it_may_come_together(scenario, dead):
    no_law_is_broken(happens(scenario, dead))
