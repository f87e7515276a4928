"""Garbage collection of dependents: background, foreground and orphan deletion.

The collector acts inside the write that causes it, so no test has to wait for it; watchers still see every step.
"""

from forebay.embedded.api import metadata
from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json, object_key
from forebay.embedded.api.store import Store
from forebay.kube.decoders import DELETED

_Location = tuple[str, str, str]


class GarbageCollector:
    def __init__(self, store: Store) -> None:
        self._store = store
        #: Dependents, by the uid of their owner.
        self._dependents: dict[str, dict[_Location, None]] = {}
        self._locations: dict[str, _Location] = {}
        self._kinds: dict[str, ApiKind] = {}
        store.subscribe(None, self._on_change)

    def _on_change(self, change: StoredChange) -> None:
        meta, ended = change.new["metadata"], change.type == DELETED
        before = change.old["metadata"].get("ownerReferences", ()) if change.old else ()
        after = () if ended else meta.get("ownerReferences", ())
        location = (change.kind.storage, *object_key(change.new))
        if before != after:
            for owner in before:
                self._remove_dependent(owner["uid"], location)
            for owner in after:
                self._dependents.setdefault(owner["uid"], {})[location] = None

        if change.old is None:
            self._kinds[change.kind.storage] = change.kind
            self._locations[meta["uid"]] = location
        elif ended:
            self._locations.pop(meta["uid"], None)
            for dependent in tuple(self._dependents.get(meta["uid"], ())):
                self._collect(dependent)
        if before != after:
            self._collect(location)
            for owner in before:
                self._unblock(owner["uid"])
        if "deletionTimestamp" in meta and not ended:
            self._apply_deletion_policy(change.kind, change.new)

    def _find(self, location: _Location) -> Json | None:
        storage, namespace, name = location
        return self._store.find(self._kinds[storage], namespace, name)

    def _remove_dependent(self, uid: str, location: _Location) -> None:
        dependents = self._dependents.get(uid)
        if dependents is not None:
            dependents.pop(location, None)
            if not dependents:
                del self._dependents[uid]

    def _apply_deletion_policy(self, kind: ApiKind, owner: Json) -> None:
        """Orphans or deletes the dependents of an owner that is being deleted with that finalizer."""
        uid = owner["metadata"]["uid"]
        finalizers = owner["metadata"].get("finalizers", ())
        if metadata.ORPHAN in finalizers:
            for dependent in tuple(self._dependents.get(uid, ())):
                self._drop_owners(dependent, {uid})
            self._finish(kind, owner, metadata.ORPHAN)
        elif metadata.FOREGROUND in finalizers:
            for dependent in tuple(self._dependents.get(uid, ())):
                self._collect(dependent)
            self._unblock(uid)

    def _unblock(self, uid: str) -> None:
        """Finishes a foreground deletion once no dependent blocks it."""
        location = self._locations.get(uid)
        if location is None:
            return
        owner = self._find(location)
        if owner is None or metadata.FOREGROUND not in owner["metadata"].get("finalizers", ()):
            return
        if not any(self._blocks(dependent, uid) for dependent in self._dependents.get(uid, ())):
            self._finish(self._kinds[location[0]], owner, metadata.FOREGROUND)

    def _blocks(self, location: _Location, uid: str) -> bool:
        dependent = self._find(location)
        owners = dependent["metadata"].get("ownerReferences", ()) if dependent else ()
        return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _finish(self, kind: ApiKind, owner: Json, finalizer: str) -> None:
        current = self._store.find(kind, *object_key(owner))
        if current is not None and current["metadata"]["uid"] == owner["metadata"]["uid"]:
            self._store.remove_finalizer(kind, current, finalizer)

    def _collect(self, location: _Location) -> None:
        """Deletes a dependent without a remaining owner; where one remains, removes the references to the others."""
        dependent = self._find(location)
        if dependent is None or "deletionTimestamp" in dependent["metadata"]:
            return
        owners = dependent["metadata"].get("ownerReferences", ())
        absent = {owner["uid"] for owner in owners if not self._exists(owner, location[1])}
        waiting = {
            owner["uid"]
            for owner in owners
            if owner["uid"] not in absent and self._is_deleted_in_foreground(owner["uid"])
        }
        if not absent and not waiting:
            return
        if len(absent | waiting) < len({owner["uid"] for owner in owners}):
            self._drop_owners(location, absent | waiting)
            return
        storage, namespace, name = location
        cascade = bool(waiting) and dependent["metadata"]["uid"] in self._dependents
        self._store.delete(self._kinds[storage], namespace, name, propagation="Foreground" if cascade else "Background")

    def _exists(self, owner: Json, namespace: str) -> bool:
        kind = self._store.kinds.named(owner["apiVersion"], owner["kind"])
        if kind is None:
            # Whether an object of an unknown kind exists cannot be told, so the dependent stays.
            return True
        location = self._locations.get(owner["uid"])
        return location is not None and location[0] == kind.storage and location[1] in {"", namespace}

    def _is_deleted_in_foreground(self, uid: str) -> bool:
        location = self._locations.get(uid)
        owner = self._find(location) if location else None
        return owner is not None and metadata.FOREGROUND in owner["metadata"].get("finalizers", ())

    def _drop_owners(self, location: _Location, uids: set[str]) -> None:
        dependent = self._find(location)
        if dependent is None:
            return
        meta = dependent["metadata"]
        kept = [owner for owner in meta.get("ownerReferences", ()) if owner["uid"] not in uids]
        self._store.update(self._kinds[location[0]], {**dependent, "metadata": {**meta, "ownerReferences": kept}})
