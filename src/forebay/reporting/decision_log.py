"""The decision log: what the operator decided last. What each tick decides anew is one line, however often it does."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from forebay.model.reasons import Reason
from forebay.reconcile.capacity_conditions import without_figures
from forebay.reconcile.decisions import Decision, OwnerEvent, subject

#: Lines that are kept. At five lines a second, which is much, an hour has nine times as many.
MOST_LINES: Final = 2000
#: Objects whose last lines are kept for comparison.
_MOST_COMPARED: Final = 20_000

_KINDS: Final = {
    "pool": "GPUNodePool",
    "class": "GPUNodeClass",
    "provisioner": "NodeProvisioner",
    "record": "GPUInstance",
    "budget": "GPUWorkloadBudget",
    "job": "Job",
    "pod": "Pod",
    "node": "Node",
    "certificate": "CertificateSigningRequest",
}


class DecisionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, the object that it is about, and why it was made."""

    at: datetime
    #: Type of the decision, such as CreateInstance: the label of `forebay_decisions_total`.
    decision: str
    kind: str
    #: As namespace/name; the name alone where the kind has no namespaces.
    name: str
    reason: str
    sentence: str


class DecisionLog:
    """The last decisions that carry a reason.

    Left out is what only repeats the last tick that decided something about the object: a pod that waits is told so
    in every tick. A machine that is bought again, for the reason it was bought for before, is told again.
    """

    def __init__(self, most: int = MOST_LINES) -> None:
        self._lines: deque[DecisionLine] = deque(maxlen=most)
        self._last: OrderedDict[tuple[str, str], set[tuple[str, str, str]]] = OrderedDict()

    def add(self, decisions: Iterable[Decision], now: datetime) -> None:
        """Add the decisions of one tick."""
        decided: dict[tuple[str, str], set[tuple[str, str, str]]] = {}
        for decision in decisions:
            line = decision_line(decision, now)
            if line is None:
                continue
            key = (line.kind, line.name)
            told = (line.decision, line.reason, without_figures(line.sentence))
            decided.setdefault(key, set()).add(told)
            if told not in self._last.get(key, ()):
                self._lines.append(line)
        for key, lines in decided.items():
            self._last[key] = lines
            self._last.move_to_end(key)
        while len(self._last) > _MOST_COMPARED:
            self._last.popitem(last=False)

    def newest_first(self) -> Sequence[DecisionLine]:
        return tuple(reversed(self._lines))


def decision_line(decision: Decision, now: datetime) -> DecisionLine | None:
    """The line of a decision; None where it carries no reason, because it only follows from another one."""
    reason, sentence = getattr(decision, "reason", None), getattr(decision, "sentence", None)
    if not isinstance(reason, Reason) or not isinstance(sentence, str):
        return None
    kind, namespace, name = subject(decision)
    if isinstance(decision, OwnerEvent):
        kind, name = decision.owner.kind, decision.owner.name
    return DecisionLine(
        at=now,
        decision=type(decision).__name__,
        kind=_KINDS.get(kind, kind),
        name=f"{namespace}/{name}" if namespace else name,
        reason=reason,
        sentence=sentence,
    )
