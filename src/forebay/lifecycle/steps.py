"""Steps that lifecycle may decide for a GPUInstance. The engine has one function for each."""

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, SecondaryResource
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step for one record as it was read: void where the record has changed since."""

    record: GPUInstance
    reason: Reason
    sentence: str


class Launch(Step, frozen=True, kw_only=True):
    """Write `status` (Launching, one more attempt) as a compare-and-swap; only its winner calls the provider."""

    status: GPUInstanceStatus


class WriteStatus(Step, frozen=True, kw_only=True):
    """Write `status`, as a compare-and-swap. A change of state is a transition and gets an event."""

    status: GPUInstanceStatus
    #: At the end of a drain: UIDs of pods that are still on the node and are not waited for any longer.
    given_up: frozenset[str] = frozenset()


class Terminate(Step, frozen=True, kw_only=True):
    """Write `status` (one more attempt) as a compare-and-swap, then ask the provider to terminate `instance_id`."""

    status: GPUInstanceStatus
    instance_id: str
    #: As in `WriteStatus`.
    given_up: frozenset[str] = frozenset()

    @property
    def first(self) -> bool:
        """True for the first termination call: until then the machine can still be kept."""
        return self.record.status is None or not self.record.status.termination_attempts


class Drain(Step, frozen=True, kw_only=True):
    """Cordon the node if it is not cordoned yet (with `CORDONED_ANNOTATION`), and evict `evict` as their
    PodDisruptionBudgets allow. `status`, where given, is written first: its message names the pods, and its
    `not_before` says when they are evicted next.
    """

    node: Node
    evict: tuple[Pod, ...] = ()
    status: GPUInstanceStatus | None = None


class Uncordon(Step, frozen=True, kw_only=True):
    """Take back a cordon of Forebay's (never a user's)."""

    node: Node


class DeleteNode(Step, frozen=True, kw_only=True):
    """Delete the Node object of a rented machine that is proven gone, so that its pods are let go."""

    node: Node


class DeleteRecord(Step, frozen=True, kw_only=True):
    """Take the finalizer off the record and delete it: absence is proven."""


class DeleteResources(Step, frozen=True, kw_only=True):
    """Delete resources that were made beside the machine and are no longer needed; record the outcome."""

    resources: tuple[SecondaryResource, ...]


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """Create a record, directly with `status`, for something that runs without one."""

    name: str
    spec: GPUInstanceSpec
    status: GPUInstanceStatus
    reason: Reason
    sentence: str


AnyStep = Launch | WriteStatus | Terminate | Drain | Uncordon | DeleteNode | DeleteResources | DeleteRecord
