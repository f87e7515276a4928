"""Worlds that once went wrong."""

import pytest

from forebay.net.transport import Request
from forebay.simulate import market_faults as faults
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import Boot, fails_after_acting, lies, refuses
from tests.crash import budget_worlds
from tests.crash.market_scripts import reclaim, refuse, vanish
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Late, Moment
from tests.crash.people import Deed, Event
from tests.crash.test_random_markets import CONTAINERS, MACHINES
from tests.crash.worlds import Scenario, Weather, Work, happens
from tests.net.faults import Answer, LoseAnswer, LoseRequest, Reset


class _LateCall(Weather, frozen=True):
    """The first such call to this machine arrives when nobody waits for it any more."""

    machine: str = ""
    call: PowerCall = PowerCall.ON
    late: float = 8.0

    def over(self, _chance, _ledger):
        left = [Late(self.late)]

        def plan(request: Request):
            return (left.pop(),) if left and request.url.endswith(f"/{self.machine}/{self.call}") else ()

        return plan


def machine(name, *, boot, gpus=1):
    return Powered(name=name, gpus=gpus, boot=boot, shutdown=1)


def test_a_pod_that_runs_on_a_machine_in_doubt_is_left_there():
    """Whoever switched it on died before the answer was written; the machine came up, and its pod no longer waits."""
    scenario = Scenario(machines=(machine("box", boot=5),), work=(Work("train", 1, runs=60),))
    whole = happens(scenario)
    start = next(sent.number for sent in whole.ledger.requests if sent.url.endswith("/start"))
    outcome = happens(scenario, {start: Moment.AFTER})
    assert outcome.found == ()
    assert len(outcome.witness.starts) == 1


def test_a_start_that_arrives_after_the_end_is_ended_too():
    """Also where the machine then never joins, and so nothing else would ever tell that it is on."""
    scenario = Scenario(
        machines=(machine("a", boot=20), machine("b", boot=1)),
        work=(Work("first", 1, runs=2), Work("second", 1, runs=2)),
        boots={"a": (Boot(joins=False),)},
        plan=_LateCall(machine="a"),
    )
    outcome = happens(scenario)
    assert outcome.found == ()
    assert any(call.machine == "a" and call.asked is PowerCall.ON and call.acted for call in outcome.world.power.calls)


@pytest.mark.parametrize(
    ("seconds", "refused"),
    [(62, ()), (67, (refuses(404),))],
    ids=["while the call is under way", "before it is repeated"],
)
def test_no_pod_is_bound_to_a_node_that_joins_after_its_power_off_call_was_sent(seconds, refused):
    """That call takes effect when the node has been Ready for a while."""
    scenario = Scenario(
        machines=(machine("box", boot=5),),
        work=(Work("train", 1, runs=60),),
        boots={"box": (Boot(after=seconds),)},
        faults={("box", PowerCall.OFF): refused},
        plan=_LateCall(machine="box", call=PowerCall.OFF, late=11.0),
        boot_timeout="60s",
    )
    outcome = happens(scenario)
    assert outcome.found == ()
    assert len(outcome.witness.starts) == 2


def test_a_machine_that_is_tried_again_is_not_at_rest_between_two_launches():
    """No machine can take the pod, which only the second launch shows: during the first, somebody else used it."""
    scenario = Scenario(
        machines=(Powered(name="m0", gpus=2, boot=5, shutdown=2, failed_gpus=1),),
        work=(Work("p0", 2, runs=5),),
        events=(Event(Deed.OTHER_WORK, "m0", at=0, lasts=300),),
        jobs=True,
        seed=0,
    )
    assert happens(scenario).found == ()


def test_a_machine_that_somebody_cordons_while_it_boots_is_no_place_for_its_pods():
    """Another one is switched on for the pod that fits there, though the first has room for both."""
    scenario = Scenario(
        machines=(machine("small", boot=20), Powered(name="large", gpus=4, boot=20, driver=8, shutdown=1)),
        work=(Work("two", 2, runs=30), Work("one", 1, runs=30)),
        events=(Event(Deed.CORDON, "large", at=22, lasts=15),),
        jobs=True,
    )
    outcome = happens(scenario)
    assert outcome.found == ()
    assert len(outcome.witness.starts) == 2


def test_a_machine_that_does_something_else_is_not_waited_for_any_longer_than_its_deadline():
    scenario = Scenario(
        machines=(machine("first", boot=5), machine("second", boot=5)),
        work=(Work("train", 1, runs=5),),
        events=(Event(Deed.OTHER_WORK, "first", at=0, lasts=120),),
        jobs=True,
        status=True,
        seed=0,
    )
    outcome = happens(scenario)
    assert outcome.found == ()
    assert len(outcome.witness.starts) == 1


def test_pods_of_its_previous_run_do_not_hide_that_a_machine_comes_for_others():
    """It lost power under them, and they are listed on its node until its kubelet has started: the node seemed full,
    and another machine was powered on for the pods that it came for.
    """
    scenario = Scenario(
        machines=(machine("m0", boot=5, gpus=4), machine("m1", boot=5)),
        work=(Work("p1", 1, runs=120), Work("p2", 3, runs=120)),
        boots={"m0": (Boot(loses_power_after=70),)},
        jobs=True,
        status=True,
    )
    outcome = happens(scenario)
    assert outcome.found == ()
    assert [call.machine for call in outcome.world.power.calls if call.asked is PowerCall.ON] == ["m0", "m0"]


def test_nothing_is_powered_on_for_pods_of_a_machine_that_registers_while_it_seems_full():
    scenario = Scenario(
        machines=(machine("m0", boot=5, gpus=4), machine("m1", boot=5)),
        work=(Work("p0", 4, 18, 60), Work("p1", 1, 29, 5), Work("p2", 1, 89, 5), Work("p3", 2, 90, 5)),
        boots={"m0": (Boot(loses_power_after=70),)},
        faults={
            ("m0", PowerCall.ON): (refuses(500),),
            ("m1", PowerCall.ON): (lies(),),
            ("m1", PowerCall.OFF): (refuses(500), fails_after_acting(500), refuses(500)),
        },
        plan=Weather(kube=((Answer(500), 0.01), (LoseAnswer(), 0.01), (LoseRequest(), 0.01), (Reset(), 0.01))),
        jobs=True,
        replicas=2,
        status=True,
        seed=5,
    )
    assert happens(scenario).found == ()


def test_usage_is_judged_when_the_budget_says_it():
    """A pod is evicted while it waits for its next try: it was last seen running, and had ended before."""
    scenario = budget_worlds.Scenario(
        budgets=(budget_worlds.Limit(name="b0", seconds=90),),
        work=(budget_worlds.Work(name="w0", gpus=4, runs=2, exits="1,1,1,0"),),
        policies=False,
        seed=0,
    )
    assert budget_worlds.happens(scenario).found == ()


def scripted(call, *what):
    return lambda cloud: [each.script(call, *what) for each in cloud.markets.values()]


def test_a_machine_that_vanishes_while_nothing_is_listed_is_billed_until_listings_show_it():
    scenario = MarketScenario(
        skus=MACHINES,
        work=(Work("w0", 1, runs=5),),
        script=scripted(MarketCall.LIST, None, faults.server_error(500)),
        later=((5.0, vanish), (5.0, refuse)),
        seed=0,
    )
    assert rents(scenario).found == ()


def test_a_reclaimed_machine_that_vanishes_is_billed_until_listings_show_it():
    """It is listed as stopped, perhaps billed, until its termination call has succeeded; then it is not listed."""
    scenario = MarketScenario(
        skus=MACHINES,
        work=(Work("w0", 1, at=30, runs=5),),
        options={"list_lag": 20.0},
        script=scripted(MarketCall.TERMINATE, faults.rate_limited(20)),
        later=((64.0, reclaim(0)), (111.0, vanish)),
        seed=0,
    )
    assert rents(scenario).found == ()


def test_nobody_can_bill_a_second_container_that_no_listing_showed():
    scenario = MarketScenario(
        skus={"alpha": CONTAINERS},
        remote=(Work("r0", 1, runs=5),),
        script=scripted(MarketCall.LAUNCH, faults.rents_twice()),
        later=((5.0, vanish),),
        rents_twice=True,
        seed=0,
    )
    assert rents(scenario).found == ()


def test_every_lost_call_may_be_told_and_repeated():
    scenario = MarketScenario(
        skus=MACHINES,
        work=(Work("w0", 1, runs=5), Work("w1", 4, runs=5)),
        script=lambda cloud: (
            scripted(MarketCall.LAUNCH, faults.request_lost())(cloud),
            scripted(MarketCall.TERMINATE, faults.answer_lost(), faults.answer_lost())(cloud),
        ),
        seed=0,
    )
    assert rents(scenario).found == ()
