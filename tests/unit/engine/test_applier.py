"""Decisions are applied independently: a failure of one does not affect the others."""

import asyncio

from forebay.engine.apply.applier import Applier, ApplyResult
from forebay.kube.right_of_way import RightOfWay
from forebay.model.reasons import Reason
from forebay.net import clock
from forebay.reconcile.decisions import PodEvent
from tests.unit.demand.builders import pod


class FailingEvents:
    """Raises for one pod, and records the events of the others."""

    def __init__(self, fails_for):
        self.fails_for, self.recorded = fails_for, []

    def pod_event(self, event):
        if event.pod.name == self.fails_for:
            raise ZeroDivisionError
        self.recorded.append(event.pod.name)


class Leader:
    def still_leader(self):
        return True


async def test_a_bug_in_one_decision_is_logged_and_the_others_are_applied(capsys):
    events = FailingEvents("b")
    applier = Applier(
        None,
        None,
        events,
        None,
        Leader(),
        startup_taints=None,
        way=RightOfWay(),
        conditions=None,
        budgets=None,
        join_credentials=None,
        clock=clock.now,
    )
    decisions = [PodEvent(pod=pod(name), reason=Reason.GATED, sentence="Waiting.") for name in ("a", "b", "c")]

    assert await applier.apply(decisions) == ApplyResult(failed=1, conflicts=0)

    assert events.recorded == ["a", "c"]
    assert "decision not applied" in capsys.readouterr().out
    assert len(asyncio.all_tasks()) == 1
