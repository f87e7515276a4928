"""Node health: the Ready condition, the taints that follow from it, and pods whose node is unreachable or deleted.

Setting Ready on a registered node is the kubelet's part; the rest is the node lifecycle and pod GC controllers.
"""

import asyncio

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.conditions import disrupted, find_condition, pod_condition, with_status_condition
from forebay.embedded.api.kinds import LEASE_KIND, NODE_KIND, POD_KIND
from forebay.embedded.api.objects import Json
from forebay.embedded.controllers.cluster_state import ClusterState, PodView
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.nodes import READY_AFTER, annotation_seconds, kubelet_alive
from forebay.embedded.controllers.recorder import Recorder
from forebay.kube.decoders import DELETED

_LEASE_NAMESPACE = "kube-node-lease"
#: Seconds without a heartbeat until Ready is Unknown: node-monitor-grace-period, and half its period of 5 s.
_GRACE_PERIOD = 52.5
#: Seconds between the deletion of a node and the deletion of its pods (pod GC's quarantine).
_QUARANTINE = 40.0

#: Seconds for which a node keeps its not-ready or unreachable taint after it has become Ready. On a real control plane
#: the taint goes in a write of its own, 0.1 s to 3.6 s later.
TAINT_LAG = 0.5

_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_CORDONED = "node.kubernetes.io/unschedulable"
_MANAGED_TAINTS = frozenset({_NOT_READY, _UNREACHABLE, _CORDONED})


class NodeLifecycle(Controller):
    COMPONENT = "node-controller"

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        self._work = self._queue_for(self._sync, cluster.nodes.get)
        self._orphaned_nodes = self._queue_for(self._delete_orphaned_pods, cluster.nodes.get)
        #: Loop time of each node's last heartbeat.
        self._heartbeats: dict[str, float] = {}
        self._registered: dict[str, float] = {}
        #: Loop time at which each Ready node was first seen to be Ready.
        self._ready_since: dict[str, float] = {}
        cluster.on_nodes(self._node_changed)
        cluster.on_pods(self._pod_changed)

    def start(self) -> None:
        self._follow(LEASE_KIND, self._lease_changed)

    def _node_changed(self, old: Json | None, new: Json | None) -> None:
        if new is None:
            assert old is not None
            name = old["metadata"]["name"]
            self._heartbeats.pop(name, None)
            self._registered.pop(name, None)
            self._ready_since.pop(name, None)
            self._orphaned_nodes.add(name, _QUARANTINE)
            return
        name = new["metadata"]["name"]
        self._registered.setdefault(name, asyncio.get_running_loop().time())
        if old is None or kubelet_alive(old) or _heartbeat(old) != _heartbeat(new):
            self._heartbeats[name] = asyncio.get_running_loop().time()
        self._work.add(name)

    def _lease_changed(self, change: StoredChange) -> None:
        meta = change.new["metadata"]
        if change.type != DELETED and meta["namespace"] == _LEASE_NAMESPACE and meta["name"] in self._cluster.nodes:
            self._heartbeats[meta["name"]] = asyncio.get_running_loop().time()

    def _pod_changed(self, _old: PodView | None, new: PodView | None) -> None:
        if new is not None and new.node and new.node not in self._cluster.nodes:
            self._orphaned_nodes.add(new.node, _QUARANTINE)

    def _sync(self, name: str) -> None:
        node = self._cluster.nodes.get(name)
        if node is None:
            return
        status = node.get("status") or {}
        ready = find_condition(status, "Ready")
        if kubelet_alive(node):
            wait = self._seconds_until_ready(node) if ready is None else 0.0
            if wait > 0:
                self._work.add(name, wait)
            elif ready is None or ready["status"] == "Unknown":
                node = self._write_ready(node, "True", "KubeletReady", "kubelet is posting ready status")
        elif ready is None or ready["status"] != "Unknown":
            silent_for = asyncio.get_running_loop().time() - self._heartbeats[name]
            if silent_for < _GRACE_PERIOD:
                self._work.add(name, _GRACE_PERIOD - silent_for)
            else:
                message = "Kubelet stopped posting node status." if ready else "Kubelet never posted node status."
                reason = "NodeStatusUnknown" if ready else "NodeStatusNeverUpdated"
                node = self._write_ready(node, "Unknown", reason, message)
                self._recorder.normal(self.COMPONENT, node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        self._sync_taints(node)
        after = find_condition(node.get("status") or {}, "Ready")
        if after is not None and after["status"] != "True":
            self._mark_pods_unready(name)

    def _seconds_until_ready(self, node: Json) -> float:
        delay = (node["metadata"].get("annotations") or {}).get(READY_AFTER)
        if delay is None:
            return 0.0
        passed = asyncio.get_running_loop().time() - self._registered[node["metadata"]["name"]]
        return annotation_seconds(delay, READY_AFTER) - passed

    def _write_ready(self, node: Json, ready: str, reason: str, message: str) -> Json:
        now = self._store.timestamp()
        ready_condition = {
            "type": "Ready",
            "status": ready,
            "lastHeartbeatTime": now,
            "reason": reason,
            "message": message,
        }
        status = with_status_condition(node.get("status") or {}, ready_condition, now)
        return self._store.update(NODE_KIND, {**node, "status": status}, subresource="status")

    def _sync_taints(self, node: Json) -> None:
        spec = node.get("spec") or {}
        before = spec.get("taints") or []
        ready = (find_condition(node.get("status") or {}, "Ready") or {}).get("status")
        wanted = [(_CORDONED, "NoSchedule")] if spec.get("unschedulable") else []
        have = [(taint["key"], taint.get("effect")) for taint in before if taint["key"] in _MANAGED_TAINTS]
        if ready != "True":
            key = _UNREACHABLE if ready == "Unknown" else _NOT_READY
            wanted.append((key, "NoSchedule"))
            if ready is not None:
                wanted.append((key, "NoExecute"))
            self._ready_since.pop(node["metadata"]["name"], None)
        elif (lag := self._taint_lag(node["metadata"]["name"])) > 0 and set(have) - set(wanted):
            wanted += [each for each in have if each[0] != _CORDONED]
            self._work.add(node["metadata"]["name"], lag)
        if set(have) == set(wanted):
            return
        kept = [t for t in before if t["key"] not in _MANAGED_TAINTS or (t["key"], t.get("effect")) in wanted]
        now = self._store.timestamp()
        added = [{"key": k, "effect": e, "timeAdded": now} for k, e in wanted if (k, e) not in have]
        self._store.update(NODE_KIND, {**node, "spec": {**spec, "taints": [*kept, *added]}})

    def _taint_lag(self, name: str) -> float:
        """Seconds for which the taints of a node that is Ready now still stay."""
        now = asyncio.get_running_loop().time()
        return self._ready_since.setdefault(name, now) + TAINT_LAG - now

    def _mark_pods_unready(self, name: str) -> None:
        for pod in tuple(self._cluster.by_node.get(name, {}).values()):
            if pod.ready:
                unready = pod_condition("Ready", "False")
                self._cluster.write_status(pod, with_status_condition(pod.status, unready, self._store.timestamp()))

    def _delete_orphaned_pods(self, name: str) -> None:
        if name in self._cluster.nodes:
            return
        now, message = self._store.timestamp(), "PodGC: node no longer exists"
        for pod in tuple(self._cluster.by_node.get(name, {}).values()):
            if not pod.ended:
                status = {**pod.status, "phase": "Failed"}
                self._cluster.write_status(pod, disrupted(status, now, "DeletionByPodGC", message))
            if pod.key in self._cluster.pods:
                self._store.delete(POD_KIND, *pod.key, grace=0, preconditions={"uid": pod.uid})


def _heartbeat(node: Json) -> object:
    return (find_condition(node.get("status") or {}, "Ready") or {}).get("lastHeartbeatTime")
