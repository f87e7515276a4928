"""The scheduler's cache: nodes with their pods and nominations, and for each shape of pod the nodes in order of score.

A node that has not changed answers all pods of one shape alike, so each shape keeps its ranking and evaluates only the
nodes that have changed since. Placing a pod then costs as much as has changed, not as much as the cluster is large.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from forebay.embedded.api.objects import Labels, StoredKey
from forebay.embedded.controllers.inter_pod_affinity import AFFINITY, InterPodAffinity, LabelledPod
from forebay.embedded.controllers.node_info import MISSING_NODE, FilterResult, NodeInfo, SchedulingShape
from forebay.model.nodes import Node

_NO_VICTIMS = "No preemption victims found for incoming pod"
_NO_HELP = "Preemption is not helpful for scheduling"

_MAX_CHANGES = 20_000
_MAX_RANKINGS = 256


class _BoundPod(msgspec.Struct, frozen=True, gc=False):
    node: str
    shape: SchedulingShape
    labelled: LabelledPod


class _Ranking:
    """The result of every node for one shape, up to position `seen` in the list of changes."""

    __slots__ = ("message", "order", "reason_counts", "results", "seen", "unresolvable")

    def __init__(self) -> None:
        self.seen = -1
        self.results: dict[str, FilterResult] = {}
        #: A heap of (-score, node); entries that a later result has replaced are skipped when they come up.
        self.order: list[tuple[int, str]] = []
        self.reason_counts: Counter[str] = Counter()
        self.unresolvable = 0
        self.message: str | None = None

    def set(self, node: str, result: FilterResult | None) -> None:
        old = self.results.pop(node, None)
        if old is not None and old.reasons:
            self.reason_counts.subtract(old.reasons)
            self.unresolvable -= not old.resolvable
        if result is not None:
            self.results[node] = result
            if result.reasons:
                self.reason_counts.update(result.reasons)
                self.unresolvable += not result.resolvable
            elif old is None or old.reasons or old.score != result.score:
                heapq.heappush(self.order, (-result.score, node))

    def is_current(self, entry: tuple[int, str]) -> bool:
        result = self.results.get(entry[1])
        return result is not None and not result.reasons and result.score == -entry[0]


class SchedulerCache:
    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        #: Nodes that pods are bound to or nominated for and that do not exist, not yet or no longer.
        self._missing_nodes: dict[str, NodeInfo] = {}
        self._pods: dict[StoredKey, _BoundPod] = {}
        self._nominations: dict[StoredKey, str] = {}
        self._affinity = InterPodAffinity()
        self._rankings: dict[SchedulingShape, _Ranking] = {}
        self._priorities: Counter[int] = Counter()
        #: Names of changed nodes in order, from position `_changes_start` on.
        self._changes: list[str] = []
        self._changes_start = 0
        #: Nodes on which a pod may fit now that did not fit before. The scheduler takes them out.
        self.improved: dict[str, None] = {}

    def update_node(self, node: Node) -> None:
        info = self._nodes.get(node.name)
        if info is None:
            info = self._nodes[node.name] = self._node_info(node.name)
            self._missing_nodes.pop(node.name, None)
        self._set_node(info, node)
        self._changed(node.name, improved=True)

    def remove_node(self, name: str) -> None:
        info = self._nodes.pop(name, None)
        if info is not None and (info.pods or info.nominated):
            self._set_node(info, MISSING_NODE)
            self._missing_nodes[name] = info
        self._changed(name)

    def _set_node(self, info: NodeInfo, node: Node) -> None:
        before, info.node, info.filters = info.node, node, {}
        if before.labels != node.labels:
            for key in info.pods:
                pod = self._pods[key].labelled
                self._affinity.remove(pod)
                self._affinity.add(pod, node.labels)

    def add_pod(self, key: StoredKey, node: str, shape: SchedulingShape, labels: Labels) -> None:
        self.remove_pod(key)
        self.nominate(key, None, shape)
        info = self._node_info(node)
        pod = LabelledPod(key[0], labels, shape.shape)
        self._pods[key] = _BoundPod(node, shape, pod)
        self._affinity.add(pod, info.node.labels)
        self._priorities[shape.shape.priority] += 1
        info.add_pod(key, shape)
        self._changed(node)

    def remove_pod(self, key: StoredKey) -> None:
        pod = self._pods.pop(key, None)
        if pod is None:
            return
        self._affinity.remove(pod.labelled)
        priority = pod.shape.shape.priority
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]
        self._node_info(pod.node).remove_pod(key)
        self._drop_if_unused(pod.node)
        self._changed(pod.node, improved=True)

    def nominate(self, key: StoredKey, node: str | None, shape: SchedulingShape) -> None:
        """Reserves room on the node for a nominated pod; None ends its nomination."""
        before = self._nominations.get(key)
        if before == node and (node is None or self._node_info(node).nominated[key] is shape):
            return
        if before is not None:
            del self._nominations[key]
            self._node_info(before).nominated.pop(key, None)
            self._drop_if_unused(before)
            self._changed(before, improved=True)
        if node is not None:
            self._nominations[key] = node
            self._node_info(node).nominated[key] = shape
            self._changed(node)

    def fits_on(self, node: str, key: StoredKey, shape: SchedulingShape, labels: Labels) -> bool:
        info = self._nodes.get(node)
        if info is None or info.evaluate(shape, besides=key).reasons:
            return False
        affinity = self._affinity.filter_for(LabelledPod(key[0], labels, shape.shape))
        return affinity is None or affinity(info.node.labels) is None

    def best_node(self, key: StoredKey, shape: SchedulingShape, labels: Labels) -> str | None:
        """The node with the highest score, of equal ones the first by name; None where the pod fits nowhere."""
        ranking = self._ranking(shape)
        affinity = self._affinity.filter_for(LabelledPod(key[0], labels, shape.shape))
        if affinity is not None:
            feasible = (
                (-result.score, name)
                for name, result in ranking.results.items()
                if not result.reasons and affinity(self._nodes[name].node.labels) is None
            )
            return min(feasible, default=(0, None))[1]
        order = ranking.order
        while order and not ranking.is_current(order[0]):
            heapq.heappop(order)
        return order[0][1] if order else None

    def unschedulable_message(self, key: StoredKey, shape: SchedulingShape, labels: Labels) -> str:
        """The message of FailedScheduling for a pod that fits nowhere, as kube-scheduler writes it."""
        if not self._nodes:
            return "no nodes available to schedule pods"
        ranking = self._ranking(shape)
        affinity = self._affinity.filter_for(LabelledPod(key[0], labels, shape.shape))
        if affinity is None:
            if ranking.message is None:
                ranking.message = self._message(shape, ranking.reason_counts, ranking.unresolvable)
            return ranking.message
        reason_counts, unresolvable = Counter(ranking.reason_counts), ranking.unresolvable
        for name, result in ranking.results.items():
            if not result.reasons:
                reason = affinity(self._nodes[name].node.labels) or ""
                reason_counts[reason] += 1
                unresolvable += reason == AFFINITY
        return self._message(shape, reason_counts, unresolvable)

    def pods_that_fit(self, shape: SchedulingShape, nodes: Iterable[str]) -> int:
        return sum(self._nodes[name].pods_that_fit(shape) for name in nodes if name in self._nodes)

    def _message(self, shape: SchedulingShape, reason_counts: Mapping[str, int], unresolvable: int) -> str:
        total = len(self._nodes)
        reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in reason_counts.items() if count))
        has_lower_priority = min(self._priorities, default=0) < shape.shape.priority
        victims = Counter({_NO_HELP: unresolvable, _NO_VICTIMS: total - unresolvable})
        answer = ", ".join(sorted(f"{count} {reason}" for reason, count in victims.items() if count))
        preemption = f"0/{total} nodes are available: {answer}."
        if has_lower_priority and unresolvable < total:
            preemption = "lower-priority pods may be in the way, and the embedded scheduler does not preempt."
        return f"0/{total} nodes are available: {reasons}. no new claims to deallocate, preemption: {preemption}"

    def _ranking(self, shape: SchedulingShape) -> _Ranking:
        # Taken out and put back at the end, so that the first one is the least recently used.
        ranking = self._rankings.pop(shape, None) or _Ranking()
        self._rankings[shape] = ranking
        if len(self._rankings) > _MAX_RANKINGS:
            del self._rankings[next(iter(self._rankings))]
        end = self._changes_start + len(self._changes)
        changed: Iterable[str]
        if ranking.seen < self._changes_start:
            self._rankings[shape] = ranking = _Ranking()
            changed = self._nodes
        elif ranking.seen == end:
            return ranking
        else:
            changed = dict.fromkeys(self._changes[ranking.seen - self._changes_start :])
        ranking.message = None
        ranking.seen = end
        for name in changed:
            info = self._nodes.get(name)
            ranking.set(name, None if info is None else info.evaluate(shape))
        if len(ranking.order) > 4 * len(self._nodes) + 64:
            ranking.order = [(-result.score, name) for name, result in ranking.results.items() if not result.reasons]
            heapq.heapify(ranking.order)
        return ranking

    def _node_info(self, name: str) -> NodeInfo:
        info = self._nodes.get(name) or self._missing_nodes.get(name)
        if info is None:
            info = self._missing_nodes[name] = NodeInfo()
        return info

    def _drop_if_unused(self, name: str) -> None:
        info = self._missing_nodes.get(name)
        if info is not None and not info.pods and not info.nominated:
            del self._missing_nodes[name]

    def _changed(self, node: str, *, improved: bool = False) -> None:
        self._changes.append(node)
        if len(self._changes) > _MAX_CHANGES:
            # A ranking older than the dropped half is built anew when next used.
            self._changes_start += _MAX_CHANGES // 2
            del self._changes[: _MAX_CHANGES // 2]
        if improved:
            self.improved[node] = None
