"""Namespaces: the objects that a new one gets, and the deletion of its content before it goes."""

from collections.abc import Sequence

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.failures import FieldCause, forbidden
from forebay.embedded.api.kinds import CONFIG_MAP_KIND, NAMESPACE_KIND, SERVICE_ACCOUNT_KIND, ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.rules import KindRules
from forebay.embedded.api.store import Store
from forebay.kube.decoders import ADDED, DELETED

_FINALIZER = "kubernetes"
_PERMANENT = frozenset({"default", "kube-system", "kube-public"})


class NamespaceRules(KindRules):
    def create(self, store: Store, kind: ApiKind, obj: Json) -> Sequence[FieldCause]:  # noqa: ARG002
        labels = obj["metadata"].get("labels") or {}
        obj["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": obj["metadata"]["name"]}
        obj["spec"] = {"finalizers": [_FINALIZER]}
        obj["status"] = {"phase": "Active"}
        return ()

    def update(
        self,
        store: Store,  # noqa: ARG002
        kind: ApiKind,  # noqa: ARG002
        old: Json,
        new: Json,
        subresource: str | None,
    ) -> Sequence[FieldCause]:
        if subresource != "finalize":
            new["spec"] = old["spec"]
        return ()

    def deleting(self, store: Store, obj: Json) -> None:  # noqa: ARG002
        name = obj["metadata"]["name"]
        if name in _PERMANENT:
            raise forbidden(NAMESPACE_KIND, name, "this namespace may not be deleted")
        obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}

    def held(self, obj: Json) -> bool:
        return super().held(obj) or bool(obj["spec"].get("finalizers"))


class NamespaceLifecycle:
    """Creates the default objects of a new namespace, and deletes all objects of one that is being deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._terminating: set[str] = set()
        store.subscribe(None, self._on_change)

    def _on_change(self, change: StoredChange) -> None:
        if change.kind.storage != NAMESPACE_KIND.storage:
            if change.type == DELETED and (namespace := change.new["metadata"].get("namespace")) in self._terminating:
                self._finish(namespace)
            return
        name = change.new["metadata"]["name"]
        if change.type == ADDED:
            self._store.create(SERVICE_ACCOUNT_KIND, {"metadata": {"name": "default", "namespace": name}})
            root = {"metadata": {"name": "kube-root-ca.crt", "namespace": name}, "data": {"ca.crt": ""}}
            self._store.create(CONFIG_MAP_KIND, root)
        elif change.type == DELETED:
            self._terminating.discard(name)
        elif "deletionTimestamp" in change.new["metadata"] and name not in self._terminating:
            self._terminating.add(name)
            for kind in self._namespaced_kinds():
                for obj in self._store.list(kind, name):
                    self._store.delete(kind, name, obj["metadata"]["name"], propagation="Background")
            self._finish(name)

    def _namespaced_kinds(self) -> list[ApiKind]:
        # Kinds that share a storage key have the same objects: one of them is enough.
        return list({kind.storage: kind for kind in self._store.kinds if kind.namespaced}.values())

    def _finish(self, name: str) -> None:
        namespace = self._store.find(NAMESPACE_KIND, None, name)
        if namespace is None or not all(self._store.is_empty(kind, name) for kind in self._namespaced_kinds()):
            return
        self._store.update(NAMESPACE_KIND, {**namespace, "spec": {"finalizers": []}}, subresource="finalize")
