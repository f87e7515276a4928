"""What a tick may decide. Every decision says why, in a word for programs and a sentence for people."""

from enum import StrEnum

import msgspec

from forebay.api.parts import Condition


class Reason(StrEnum):
    """Why. One vocabulary for conditions, events, the command line and the pages."""

    NODE_CLASS_FOUND = "NodeClassFound"
    """The GPUNodeClass that the pool names exists."""
    NODE_CLASS_NOT_FOUND = "NodeClassNotFound"
    """The pool names a GPUNodeClass that does not exist: create it, or correct nodeClassRef.name."""
    NODE_CLASS_DELETING = "NodeClassDeleting"
    """The GPUNodeClass that the pool names is being deleted: name another one, or delete the pool."""
    NOT_SERVED_YET = "NotServedYet"
    """This release of Forebay watches but obtains no capacity yet."""


class ReportPool(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the owner of a GPUNodePool how it stands."""

    namespace: str
    name: str
    uid: str
    #: What was looked at: the write is refused where the pool has changed meanwhile, and the next tick looks again.
    resource_version: int
    generation: int
    #: The whole list, as it is to stand in the status.
    conditions: tuple[Condition, ...]
    reason: Reason
    sentence: str


Decision = ReportPool
