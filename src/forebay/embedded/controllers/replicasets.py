"""The ReplicaSet controller: keeps as many active pods as a ReplicaSet asks for."""

import msgspec

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.conditions import with_status_condition
from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import POD_KIND, REPLICA_SET_KIND
from forebay.embedded.api.objects import Json, StoredKey
from forebay.embedded.controllers.cluster_state import ClusterState, PodView
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.templates import pod_from

_MAX_PER_SYNC = 500
_PHASES = ("Pending", "Unknown", "Running")


class _ReplicaSetSpec(msgspec.Struct, rename="camel", frozen=True):
    template: Json
    replicas: int = 1


def deletion_order(pod: PodView) -> tuple[object, ...]:
    """Sort key of the pods to delete first: unbound, pending, not ready, low pod-deletion-cost, then the youngest."""
    cost = pod.annotations.get("controller.kubernetes.io/pod-deletion-cost", "0")
    ready: Json = next((c for c in pod.status.get("conditions") or () if c["type"] == "Ready"), {})
    since = ready.get("lastTransitionTime", "") if pod.ready else ""
    age = pod.object["metadata"]["creationTimestamp"]
    return (
        bool(pod.node),
        _PHASES.index(pod.phase) if pod.phase in _PHASES else 1,
        pod.ready,
        int(cost) if cost.lstrip("-").isdecimal() else 0,
        _LaterFirst(since),
        _LaterFirst(age),
        pod.uid,
    )


class _LaterFirst(str):
    """A timestamp that sorts later ones first."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


class ReplicaSetController(Controller):
    """A ReplicaSet's pods are those with its owner reference; pods that only match its selector are not adopted."""

    COMPONENT = "replicaset-controller"

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        self._work = self._queue_for(self._sync, lambda key: self._store.find(REPLICA_SET_KIND, *key))
        cluster.on_pods(self._pod_changed)

    def start(self) -> None:
        self._follow(REPLICA_SET_KIND, self._set_changed)

    def _set_changed(self, change: StoredChange) -> None:
        old, meta = change.old, change.new["metadata"]
        # Status writes of this controller do not change the generation.
        if old is None or old["metadata"].get("generation") != meta.get("generation"):
            self._work.add((meta["namespace"], meta["name"]))

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        for pod in (old, new):
            if pod is not None and pod.owner[0] == REPLICA_SET_KIND.kind:
                self._work.add((pod.key[0], pod.owner[1]))

    def _sync(self, key: StoredKey) -> None:
        replica_set = self._store.find(REPLICA_SET_KIND, *key)
        if replica_set is None:
            return
        spec = msgspec.convert(replica_set["spec"], _ReplicaSetSpec)
        uid = replica_set["metadata"]["uid"]
        create_error = None
        if "deletionTimestamp" not in replica_set["metadata"]:
            create_error = self._scale(key, replica_set, spec)
        pods = self._cluster.owned(replica_set)
        active = [pod for pod in pods if pod.active]
        wanted = ((spec.template.get("metadata") or {}).get("labels") or {}).items()
        ready = sum(pod.ready for pod in active)
        counts = {
            "fullyLabeledReplicas": sum(wanted <= pod.labels.items() for pod in active),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        status: Json = {
            "replicas": len(active),
            **{name: count for name, count in counts.items() if count},
            "terminatingReplicas": sum(pod.deleting and not pod.ended for pod in pods),
            "observedGeneration": replica_set["metadata"]["generation"],
        }
        if create_error is not None:
            failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": create_error}
            status = with_status_condition(status, failure, self._store.timestamp())
        current = self._store.find(REPLICA_SET_KIND, *key)
        if current is not None and current["metadata"]["uid"] == uid and status != current.get("status"):
            self._store.update(REPLICA_SET_KIND, {**current, "status": status}, subresource="status")

    def _scale(self, key: StoredKey, replica_set: Json, spec: _ReplicaSetSpec) -> str | None:
        """Creates and deletes pods; returns the error of a creation that failed."""
        active = [pod for pod in self._cluster.owned(replica_set) if pod.active]
        missing = spec.replicas - len(active)
        if abs(missing) > _MAX_PER_SYNC:
            self._work.add(key)
        for _ in range(min(missing, _MAX_PER_SYNC)):
            try:
                pod = self._store.create(POD_KIND, pod_from(replica_set, spec.template, f"{key[1]}-"))
            except ApiFailure as failure:
                self._recorder.warning(self.COMPONENT, replica_set, "FailedCreate", f"Error creating: {failure}")
                self._work.retry(key)
                return str(failure)
            self._recorder.normal(
                self.COMPONENT, replica_set, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}"
            )
        for view in sorted(active, key=deletion_order)[: max(0, min(-missing, _MAX_PER_SYNC))]:
            self._store.delete(POD_KIND, *view.key, preconditions={"uid": view.uid})
            self._recorder.normal(self.COMPONENT, replica_set, "SuccessfulDelete", f"Deleted pod: {view.key[1]}")
        return None
