"""A world that is run again is the same to the request: what goes wrong can be looked at."""

import gc
import sys

from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import Boot, fails_after_acting
from tests.crash.mortal import Moment
from tests.crash.test_random_worlds import CONFLICT
from tests.crash.worlds import Scenario, Weather, Work, happens
from tests.net.faults import Answer, CutAfter, Delay, LoseAnswer

STORMY = Scenario(
    machines=tuple(Powered(name=f"m{gpus}", gpus=gpus, boot=20, driver=8, shutdown=2) for gpus in (1, 2, 4)),
    work=tuple(Work(f"p{number}", 1 + number % 2, at=10 * number) for number in range(4)),
    boots={"m1": (Boot(joins=False),)},
    faults={("m2", PowerCall.ON): (fails_after_acting(500),)},
    plan=Weather(
        kube=((Answer(409, body=CONFLICT), 0.05), (LoseAnswer(), 0.05), (CutAfter(700), 0.05), (Delay(1.5), 0.05))
    ),
    replicas=2,
    jobs=True,
    status=True,
)


def test_a_world_is_the_same_each_time():
    runs = [happens(STORMY, {40: Moment.AFTER, 90: Moment.BEFORE}) for _ in range(5)]
    assert {outcome.found for outcome in runs} == {()}
    sent = [[str(each) for each in outcome.ledger.requests] for outcome in runs]
    assert all(again == sent[0] for again in sent[1:])


def test_nothing_is_left_of_an_operator_that_died():
    """Its tasks have ended and its connections are closed; what the other side had begun goes on."""
    ignored = []
    before, sys.unraisablehook = sys.unraisablehook, ignored.append
    try:
        for number in (30, 60, 90):
            assert happens(STORMY, {number: Moment.BEFORE}).found == ()
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert ignored == []
