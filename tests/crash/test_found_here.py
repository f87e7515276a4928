"""Worlds that once went wrong."""

from forebay.net.transport import Request
from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import Boot
from tests.crash.mortal import Late, Moment
from tests.crash.worlds import Scenario, Weather, Work, happens


class _LateStart(Weather, frozen=True):
    """The first call to switch on this machine arrives when nobody waits for it any more."""

    machine: str = ""

    def over(self, _chance, _ledger):
        left = [Late(8.0)]

        def plan(request: Request):
            return (left.pop(),) if left and request.url.endswith(f"/{self.machine}/{PowerCall.ON}") else ()

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
        plan=_LateStart(machine="a"),
    )
    outcome = happens(scenario)
    assert outcome.found == ()
    assert any(call.machine == "a" and call.asked is PowerCall.ON and call.acted for call in outcome.world.power.calls)
