"""All controllers of one embedded cluster, started and stopped together."""

from collections.abc import Callable, Collection
from typing import Final

from forebay.embedded.api.store import Store
from forebay.embedded.controllers.cluster_state import ClusterState
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.disruption import DisruptionController
from forebay.embedded.controllers.jobs import JobController
from forebay.embedded.controllers.kubelet import Kubelet
from forebay.embedded.controllers.node_lifecycle import NodeLifecycle
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.replicasets import ReplicaSetController
from forebay.embedded.controllers.scheduler import Scheduler
from forebay.embedded.controllers.taint_eviction import TaintEviction

#: In the order in which they are called for a change.
CONTROLLERS: Final[dict[str, Callable[[ClusterState, Recorder], Controller]]] = {
    "nodes": NodeLifecycle,
    "evictions": TaintEviction,
    "scheduler": Scheduler,
    "kubelet": Kubelet,
    "jobs": JobController,
    "replicasets": ReplicaSetController,
    "disruption": DisruptionController,
}


class Controllers:
    """All controllers but those named in `without`, which a test plays itself (the scheduler, the kubelet).

    `events=False` writes no Events, which long simulations do not read.
    """

    def __init__(self, store: Store, *, without: Collection[str] = (), events: bool = True) -> None:
        unknown = sorted(set(without) - CONTROLLERS.keys())
        if unknown:
            raise ValueError(f"unknown controllers: {', '.join(unknown)}; known are: {', '.join(CONTROLLERS)}")
        recorder = Recorder(store, enabled=events)
        self._cluster = ClusterState(store, recorder)
        self._controllers: list[Controller] = [
            make(self._cluster, recorder) for name, make in CONTROLLERS.items() if name not in without
        ]

    def start(self) -> None:
        """Must be called on a running event loop, from which all controllers take the time."""
        self._cluster.start()
        for controller in self._controllers:
            controller.start()

    async def stop(self) -> None:
        self._cluster.stop()
        for controller in reversed(self._controllers):
            controller.stop()
