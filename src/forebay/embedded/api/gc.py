"""Dependents follow their owners: background, foreground and orphan deletion, as the garbage collector does them.

It acts inside the write that gives the reason, so that nothing has to be waited for; watchers still see every step.
"""

from forebay.embedded.api import metadata
from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json, object_key
from forebay.embedded.api.store import Store
from forebay.kube.wire import DELETED

Place = tuple[str, str, str]


class GarbageCollector:
    def __init__(self, store: Store) -> None:
        self._store = store
        #: By the uid of the owner.
        self._dependents: dict[str, dict[Place, None]] = {}
        self._living: dict[str, Place] = {}
        self._kinds: dict[str, ApiKind] = {}
        store.subscribe(None, self._on_change)

    def _on_change(self, change: StoredChange) -> None:
        meta, ended = change.new["metadata"], change.type == DELETED
        before = change.old["metadata"].get("ownerReferences", ()) if change.old else ()
        after = () if ended else meta.get("ownerReferences", ())
        place = (change.kind.storage, *object_key(change.new))
        if before != after:
            for owner in before:
                self._forget(owner["uid"], place)
            for owner in after:
                self._dependents.setdefault(owner["uid"], {})[place] = None

        if change.old is None:
            self._kinds[change.kind.storage] = change.kind
            self._living[meta["uid"]] = place
        elif ended:
            self._living.pop(meta["uid"], None)
            for dependent in tuple(self._dependents.get(meta["uid"], ())):
                self._reconsider(dependent)
        if before != after:
            self._reconsider(place)
            for owner in before:
                self._unblock(owner["uid"])
        if "deletionTimestamp" in meta and not ended:
            self._obey(change.kind, change.new)

    def _find(self, place: Place) -> Json | None:
        storage, namespace, name = place
        return self._store.find(self._kinds[storage], namespace, name)

    def _forget(self, uid: str, place: Place) -> None:
        dependents = self._dependents.get(uid)
        if dependents is not None:
            dependents.pop(place, None)
            if not dependents:
                del self._dependents[uid]

    def _obey(self, kind: ApiKind, owner: Json) -> None:
        """An owner is being deleted with a wish about its dependents."""
        uid = owner["metadata"]["uid"]
        finalizers = owner["metadata"].get("finalizers", ())
        if metadata.ORPHAN in finalizers:
            for dependent in tuple(self._dependents.get(uid, ())):
                self._drop_owners(dependent, {uid})
            self._finish(kind, owner, metadata.ORPHAN)
        elif metadata.FOREGROUND in finalizers:
            for dependent in tuple(self._dependents.get(uid, ())):
                self._reconsider(dependent)
            self._unblock(uid)

    def _unblock(self, uid: str) -> None:
        """A foreground deletion ends with the last dependent that blocks it."""
        place = self._living.get(uid)
        if place is None:
            return
        owner = self._find(place)
        if owner is None or metadata.FOREGROUND not in owner["metadata"].get("finalizers", ()):
            return
        if not any(self._blocks(dependent, uid) for dependent in self._dependents.get(uid, ())):
            self._finish(self._kinds[place[0]], owner, metadata.FOREGROUND)

    def _blocks(self, place: Place, uid: str) -> bool:
        dependent = self._find(place)
        owners = dependent["metadata"].get("ownerReferences", ()) if dependent else ()
        return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _finish(self, kind: ApiKind, owner: Json, finalizer: str) -> None:
        current = self._store.find(kind, *object_key(owner))
        if current is not None and current["metadata"]["uid"] == owner["metadata"]["uid"]:
            self._store.remove_finalizer(kind, current, finalizer)

    def _reconsider(self, place: Place) -> None:
        """Deletes a dependent none of whose owners remains; where one does, the others are struck from its list."""
        dependent = self._find(place)
        if dependent is None or "deletionTimestamp" in dependent["metadata"]:
            return
        owners = dependent["metadata"].get("ownerReferences", ())
        absent = {owner["uid"] for owner in owners if not self._exists(owner, place[1])}
        waiting = {owner["uid"] for owner in owners if owner["uid"] not in absent and self._waits(owner["uid"])}
        if not absent and not waiting:
            return
        if len(absent | waiting) < len({owner["uid"] for owner in owners}):
            self._drop_owners(place, absent | waiting)
            return
        storage, namespace, name = place
        deep = bool(waiting) and dependent["metadata"]["uid"] in self._dependents
        self._store.delete(self._kinds[storage], namespace, name, propagation="Foreground" if deep else "Background")

    def _exists(self, owner: Json, namespace: str) -> bool:
        kind = self._store.kinds.named(owner["apiVersion"], owner["kind"])
        if kind is None:
            # Nobody can say whether an object of an unknown kind exists: the dependent stays.
            return True
        place = self._living.get(owner["uid"])
        return place is not None and place[0] == kind.storage and place[1] in {"", namespace}

    def _waits(self, uid: str) -> bool:
        place = self._living.get(uid)
        owner = self._find(place) if place else None
        return owner is not None and metadata.FOREGROUND in owner["metadata"].get("finalizers", ())

    def _drop_owners(self, place: Place, uids: set[str]) -> None:
        dependent = self._find(place)
        if dependent is None:
            return
        meta = dependent["metadata"]
        kept = [owner for owner in meta.get("ownerReferences", ()) if owner["uid"] not in uids]
        self._store.update(self._kinds[place[0]], {**dependent, "metadata": {**meta, "ownerReferences": kept}})
