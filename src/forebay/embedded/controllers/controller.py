"""What all controllers have in common."""

from collections.abc import Callable
from typing import ClassVar

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json, ObjectKey
from forebay.embedded.api.store import Subscriber
from forebay.embedded.controllers.cluster_state import ClusterState
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.workqueue import KeyT, WorkQueue
from forebay.kube.wire import ADDED


class Controller:
    """Sees pods and nodes through the cluster, which shows those that exist before `start` is called."""

    COMPONENT: ClassVar[str]

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._recorder = recorder
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        for end in self._ends:
            end()

    def _queue_for(
        self, work: Callable[[KeyT], None], find: Callable[[KeyT], Json | None], reason: str = "FailedSync"
    ) -> WorkQueue[KeyT]:
        """What goes wrong with a key becomes an event on the object that `find` has for it."""

        def failed(key: KeyT, error: Exception) -> None:
            obj = find(key)
            if obj is not None:
                self._recorder.warning(self.COMPONENT, obj, reason, str(error))

        queue = WorkQueue(work, failed)
        self._ends.append(queue.stop)
        return queue

    def _follow(self, kind: ApiKind, listener: Subscriber) -> None:
        """Shows the listener all objects of a kind, and then what happens to them."""
        self._ends.append(self._store.subscribe(kind, listener))
        for obj in self._store.list(kind):
            listener(StoredChange(self._store.version, ADDED, kind, None, obj))

    def _pod_object(self, key: ObjectKey) -> Json | None:
        pod = self._cluster.pods.get(key)
        return None if pod is None else pod.object
