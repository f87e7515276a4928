"""PodDisruptionBudgets: counts healthy pods and writes disruptionsAllowed, which the eviction subresource obeys."""

import math
from datetime import datetime, timedelta

import msgspec

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.conditions import with_status_condition
from forebay.embedded.api.kinds import DISRUPTION_BUDGET_KIND, REPLICA_SET_KIND
from forebay.embedded.api.objects import Json, StoredKey
from forebay.embedded.api.selectors import selector_matches
from forebay.embedded.controllers.cluster_state import ClusterState, PodView
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.workqueue import WorkQueue
from forebay.kube.decoders import DELETED

#: After this long an allowed eviction that no deletion has followed stops counting.
_DISRUPTION_TIMEOUT = timedelta(minutes=2)


class _BudgetSpec(msgspec.Struct, rename="camel", frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: Json | None = None


class DisruptionController(Controller):
    COMPONENT = "controllermanager"

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        self._work: WorkQueue[StoredKey] = WorkQueue(self._sync, self._failed)
        self._on_stop.append(self._work.stop)
        #: By namespace and budget, the pods that the budget selects.
        self._members: dict[str, dict[str, dict[StoredKey, None]]] = {}
        self._selectors: dict[StoredKey, Json | None] = {}
        cluster.on_pods(self._pod_changed)

    def start(self) -> None:
        self._follow(DISRUPTION_BUDGET_KIND, self._budget_changed)

    def _budget_changed(self, change: StoredChange) -> None:
        old, budget = change.old, change.new
        namespace, name = key = (budget["metadata"]["namespace"], budget["metadata"]["name"])
        if change.type == DELETED:
            self._selectors.pop(key, None)
            self._members.get(namespace, {}).pop(name, None)
            return
        if old is None or old["metadata"].get("generation") != budget["metadata"].get("generation"):
            selector = self._selectors[key] = (budget.get("spec") or {}).get("selector")
            pods = (pod for pod in self._cluster.pods.values() if pod.key[0] == namespace)
            members = {pod.key: None for pod in pods if _selects(selector, pod)}
            self._members.setdefault(namespace, {})[name] = members
        self._work.add(key)

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        pod = new or old
        if pod is None or not self._members.get(pod.key[0]):
            return
        namespace = pod.key[0]
        for name, members in self._members[namespace].items():
            if new is not None and _selects(self._selectors[namespace, name], new):
                members[new.key] = None
            elif pod.key in members:
                del members[pod.key]
            else:
                continue
            self._work.add((namespace, name))

    def _failed(self, key: StoredKey, error: Exception) -> None:
        budget = self._store.find(DISRUPTION_BUDGET_KIND, *key)
        if budget is None:
            return
        self._recorder.warning(
            self.COMPONENT,
            budget,
            "CalculateExpectedPodCountFailed",
            f"Failed to calculate the number of expected pods: {error}",
        )
        # Fail safe: without an expected count, no pod may be evicted.
        status = {**(budget.get("status") or {}), "disruptionsAllowed": 0, "observedGeneration": _generation(budget)}
        self._write(budget, status, "SyncFailed", str(error))

    def _sync(self, key: StoredKey) -> None:
        budget = self._store.find(DISRUPTION_BUDGET_KIND, *key)
        if budget is None:
            return
        spec = msgspec.convert(budget.get("spec") or {}, _BudgetSpec)
        found = (self._cluster.pods.get(member) for member in self._members[key[0]][key[1]])
        pods = [pod for pod in found if pod is not None and not pod.ended]
        if not pods:
            self._recorder.normal(self.COMPONENT, budget, "NoPods", "No matching pods found")
        expected, desired = self._expected(spec, pods)
        status = budget.get("status") or {}
        disrupted = self._disrupted(key, status.get("disruptedPods") or {}, pods)
        healthy = sum(pod.ready and not pod.deleting and pod.key[1] not in disrupted for pod in pods)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        counts = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": _generation(budget),
        }
        kept = {field: value for field, value in status.items() if field not in {"disruptedPods", *counts}}
        written = {**kept, **counts, **({"disruptedPods": disrupted} if disrupted else {})}
        self._write(budget, written, "SufficientPods" if allowed else "InsufficientPods", "")

    def _expected(self, spec: _BudgetSpec, pods: list[PodView]) -> tuple[int, int]:
        """The number of expected pods, and how many of them must stay healthy."""
        if spec.max_unavailable is not None:
            scale = self._scale(pods)
            return scale, max(0, scale - _scaled_value(spec.max_unavailable, scale))
        least = spec.min_available if spec.min_available is not None else 0
        if isinstance(least, int):
            return len(pods), least
        scale = self._scale(pods)
        return scale, _scaled_value(least, scale)

    def _scale(self, pods: list[PodView]) -> int:
        """The replicas that the pods' controllers ask for. Pods without one do not count, as on a real cluster."""
        total = 0
        for namespace, (kind, name, _) in dict.fromkeys((pod.key[0], pod.owner) for pod in pods if pod.owner[0]):
            if kind != REPLICA_SET_KIND.kind:
                raise ValueError(f"{kind} {name} does not implement the scale subresource")
            replica_set = self._store.find(REPLICA_SET_KIND, namespace, name)
            total += replica_set["spec"]["replicas"] if replica_set else 0
        return total

    def _disrupted(self, key: StoredKey, recorded: Json, pods: list[PodView]) -> Json:
        """Evictions that were allowed and whose pods are not being deleted yet."""
        alive = {pod.key[1] for pod in pods if not pod.deleting}
        now = self._store.clock()
        kept = {}
        for name, since in recorded.items():
            remaining = (datetime.fromisoformat(since) + _DISRUPTION_TIMEOUT - now).total_seconds()
            if name in alive and remaining > 0:
                kept[name] = since
                self._work.add(key, remaining)
        return kept

    def _write(self, budget: Json, status: Json, reason: str, message: str) -> None:
        allowed = {
            "type": "DisruptionAllowed",
            "status": "True" if reason == "SufficientPods" else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": _generation(budget),
        }
        status = with_status_condition(status, allowed, self._store.timestamp())
        if status != budget.get("status"):
            self._store.update(DISRUPTION_BUDGET_KIND, {**budget, "status": status}, subresource="status")


def _selects(selector: Json | None, pod: PodView) -> bool:
    return selector is not None and selector_matches(selector, pod.labels)


def _scaled_value(part: int | str, whole: int) -> int:
    """An absolute number, or a percentage of the whole, rounded up."""
    if isinstance(part, int):
        return part
    digits = part.removesuffix("%")
    if not part.endswith("%") or not digits.isdecimal():
        raise ValueError(f'"{part}" is neither a number nor a percentage')
    return math.ceil(whole * int(digits) / 100)


def _generation(budget: Json) -> int:
    generation: int = budget["metadata"].get("generation", 1)
    return generation
