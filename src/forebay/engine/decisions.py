"""What a tick may decide. Every decision says why, in a word for programs and a sentence for people."""

import msgspec

from forebay.api.parts import Condition
from forebay.model.reasons import Reason


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
