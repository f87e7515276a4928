"""What every rule of a state is given, and what it may return."""

from datetime import datetime
from typing import Any, NamedTuple

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.steps import AnyStep, WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities


class Wait(NamedTuple):
    """Nothing to do now, nor before this moment unless the facts change."""

    until: datetime


RuleResult = AnyStep | Wait | None


class RuleContext(NamedTuple):
    """The facts about a record whose provider is configured, at one moment."""

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
        """The transition to another state, with `changes` to other fields of the status."""
        status = transition(self.record.status, to, reason, sentence, self.now, **changes)
        return WriteStatus(record=self.record, reason=reason, sentence=sentence, status=status)

    def write(self, status: GPUInstanceStatus, reason: Reason, sentence: str) -> WriteStatus | None:
        """The status to write; None where the record has it already."""
        if status is self.record.status or status == self.record.status:
            return None
        return WriteStatus(record=self.record, reason=reason, sentence=sentence, status=status)
