"""NoExecute taints: deletes pods that do not tolerate them, at once or after their tolerationSeconds."""

import asyncio

from forebay.embedded.api.conditions import disrupted
from forebay.embedded.api.kinds import POD_KIND
from forebay.embedded.api.objects import Json, StoredKey
from forebay.embedded.controllers.cluster_state import ClusterState, PodView, node_of
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.recorder import Recorder
from forebay.model.requirements import Effect, Taint, Toleration


class TaintEviction(Controller):
    COMPONENT = "taint-eviction-controller"

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        #: NoExecute taints, by node; nodes without any are left out.
        self._taints: dict[str, tuple[Taint, ...]] = {}
        #: Loop time at which each pod is deleted. Later changes of its tolerations do not postpone it.
        self._due: dict[StoredKey, float] = {}
        self._work = self._queue_for(self._sync, self._pod_object, "FailedEviction")
        cluster.on_nodes(self._node_changed)
        cluster.on_pods(self._pod_changed)

    def _node_changed(self, old: Json | None, new: Json | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        all_taints = () if new is None else node_of(new).taints
        taints = tuple(taint for taint in all_taints if taint.effect == Effect.NO_EXECUTE)
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

    def _sync(self, key: StoredKey) -> None:
        pod = self._cluster.pods.get(key)
        taints = self._taints.get(pod.node, ()) if pod is not None else ()
        stays = None if pod is None or pod.deleting or pod.ended else _toleration_seconds(pod, taints)
        if pod is None or stays is None:
            self._due.pop(key, None)
            return
        now = asyncio.get_running_loop().time()
        due = self._due.setdefault(key, now + stays)
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


def _toleration_seconds(pod: PodView, taints: tuple[Taint, ...]) -> float | None:
    """Seconds the pod may stay: 0 with an untolerated taint, else the shortest tolerationSeconds. None is for ever."""
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
