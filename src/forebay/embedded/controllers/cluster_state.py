"""Pods and nodes as all controllers see them: each pod decoded once per write, indexed by node and by owner."""

from collections.abc import Callable, Mapping

import msgspec

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.kinds import NODE_KIND, POD_KIND
from forebay.embedded.api.objects import Json, StoredKey
from forebay.embedded.api.store import Store
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.workqueue import OBJECT_ERRORS
from forebay.kube import nodes as kube_nodes
from forebay.kube.decoders import ADDED, DELETED, decoder_for
from forebay.model.nodes import Node

#: Called with the pod before and after a change; None where it did not exist yet or no longer does.
PodListener = Callable[["PodView | None", "PodView | None"], None]
NodeListener = Callable[[Json | None, Json | None], None]

ENDED = frozenset({"Succeeded", "Failed"})
_NO_OWNER = ("", "", "")
_COMPONENT = "controllermanager"
_nodes = decoder_for(kube_nodes.NODES)


class PodView(msgspec.Struct, frozen=True, gc=False):
    """A stored pod with the fields that every controller reads."""

    object: Json
    key: StoredKey
    uid: str
    node: str
    phase: str
    deleting: bool
    ready: bool
    #: Kind, name and uid of its controller, all empty where it has none.
    owner: tuple[str, str, str]

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def active(self) -> bool:
        """Counts as a replica: neither ended nor being deleted."""
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
    """The parts of a pod status that controllers read, which any client may have written wrongly."""

    phase: str = ""
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


def pod_view(pod: Json) -> PodView:
    """Raises ValueError for a pod that cannot be decoded."""
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
        next(((o["kind"], o["name"], o["uid"]) for o in owners if o.get("controller")), _NO_OWNER)
        if owners
        else _NO_OWNER,
    )


def node_of(node: Json) -> Node:
    """Raises ValueError for a node that cannot be decoded."""
    return _nodes.object(msgspec.json.encode(node))


class ClusterState:
    """Pods and nodes of the store, kept up to date; the controllers' shared informer.

    Listeners are called in the order in which they were added. An object that cannot be decoded is left out and gets a
    Warning event.
    """

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self.store = store
        self._recorder = recorder
        self.pods: dict[StoredKey, PodView] = {}
        self.by_node: dict[str, dict[StoredKey, PodView]] = {}
        self.by_owner: dict[str, dict[StoredKey, PodView]] = {}
        self.nodes: dict[str, Json] = {}
        self._pod_listeners: list[PodListener] = []
        self._node_listeners: list[NodeListener] = []
        self._unsubscribe: list[Callable[[], None]] = []

    def on_pods(self, listener: PodListener) -> None:
        self._pod_listeners.append(listener)

    def on_nodes(self, listener: NodeListener) -> None:
        self._node_listeners.append(listener)

    def start(self) -> None:
        """Calls the listeners for all that exists, nodes first, and from then on for every change."""
        self._unsubscribe = [self.store.subscribe(NODE_KIND, self._node), self.store.subscribe(POD_KIND, self._pod)]
        for kind, listener in ((NODE_KIND, self._node), (POD_KIND, self._pod)):
            for obj in self.store.list(kind):
                listener(StoredChange(self.store.version, ADDED, kind, None, obj))

    def stop(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []

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
            except OBJECT_ERRORS as error:
                self._recorder.warning(_COMPONENT, pod, "InvalidPod", str(error))
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        old = self.pods.get(key)
        if old is not None:
            _remove_from(self.by_node, old.node, key)
            _remove_from(self.by_owner, old.owner[2], key)
        if new is None:
            self.pods.pop(key, None)
        else:
            self.pods[key] = new
            _add_to(self.by_node, new.node, new)
            _add_to(self.by_owner, new.owner[2], new)
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
            except OBJECT_ERRORS as error:
                self._recorder.warning(_COMPONENT, node, "InvalidNode", str(error))
            else:
                new = self.nodes[name] = node
        if old is None and new is None:
            return
        for listener in self._node_listeners:
            listener(old, new)


def _add_to(index: dict[str, dict[StoredKey, PodView]], value: str, pod: PodView) -> None:
    if value:
        index.setdefault(value, {})[pod.key] = pod


def _remove_from(index: dict[str, dict[StoredKey, PodView]], value: str, key: StoredKey) -> None:
    if value:
        members = index[value]
        del members[key]
        if not members:
            del index[value]
