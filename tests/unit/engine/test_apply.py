"""Decisions become requests: what goes wrong with one is no concern of the others."""

import asyncio

from forebay.engine.apply.applier import Applier, Outcome
from forebay.engine.apply.pending_enforcement import PendingEnforcement
from forebay.model.reasons import Reason
from forebay.net import clock
from forebay.reconcile.decisions import PodEvent
from tests.unit.demand.builders import pod


class Announcing:
    """Breaks for one pod, and tells the others."""

    def __init__(self, breaks):
        self.breaks, self.told = breaks, []

    def tell(self, told):
        if told.pod.name == self.breaks:
            raise ZeroDivisionError
        self.told.append(told.pod.name)


class Leading:
    def still_leader(self):
        return True


async def test_a_fault_of_ours_in_one_act_is_logged_and_the_others_are_done(capsys):
    announcing = Announcing("b")
    applier = Applier(
        None, None, announcing, None, Leading(), opening=None, actions=PendingEnforcement(), clock=clock.now
    )
    tell = [PodEvent(pod=pod(name), reason=Reason.GATED, sentence="It waits.") for name in ("a", "b", "c")]

    assert await applier.apply(tell) == Outcome(failed=1, void=0)

    assert announcing.told == ["a", "c"]
    assert "an act broke" in capsys.readouterr().out
    assert len(asyncio.all_tasks()) == 1
