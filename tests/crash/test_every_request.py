"""The operator is killed before and after every one of its requests in turn, and started again."""

import pytest

from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import Boot, breaks_off
from tests.crash.mortal import Moment
from tests.crash.places import places
from tests.crash.worlds import Scenario, Work, happens

_PARTS = 8

#: Three machines, of which one does not come up and one acts on a call without answering it; four pods.
LAB = Scenario(
    machines=(
        Powered(name="small", gpus=1, boot=5, shutdown=1),
        Powered(name="middle", gpus=2, boot=5, shutdown=1),
        Powered(name="large", gpus=4, boot=5, shutdown=1),
    ),
    work=(Work("one", 1), Work("two", 2), Work("four", 4, at=8), Work("late", 1, at=27)),
    boots={"middle": (Boot(joins=False),)},
    faults={("small", PowerCall.ON): (breaks_off(acts=True),)},
    boot_timeout="30s",
)

#: One machine that says whether it is on, and that fails to go off at first.
TOLD = Scenario(
    machines=(Powered(name="box", gpus=2, boot=5, shutdown=1),),
    work=(Work("one", 1, runs=10), Work("two", 2, at=3, runs=10)),
    faults={("box", PowerCall.OFF): (breaks_off(acts=False),)},
    status=True,
)


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("scenario", [LAB, TOLD], ids=["lab", "told"])
def test_no_request_is_a_bad_one_to_die_at(scenario, moment, part):
    whole = happens(scenario)
    assert whole.found == ()
    bought = len(whole.witness.starts)
    # After that nothing comes but renewals, polls and watches, over and over.
    sent = [each for each in whole.ledger.requests if each.at <= whole.quiet_at + 35]
    for place in places(sent, moment)[part::_PARTS]:
        outcome = happens(scenario, {place.number: moment})
        killed = [f"{moment} {sent}" for sent, moment in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())
        # A death takes time, in which pods come together that would have come one after the other, or a machine goes
        # off that the next one needs again: one start more at the most. That none is for nothing is the witness's law.
        assert len(outcome.witness.starts) <= bought + 1, killed
