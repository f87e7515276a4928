"""The base of all controllers."""

from collections.abc import Callable
from typing import ClassVar

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json, StoredKey
from forebay.embedded.api.store import Subscriber
from forebay.embedded.controllers.cluster_state import ClusterState
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.workqueue import KeyT, WorkQueue
from forebay.kube.decoders import ADDED


class Controller:
    """A controller. `start` is called after its listeners have been called for all existing pods and nodes."""

    COMPONENT: ClassVar[str]

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._recorder = recorder
        self._on_stop: list[Callable[[], None]] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        for stop in self._on_stop:
            stop()

    def _queue_for(
        self, work: Callable[[KeyT], None], find: Callable[[KeyT], Json | None], reason: str = "FailedSync"
    ) -> WorkQueue[KeyT]:
        """A queue that reports an error of `work` as a Warning event on the object that `find` returns for the key."""

        def failed(key: KeyT, error: Exception) -> None:
            obj = find(key)
            if obj is not None:
                self._recorder.warning(self.COMPONENT, obj, reason, str(error))

        queue = WorkQueue(work, failed)
        self._on_stop.append(queue.stop)
        return queue

    def _follow(self, kind: ApiKind, listener: Subscriber) -> None:
        """Calls the listener for all objects of a kind, and from then on for every change of one."""
        self._on_stop.append(self._store.subscribe(kind, listener))
        for obj in self._store.list(kind):
            listener(StoredChange(self._store.version, ADDED, kind, None, obj))

    def _pod_object(self, key: StoredKey) -> Json | None:
        pod = self._cluster.pods.get(key)
        return None if pod is None else pod.object
