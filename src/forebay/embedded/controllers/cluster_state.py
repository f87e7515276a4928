"""What the controllers see in common: each pod looked at once per write, found by node and by owner."""

from collections.abc import Callable, Mapping

import msgspec

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.kinds import NODE_KIND, POD_KIND
from forebay.embedded.api.objects import Json, ObjectKey
from forebay.embedded.api.store import Store
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.workqueue import OBJECT_ERRORS
from forebay.kube import nodes as kube_nodes
from forebay.kube.wire import ADDED, DELETED, wire_for
from forebay.model.nodes import Node

#: The pod before and after; None where it did not exist yet or no longer does.
PodListener = Callable[["PodView | None", "PodView | None"], None]
NodeListener = Callable[[Json | None, Json | None], None]

ENDED = frozenset({"Succeeded", "Failed"})
_NOBODY = ("", "", "")
_COMPONENT = "controllermanager"
_nodes = wire_for(kube_nodes.NODES)


class PodView(msgspec.Struct, frozen=True, gc=False):
    """A stored pod and what every controller asks of it."""

    object: Json
    key: ObjectKey
    uid: str
    node: str
    phase: str
    deleting: bool
    ready: bool
    #: Its controller: kind, name and uid, all empty where it has none.
    owner: tuple[str, str, str]

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def active(self) -> bool:
        """Counts as a replica: neither ended nor on its way out."""
        return not self.deleting and self.phase not in ENDED

    @property
    def labels(self) -> Mapping[str, str]:
        return self.object["metadata"].get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.object["metadata"].get("annotations") or {}

    @property
    def finalizers(self) -> list[str]:
        return self.object["metadata"].get("finalizers") or []

    @property
    def spec(self) -> Json:
        spec: Json = self.object["spec"]
        return spec

    @property
    def status(self) -> Json:
        return self.object.get("status") or {}


class _Condition(msgspec.Struct, gc=False):
    type: str
    status: str


class _ContainerStatus(msgspec.Struct, gc=False, rename="camel"):
    name: str
    restart_count: int = 0
    state: dict[str, Json] | None = None


class _Status(msgspec.Struct, gc=False, rename="camel"):
    """The parts of a status that anybody may write and the controllers read."""

    phase: str = ""
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


def pod_view(pod: Json) -> PodView:
    """Raises ValueError for a pod of which no sense can be made."""
    meta = pod["metadata"]
    status = msgspec.convert(pod.get("status") or {}, _Status)
    owners = meta.get("ownerReferences")
    return PodView(
        pod,
        (meta["namespace"], meta["name"]),
        meta["uid"],
        pod["spec"].get("nodeName") or "",
        status.phase or "Pending",
        "deletionTimestamp" in meta,
        any(c.type == "Ready" and c.status == "True" for c in status.conditions or ()),
        next(((o["kind"], o["name"], o["uid"]) for o in owners if o.get("controller")), _NOBODY) if owners else _NOBODY,
    )


def node_of(node: Json) -> Node:
    """Raises ValueError for a node of which no sense can be made."""
    return _nodes.object(msgspec.json.encode(node))


class ClusterState:
    """Follows pods and nodes in the store. Listeners are called in the order in which they came.

    What cannot be read is left out, and an event on it says so.
    """

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self.store = store
        self._recorder = recorder
        self.pods: dict[ObjectKey, PodView] = {}
        self.by_node: dict[str, dict[ObjectKey, PodView]] = {}
        self.by_owner: dict[str, dict[ObjectKey, PodView]] = {}
        self.nodes: dict[str, Json] = {}
        self._pod_listeners: list[PodListener] = []
        self._node_listeners: list[NodeListener] = []
        self._ends: list[Callable[[], None]] = []

    def on_pods(self, listener: PodListener) -> None:
        self._pod_listeners.append(listener)

    def on_nodes(self, listener: NodeListener) -> None:
        self._node_listeners.append(listener)

    def start(self) -> None:
        """Shows the listeners what is there, nodes first, then all that changes."""
        self._ends = [self.store.subscribe(NODE_KIND, self._node), self.store.subscribe(POD_KIND, self._pod)]
        for kind, listener in ((NODE_KIND, self._node), (POD_KIND, self._pod)):
            for obj in self.store.list(kind):
                listener(StoredChange(self.store.version, ADDED, kind, None, obj))

    def stop(self) -> None:
        for end in self._ends:
            end()
        self._ends = []

    def owned(self, owner: Json) -> tuple[PodView, ...]:
        """The pods that an object controls."""
        return tuple(self.by_owner.get(owner["metadata"]["uid"], {}).values())

    def write_status(self, pod: PodView, status: Json) -> None:
        self.store.update(POD_KIND, {**pod.object, "status": status}, subresource="status")

    def _pod(self, change: StoredChange) -> None:
        pod, new = change.new, None
        if change.type != DELETED:
            try:
                new = pod_view(pod)
            except OBJECT_ERRORS as trouble:
                self._recorder.warning(_COMPONENT, pod, "InvalidPod", str(trouble))
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        old = self.pods.get(key)
        if old is not None:
            _leave(self.by_node, old.node, key)
            _leave(self.by_owner, old.owner[2], key)
        if new is None:
            self.pods.pop(key, None)
        else:
            self.pods[key] = new
            _enter(self.by_node, new.node, new)
            _enter(self.by_owner, new.owner[2], new)
        for listener in self._pod_listeners:
            listener(old, new)

    def _node(self, change: StoredChange) -> None:
        node = change.new
        name = node["metadata"]["name"]
        old = self.nodes.pop(name, None)
        new = None
        if change.type != DELETED:
            try:
                node_of(node)
            except OBJECT_ERRORS as trouble:
                self._recorder.warning(_COMPONENT, node, "InvalidNode", str(trouble))
            else:
                new = self.nodes[name] = node
        if old is None and new is None:
            return
        for listener in self._node_listeners:
            listener(old, new)


def _enter(index: dict[str, dict[ObjectKey, PodView]], value: str, pod: PodView) -> None:
    if value:
        index.setdefault(value, {})[pod.key] = pod


def _leave(index: dict[str, dict[ObjectKey, PodView]], value: str, key: ObjectKey) -> None:
    if value:
        members = index[value]
        del members[key]
        if not members:
            del index[value]
