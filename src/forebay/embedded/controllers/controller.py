"""What all controllers have in common."""

from collections.abc import Callable
from typing import ClassVar

from forebay.embedded.api.kinds import Kind
from forebay.embedded.api.store import ADDED, Json, StoredChange, Subscriber
from forebay.embedded.controllers.cluster import Cluster, Key
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.worklist import K, Worklist


class Controller:
    """Sees pods and nodes through the cluster, which shows those that exist before `start` is called."""

    COMPONENT: ClassVar[str]

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._recorder = recorder
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        for end in self._ends:
            end()

    def _worklist(
        self, work: Callable[[K], None], find: Callable[[K], Json | None], reason: str = "FailedSync"
    ) -> Worklist[K]:
        """What goes wrong with a key becomes an event on the object that `find` has for it."""

        def failed(key: K, error: Exception) -> None:
            obj = find(key)
            if obj is not None:
                self._recorder.warning(self.COMPONENT, obj, reason, str(error))

        worklist = Worklist(work, failed)
        self._ends.append(worklist.stop)
        return worklist

    def _follow(self, kind: Kind, listener: Subscriber) -> None:
        """Shows the listener all objects of a kind, and then what happens to them."""
        self._ends.append(self._store.subscribe(kind, listener))
        for obj in self._store.list(kind):
            listener(StoredChange(self._store.version, ADDED, kind, None, obj))

    def _pod_object(self, key: Key) -> Json | None:
        pod = self._cluster.pods.get(key)
        return None if pod is None else pod.object
