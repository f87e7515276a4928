"""What every rule looks at, and what it may answer."""

from datetime import datetime
from typing import Any, NamedTuple

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.steps import AnyStep, WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities


class Wait(NamedTuple):
    """Nothing to do, and nothing will change by time alone before this moment."""

    until: datetime


RuleResult = AnyStep | Wait | None


class RuleContext(NamedTuple):
    """What every rule looks at: the facts, with a provider that is configured."""

    facts: Facts
    capabilities: Capabilities
    now: datetime

    @property
    def record(self) -> GPUInstance:
        return self.facts.record

    @property
    def status(self) -> GPUInstanceStatus:
        return self.facts.status

    @property
    def since(self) -> datetime:
        return self.facts.since or self.now

    def move(self, to: InstanceState, reason: Reason, sentence: str, **changes: Any) -> WriteStatus:
        status = transition(self.record.status, to, reason, sentence, self.now, **changes)
        return WriteStatus(record=self.record, reason=reason, sentence=sentence, status=status)

    def write(self, status: GPUInstanceStatus, reason: Reason, sentence: str) -> WriteStatus | None:
        """None where it is written already."""
        if status is self.record.status or status == self.record.status:
            return None
        return WriteStatus(record=self.record, reason=reason, sentence=sentence, status=status)
