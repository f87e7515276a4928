"""The condition CAPACITY_CONDITION: why each pod waits, kept on the pod for as long as it waits.

Events expire after an hour, and thousands of them would be a flood; a condition stays. It is written when the reason
changes. Figures in its message (prices, counts, remaining times) may grow old: a write for each pod at each tick is
more than an API server can take.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from forebay.demand.reservation import Reservations
from forebay.model.reasons import Reason
from forebay.reconcile.decisions import CapacityChange, PodEvent, ReportCapacity
from forebay.reconcile.snapshot import Snapshot

#: Figures that are words of their own: `3`, `$0.80/h`, `1h5m`, `2030-01-01 12:00:00`, but not the 7 of `gpu-7`.
_FIGURE: Final = re.compile(r"(?<![\w.-])\$?\d[\w.,:%/-]*")
_MOMENT: Final = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")
#: Characters of a message, as of an event's note.
_MOST_CHARACTERS: Final = 1000


def report_capacity(
    snapshot: Snapshot, reservations: Reservations, waits: Iterable[PodEvent]
) -> Iterator[ReportCapacity]:
    """The conditions to write, if any pod waits: perhaps none, which takes back what earlier ticks wanted."""
    wanted = {change.pod.uid: change for change in _wanted(snapshot, reservations, waits)}
    changes: list[CapacityChange] = []
    refreshes: list[CapacityChange] = []
    for change in wanted.values():
        stored = change.pod.capacity
        if stored == change.text:
            continue
        if stored is None or stored.partition(":")[0] != change.reason:
            changes.append(change)
        elif without_figures(stored) != without_figures(change.text) or _has_passed(stored, snapshot.now):
            refreshes.append(change)
    if wanted:
        yield ReportCapacity(changes=_most_alike_first(changes), refreshes=_most_alike_first(refreshes))


def _wanted(snapshot: Snapshot, reservations: Reservations, waits: Iterable[PodEvent]) -> Iterator[CapacityChange]:
    told = tuple(waits)
    stranded = {pod.uid for pod in snapshot.stranded}
    without_container = {each.pod.uid for each in told if each.pod.uid in stranded} if stranded else stranded
    for pod in snapshot.told_but_bound:
        if pod.uid in without_container:
            continue
        yield CapacityChange(pod, True, Reason.BOUND, f"The pod is bound to node {pod.node}.")
    placed = reservations.placed
    for pod in snapshot.pending if placed else ():
        found = placed.get(pod.uid)
        # Room on a ready node is for kube-scheduler to use, which it does before this could be written.
        if found is not None and found.reason is Reason.CAPACITY_LAUNCHING and pod.node is None:
            yield CapacityChange(pod, False, found.reason, found.sentence)
    for each in told:
        # A pod that has left the cluster is bound, and waits for its container.
        if each.pod.node is None or each.pod.uid in without_container:
            yield CapacityChange(each.pod, False, each.reason, _shortened(each.sentence))


def _most_alike_first(changes: list[CapacityChange]) -> tuple[CapacityChange, ...]:
    """Pods that wait for the reason of most pods first, and the oldest of these."""
    if len(changes) < 2:  # noqa: PLR2004 (one is in order)
        return tuple(changes)
    count = Counter(each.reason for each in changes)
    return tuple(sorted(changes, key=lambda each: (-count[each.reason], each.reason, each.pod.created, each.pod.key)))


@lru_cache(maxsize=4096)
def without_figures(text: str) -> str:
    """The text with a mark for each figure: two sentences that differ in figures only say the same."""
    return _FIGURE.sub("#", text)


@lru_cache(maxsize=4096)
def _moments(text: str) -> tuple[datetime, ...]:
    found: list[datetime] = []
    for each in _MOMENT.findall(text):
        with suppress(ValueError):  # the text may quote a scheduler, or whoever else writes conditions
            found.append(datetime.fromisoformat(each).replace(tzinfo=UTC))
    return tuple(found)


def _has_passed(text: str, now: datetime) -> bool:
    """Whether a time that the text names has passed: a pod told to wait until noon is told anew in the afternoon."""
    return any(moment < now for moment in _moments(text))


def _shortened(sentence: str) -> str:
    # A sentence may quote text that cannot be encoded (half of a surrogate pair).
    sentence = sentence.encode("utf-8", "replace").decode("utf-8")
    return sentence if len(sentence) <= _MOST_CHARACTERS else f"{sentence[: _MOST_CHARACTERS - 3]}..."
