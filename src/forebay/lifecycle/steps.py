"""What lifecycle may decide about a GPUInstance. The engine has one function for each."""

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Every step is about one record as it was seen: it is void where the record has changed meanwhile."""

    record: GPUInstance
    reason: Reason
    sentence: str


class Launch(Step, frozen=True, kw_only=True):
    """Write `status` (Launching, one more attempt) as a compare-and-swap; its winner alone calls the provider."""

    status: GPUInstanceStatus


class WriteStatus(Step, frozen=True, kw_only=True):
    """Write `status`, as a compare-and-swap. Where its state is another than the record's, it is a transition and gets
    an event.
    """

    status: GPUInstanceStatus
    #: Where it ends a drain: UIDs of pods that are on the node all the same and are not waited for any longer.
    given_up: frozenset[str] = frozenset()


class Terminate(Step, frozen=True, kw_only=True):
    """Write `status` (the attempt) as a compare-and-swap, then ask the provider to end `instance_id`."""

    status: GPUInstanceStatus
    instance_id: str
    #: As in `Write`.
    given_up: frozenset[str] = frozenset()

    @property
    def first(self) -> bool:
        """Nobody has asked before: until now nothing is lost."""
        return self.record.status is None or not self.record.status.termination_attempts


class Drain(Step, frozen=True, kw_only=True):
    """Cordon the node where it is not (with `facts.CORDONED_ANNOTATION`), and evict these pods as their
    disruption budgets allow. `status`, where there is one, is written first: it says who is waited for and when they
    are asked next.
    """

    node: Node
    evict: tuple[Pod, ...] = ()
    status: GPUInstanceStatus | None = None


class Uncordon(Step, frozen=True, kw_only=True):
    """Take back a cordon of ours (never one of the user's)."""

    node: Node


class DeleteRecord(Step, frozen=True, kw_only=True):
    """Proof of absence is there: take the finalizer off and delete the record."""


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """Create a record for something that runs without one, directly with `status`."""

    name: str
    spec: GPUInstanceSpec
    status: GPUInstanceStatus
    reason: Reason
    sentence: str


AnyStep = Launch | WriteStatus | Terminate | Drain | Uncordon | DeleteRecord
