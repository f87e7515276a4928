"""NoExecute taints: pods that do not tolerate one are deleted, at once or when their toleration runs out."""

import asyncio

from forebay.embedded.api.conditions import disrupted
from forebay.embedded.api.kinds import POD_KIND
from forebay.embedded.api.objects import Json, ObjectKey
from forebay.embedded.controllers.cluster_state import ClusterState, PodView, node_of
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.recorder import Recorder
from forebay.model.requirements import Effect, Taint, Toleration


class TaintEviction(Controller):
    COMPONENT = "taint-eviction-controller"

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        #: Nodes that have any.
        self._taints: dict[str, tuple[Taint, ...]] = {}
        #: When each threatened pod must go, in loop time. Later changes of its tolerations do not put it off.
        self._due: dict[ObjectKey, float] = {}
        self._work = self._queue_for(self._consider, self._pod_object, "FailedEviction")
        cluster.on_nodes(self._node_changed)
        cluster.on_pods(self._pod_changed)

    def _node_changed(self, old: Json | None, new: Json | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        known = () if new is None else node_of(new).taints
        taints = tuple(taint for taint in known if taint.effect == Effect.NO_EXECUTE)
        if taints == self._taints.get(name, ()):
            return
        if taints:
            self._taints[name] = taints
        else:
            self._taints.pop(name, None)
        for key in self._cluster.by_node.get(name, {}):
            self._work.add(key)

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._due.pop(old.key, None)
        if new is not None and new.node in self._taints and not new.deleting:
            self._work.add(new.key)

    def _consider(self, key: ObjectKey) -> None:
        pod = self._cluster.pods.get(key)
        taints = self._taints.get(pod.node, ()) if pod is not None else ()
        allowed = None if pod is None or pod.deleting or pod.ended else _allowed(pod, taints)
        if pod is None or allowed is None:
            self._due.pop(key, None)
            return
        now = asyncio.get_running_loop().time()
        due = self._due.setdefault(key, now + allowed)
        if now < due:
            self._work.add(key, due - now)
            return
        del self._due[key]
        self._evict(pod)

    def _evict(self, pod: PodView) -> None:
        self._recorder.normal(
            self.COMPONENT, pod.object, "TaintManagerEviction", f"Marking for deletion Pod {'/'.join(pod.key)}"
        )
        now, message = self._store.timestamp(), "Taint manager: deleting due to NoExecute taint"
        self._cluster.write_status(pod, disrupted(pod.status, now, "DeletionByTaintManager", message))
        self._store.delete(POD_KIND, *pod.key, preconditions={"uid": pod.uid})


def _allowed(pod: PodView, taints: tuple[Taint, ...]) -> float | None:
    """Seconds it may stay: none if a taint is not tolerated, else the shortest of the tolerations. None: for ever."""
    tolerations = [
        Toleration(
            one.get("key") or "",
            one.get("operator") or "Equal",
            one.get("value") or "",
            one.get("effect") or "",
            one.get("tolerationSeconds"),
        )
        for one in pod.spec.get("tolerations") or ()
    ]
    limits: list[float] = []
    for taint in taints:
        applying = [toleration for toleration in tolerations if toleration.tolerates(taint)]
        if not applying:
            return 0.0
        limits += [max(0.0, t.toleration_seconds) for t in applying if t.toleration_seconds is not None]
    return min(limits, default=None) if taints else None
