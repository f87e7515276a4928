"""Where a pod can go: what each node has left, and for each shape of pod the nodes in order of liking.

Pods of one shape get the same answer from a node that has not changed, so each shape keeps its ranking and looks again
only at nodes that have changed since. Placing a pod then costs what happened, not the size of the cluster.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from forebay.embedded.api.objects import ObjectKey
from forebay.embedded.controllers.inter_pod_affinity import AFFINITY, InterPodAffinity, LabelledPod
from forebay.embedded.controllers.node_info import UNKNOWN, FilterResult, NodeInfo, SchedulingShape
from forebay.model.nodes import Node

_NO_VICTIMS = "No preemption victims found for incoming pod"
_NO_HELP = "Preemption is not helpful for scheduling"

_LONGEST_LOG = 20_000
_MOST_RANKINGS = 256


class _Booking(msgspec.Struct, frozen=True, gc=False):
    node: str
    ask: SchedulingShape
    neighbour: LabelledPod


class _Ranking:
    """The nodes as one shape sees them, as of `seen` in the log of changes."""

    __slots__ = ("order", "refusing", "seen", "unresolvable", "verdicts", "why")

    def __init__(self) -> None:
        self.seen = -1
        self.verdicts: dict[str, FilterResult] = {}
        self.order: list[tuple[int, str]] = []
        self.refusing: Counter[str] = Counter()
        self.unresolvable = 0
        self.why: str | None = None

    def put(self, name: str, verdict: FilterResult | None) -> None:
        old = self.verdicts.pop(name, None)
        if old is not None and old.reasons:
            self.refusing.subtract(old.reasons)
            self.unresolvable -= not old.resolvable
        if verdict is not None:
            self.verdicts[name] = verdict
            if verdict.reasons:
                self.refusing.update(verdict.reasons)
                self.unresolvable += not verdict.resolvable
            elif old is None or old.reasons or old.score != verdict.score:
                heapq.heappush(self.order, (-verdict.score, name))

    def stands(self, entry: tuple[int, str]) -> bool:
        verdict = self.verdicts.get(entry[1])
        return verdict is not None and not verdict.reasons and verdict.score == -entry[0]


class SchedulerCache:
    def __init__(self) -> None:
        self._books: dict[str, NodeInfo] = {}
        #: Of nodes that pods are bound to or nominated for, and that do not exist (yet, or any longer).
        self._absent: dict[str, NodeInfo] = {}
        self._bookings: dict[ObjectKey, _Booking] = {}
        self._nominations: dict[ObjectKey, str] = {}
        self._neighbours = InterPodAffinity()
        self._rankings: dict[SchedulingShape, _Ranking] = {}
        self._priorities: Counter[int] = Counter()
        self._log: list[str] = []
        self._log_start = 0
        #: Nodes on which something may fit now that did not fit before. Whoever wakes the pods empties it.
        self.improved: dict[str, None] = {}

    def describe(self, node: Node) -> None:
        book = self._books.get(node.name)
        if book is None:
            book = self._books[node.name] = self._book(node.name)
            self._absent.pop(node.name, None)
        self._turn_into(book, node)
        self._changed(node.name, improved=True)

    def forget_node(self, name: str) -> None:
        book = self._books.pop(name, None)
        if book is not None and (book.taken or book.kept):
            self._turn_into(book, UNKNOWN)
            self._absent[name] = book
        self._changed(name)

    def _turn_into(self, book: NodeInfo, node: Node) -> None:
        before, book.node, book.opinions = book.node, node, {}
        if before.labels != node.labels:
            for key in book.taken:
                neighbour = self._bookings[key].neighbour
                self._neighbours.remove(neighbour)
                self._neighbours.add(neighbour, node.labels)

    def take(self, key: ObjectKey, node: str, ask: SchedulingShape, labels: Mapping[str, str]) -> None:
        self.give_back(key)
        self.keep(key, None, ask)
        book = self._book(node)
        neighbour = LabelledPod(key[0], labels, ask.shape)
        self._bookings[key] = _Booking(node, ask, neighbour)
        self._neighbours.add(neighbour, book.node.labels)
        self._priorities[ask.shape.priority] += 1
        book.take(key, ask)
        self._changed(node)

    def give_back(self, key: ObjectKey) -> None:
        booking = self._bookings.pop(key, None)
        if booking is None:
            return
        self._neighbours.remove(booking.neighbour)
        priority = booking.ask.shape.priority
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]
        self._book(booking.node).give_back(key)
        self._tidy(booking.node)
        self._changed(booking.node, improved=True)

    def keep(self, key: ObjectKey, node: str | None, ask: SchedulingShape) -> None:
        """Keeps room for a nominated pod (on None: nowhere)."""
        before = self._nominations.get(key)
        if before == node and (node is None or self._book(node).kept[key] is ask):
            return
        if before is not None:
            del self._nominations[key]
            self._book(before).kept.pop(key, None)
            self._tidy(before)
            self._changed(before, improved=True)
        if node is not None:
            self._nominations[key] = node
            self._book(node).kept[key] = ask
            self._changed(node)

    def fits_on(self, node: str, key: ObjectKey, ask: SchedulingShape, labels: Mapping[str, str]) -> bool:
        book = self._books.get(node)
        if book is None or book.judge(ask, but=key).reasons:
            return False
        refusal = self._neighbours.refusal(LabelledPod(key[0], labels, ask.shape))
        return refusal is None or refusal(book.node.labels) is None

    def best(self, key: ObjectKey, ask: SchedulingShape, labels: Mapping[str, str]) -> str | None:
        """The node it would rather be on: the emptiest, then the first by name."""
        ranking = self._ranking(ask)
        refusal = self._neighbours.refusal(LabelledPod(key[0], labels, ask.shape))
        if refusal is not None:
            open_to_it = (
                (-verdict.score, name)
                for name, verdict in ranking.verdicts.items()
                if not verdict.reasons and refusal(self._books[name].node.labels) is None
            )
            return min(open_to_it, default=(0, None))[1]
        order = ranking.order
        while order and not ranking.stands(order[0]):
            heapq.heappop(order)
        return order[0][1] if order else None

    def why_not(self, key: ObjectKey, ask: SchedulingShape, labels: Mapping[str, str]) -> str:
        """In the words of the real scheduler."""
        if not self._books:
            return "no nodes available to schedule pods"
        ranking = self._ranking(ask)
        refusal = self._neighbours.refusal(LabelledPod(key[0], labels, ask.shape))
        if refusal is None:
            if ranking.why is None:
                ranking.why = self._explain(ask, ranking.refusing, ranking.unresolvable)
            return ranking.why
        refusing, unresolvable = Counter(ranking.refusing), ranking.unresolvable
        for name, verdict in ranking.verdicts.items():
            if not verdict.reasons:
                reason = refusal(self._books[name].node.labels) or ""
                refusing[reason] += 1
                unresolvable += reason == AFFINITY
        return self._explain(ask, refusing, unresolvable)

    def room(self, ask: SchedulingShape, nodes: Iterable[str]) -> int:
        return sum(self._books[name].room(ask) for name in nodes if name in self._books)

    def _explain(self, ask: SchedulingShape, refusing: Mapping[str, int], unresolvable: int) -> str:
        total = len(self._books)
        reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in refusing.items() if count))
        lower = min(self._priorities, default=0) < ask.shape.priority
        futile = Counter({_NO_HELP: unresolvable, _NO_VICTIMS: total - unresolvable})
        answer = ", ".join(sorted(f"{count} {reason}" for reason, count in futile.items() if count))
        preemption = f"0/{total} nodes are available: {answer}."
        if lower and unresolvable < total:
            preemption = "lower-priority pods may be in the way, and the embedded scheduler does not preempt."
        return f"0/{total} nodes are available: {reasons}. no new claims to deallocate, preemption: {preemption}"

    def _ranking(self, ask: SchedulingShape) -> _Ranking:
        # The one asked about last is the last one, so the first is the one to forget.
        ranking = self._rankings.pop(ask, None) or _Ranking()
        self._rankings[ask] = ranking
        if len(self._rankings) > _MOST_RANKINGS:
            del self._rankings[next(iter(self._rankings))]
        end = self._log_start + len(self._log)
        changed: Iterable[str]
        if ranking.seen < self._log_start:
            self._rankings[ask] = ranking = _Ranking()
            changed = self._books
        elif ranking.seen == end:
            return ranking
        else:
            changed = dict.fromkeys(self._log[ranking.seen - self._log_start :])
        ranking.why = None
        ranking.seen = end
        for name in changed:
            book = self._books.get(name)
            ranking.put(name, None if book is None else book.judge(ask))
        if len(ranking.order) > 4 * len(self._books) + 64:
            ranking.order = [(-v.score, name) for name, v in ranking.verdicts.items() if not v.reasons]
            heapq.heapify(ranking.order)
        return ranking

    def _book(self, name: str) -> NodeInfo:
        book = self._books.get(name) or self._absent.get(name)
        if book is None:
            book = self._absent[name] = NodeInfo()
        return book

    def _tidy(self, name: str) -> None:
        book = self._absent.get(name)
        if book is not None and not book.taken and not book.kept:
            del self._absent[name]

    def _changed(self, node: str, *, improved: bool = False) -> None:
        self._log.append(node)
        if len(self._log) > _LONGEST_LOG:
            # A shape not asked about for so long starts afresh.
            self._log_start += _LONGEST_LOG // 2
            del self._log[: _LONGEST_LOG // 2]
        if improved:
            self.improved[node] = None
