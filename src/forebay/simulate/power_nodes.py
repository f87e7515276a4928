"""`EmbeddedNodes`: the simulated machines' nodes in the embedded cluster."""

from typing import Final

from forebay.embedded.api.conditions import with_status_condition
from forebay.embedded.api.kinds import NODE_KIND, POD_KIND
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store
from forebay.embedded.controllers import register_node
from forebay.embedded.controllers.nodes import KUBELET
from forebay.simulate.power import Powered

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_MIRROR: Final = "kubernetes.io/config.mirror"


class EmbeddedNodes:
    """Nodes of simulated machines. The Node of a powered-off machine stays, NotReady; with `keep=False` it is deleted.

    `abrupt`: a machine goes off without reporting NotReady, so its node stays Ready until its heartbeat is missed.
    """

    def __init__(self, store: Store, *, keep: bool = True, abrupt: bool = False) -> None:
        self._store = store
        self._keep = keep
        self._abrupt = abrupt

    def node_ready(self, machine: Powered) -> None:
        node = self._store.find(NODE_KIND, None, machine.name)
        gpus = 0 if machine.driver else machine.gpus
        if node is None:
            register_node(
                self._store,
                machine.name,
                allocatable={**machine.allocatable, machine.gpu_resource: max(gpus - machine.failed_gpus, 0)},
                capacity={**machine.allocatable, machine.gpu_resource: gpus},
                labels=machine.labels,
                taints=machine.taints,
            )
            return
        node = self._with_kubelet(node, None)
        node = self._with_gpus(node, machine, gpus)
        self._with_ready(node, "True", "KubeletReady", "kubelet is posting ready status")

    def gpus_allocatable(self, machine: Powered) -> None:
        node = self._store.find(NODE_KIND, None, machine.name)
        if node is not None:
            self._with_gpus(node, machine, machine.gpus)

    def node_stopped(self, machine: Powered) -> None:
        node = self._store.find(NODE_KIND, None, machine.name)
        if node is None:
            return
        if not self._keep:
            self._store.delete(NODE_KIND, None, machine.name)
            return
        node = self._with_kubelet(node, "dead")
        if not self._abrupt:
            self._with_ready(node, "False", "KubeletNotReady", "node is shutting down")

    def pods(self, machine: Powered) -> tuple[str, ...]:
        return tuple(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in self._store.list(POD_KIND)
            if pod["spec"].get("nodeName") == machine.name and _counts(pod)
        )

    def _with_kubelet(self, node: Json, kubelet: str | None) -> Json:
        meta = node["metadata"]
        annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key != KUBELET}
        if kubelet is not None:
            annotations[KUBELET] = kubelet
        return self._store.update(NODE_KIND, {**node, "metadata": {**meta, "annotations": annotations}})

    def _with_gpus(self, node: Json, machine: Powered, gpus: int) -> Json:
        status = node.get("status") or {}
        counts = {"capacity": gpus, "allocatable": max(gpus - machine.failed_gpus, 0)}
        amounts = {
            field: {**(status.get(field) or {}), machine.gpu_resource: str(count)} for field, count in counts.items()
        }
        return self._store.update(NODE_KIND, {**node, "status": {**status, **amounts}}, subresource="status")

    def _with_ready(self, node: Json, status: str, reason: str, message: str) -> Json:
        # A subscriber may have changed the node in the meantime, its taints for example.
        node = self._store.get(NODE_KIND, None, node["metadata"]["name"])
        moment = self._store.timestamp()
        ready = {"type": "Ready", "status": status, "lastHeartbeatTime": moment, "reason": reason, "message": message}
        changed = with_status_condition(node.get("status") or {}, ready, moment)
        return self._store.update(NODE_KIND, {**node, "status": changed}, subresource="status")


def _counts(pod: Json) -> bool:
    meta = pod["metadata"]
    owned_by_daemon = any(owner["kind"] == "DaemonSet" for owner in meta.get("ownerReferences") or ())
    ended = (pod.get("status") or {}).get("phase") in _ENDED
    return not (owned_by_daemon or ended or _MIRROR in (meta.get("annotations") or {}))
