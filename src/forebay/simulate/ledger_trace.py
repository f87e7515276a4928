"""A trace of a cluster's own past, from the ledgers of its budgets.

Ledgers know for a day which pod held GPUs when, and before that how many GPUs were held in each minute. From the
latter, pods are made up: what begins is one pod, and what was held longest ends first.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from forebay.budgets.ledger.ledger import Ledger
from forebay.simulate.traces import LARGEST_POD, Trace, read_trace

#: Rates of ledgers count thousandths of a GPU; their changes over time, sixtieths of these.
_PER_GPU: Final = 1000
_SIXTIETHS: Final = 60


class _Use(NamedTuple):
    namespace: str
    name: str
    start: int
    end: int
    gpus: int


def ledger_trace(ledgers: Iterable[tuple[str, Ledger]], since: int, now: int) -> Trace:
    """Pods that held GPUs from `since` to `now` (Unix seconds), by the ledgers of budgets with their namespaces.

    A pod that several budgets count is one pod, as far as ledgers still name it.
    """
    known: dict[str, list[_Use]] = {}
    made_up: list[_Use] = []
    for number, (namespace, ledger) in enumerate(ledgers):
        changes = dict(ledger.profile.changes)
        for uid, intervals in ledger.entries():
            known[uid] = [
                _Use(namespace, uid, start, now if end is None else end, -(-rate // _PER_GPU))
                for start, end, rate in intervals
            ]
            for start, end, rate in intervals:
                changes[start] = changes.get(start, 0) - rate * _SIXTIETHS
                if end is not None:
                    changes[end] = changes.get(end, 0) + rate * _SIXTIETHS
        made_up += _made_up(changes, f"{number}-", namespace, now)
    uses = [each for found in known.values() for each in found] + made_up
    lines = ["submitted,duration,gpus,namespace,name"]
    for each in uses:
        start, end = max(each.start, since), min(each.end, now)
        if end > start and each.gpus:
            lines.append(f"{start},{end - start},{each.gpus},{each.namespace},{each.name}")
    return read_trace(lines)


def _made_up(changes: dict[int, int], prefix: str, namespace: str, now: int) -> Iterator[_Use]:
    held: list[tuple[int, int]] = []
    level = number = 0
    total = 0
    for at in sorted(changes):
        total += changes[at]
        wanted = max(round(total / (_SIXTIETHS * _PER_GPU)), 0)
        while wanted > level:
            gpus = min(wanted - level, LARGEST_POD)
            held.append((at, gpus))
            level += gpus
        while wanted < level:
            start, gpus = held.pop(0)
            ends = min(gpus, level - wanted)
            if ends < gpus:
                held.insert(0, (start, gpus - ends))
            number += 1
            yield _Use(namespace, f"{prefix}{number}", start, at, ends)
            level -= ends
    for start, gpus in held:
        number += 1
        yield _Use(namespace, f"{prefix}{number}", start, now, gpus)
