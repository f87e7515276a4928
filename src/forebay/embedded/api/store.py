"""The object store: objects by kind, one counter of resource versions, and the history that watches resume from.

Everything is synchronous and single-threaded. Stored objects are shared with readers, subscribers and watchers and are
never changed: a write replaces the whole object. A write copies what it is given, so the caller keeps its own object.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from forebay.embedded.api import failures, metadata
from forebay.embedded.api.collection import Collection, StoredChange
from forebay.embedded.api.kinds import NAMESPACE_KIND, ApiKind, KindRegistry
from forebay.embedded.api.objects import Json, deep_copy
from forebay.embedded.api.rules import DEFAULT_RULES, KindRules
from forebay.kube.decoders import ADDED, DELETED, MODIFIED
from forebay.net.clock import now

Subscriber = Callable[[StoredChange], None]


class Store:
    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = now,
        seed: int | None = None,
        rules: Mapping[str, KindRules] | None = None,
        history: int = 5_000,
    ) -> None:
        self.clock = clock
        self.kinds = KindRegistry()
        self.rules: dict[str, KindRules] = dict(rules or {})
        self.random = random.Random(seed)  # noqa: S311 (names and uids, reproducible on purpose)
        self._version = 1
        self._last_timestamp: tuple[datetime | None, str] = (None, "")
        self._collections: dict[str, Collection] = {}
        self._history = history
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._undelivered: deque[tuple[Subscriber, StoredChange]] = deque()
        self._delivering = False

    @property
    def version(self) -> int:
        """The version of the last write of any kind."""
        return self._version

    def timestamp(self) -> str:
        now = self.clock()
        if now != self._last_timestamp[0]:
            self._last_timestamp = (now, metadata.timestamp(now))
        return self._last_timestamp[1]

    def get(self, kind: ApiKind, namespace: str | None, name: str) -> Json:
        """The object, or `ApiFailure` 404."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise failures.not_found(kind, name)
        return found

    def find(self, kind: ApiKind, namespace: str | None, name: str) -> Json | None:
        return self._collection(kind).namespaces.get((namespace or "") if kind.namespaced else "", {}).get(name)

    def list(self, kind: ApiKind, namespace: str | None = None) -> list[Json]:
        """All objects of the kind, or those of one namespace, ordered by namespace and name."""
        return self._collection(kind).list(namespace if kind.namespaced else None)

    def is_empty(self, kind: ApiKind, namespace: str | None = None) -> bool:
        collection = self._collection(kind).namespaces
        return not collection if namespace is None else namespace not in collection

    def list_at(self, kind: ApiKind, namespace: str | None, version: int) -> Sequence[Json]:
        """The list as of an earlier resource version; 410 where the history does not reach back so far."""
        if version == self._version:
            return self.list(kind, namespace)
        return self._collection(kind).list_at(namespace, version)

    def changes_since(self, kind: ApiKind, version: int) -> Sequence[StoredChange]:
        """Changes of the kind after `version`, in order; 410 where the history does not reach back so far."""
        return self._collection(kind).changes_since(version)

    def compact(self) -> None:
        """Clears the history, as a compaction of etcd does: a watch that resumes from an earlier version gets a 410."""
        for kind in self.kinds:
            self._collection(kind).clear_history(self._version)

    def subscribe(self, kind: ApiKind | None, callback: Subscriber) -> Callable[[], None]:
        """Calls back after each write to the kind (None: to any), in order. Returns a function that unsubscribes."""
        calls = self._subscribers.setdefault("" if kind is None else kind.storage, [])
        calls.append(callback)
        return lambda: calls.remove(callback) if callback in calls else None

    def create(self, kind: ApiKind, obj: Json, *, dry_run: bool = False) -> Json:
        new = deep_copy(obj)
        new["apiVersion"], new["kind"] = kind.api_version, kind.kind
        meta = new.setdefault("metadata", {})
        self._set_namespace(kind, meta)
        metadata.set_generated_name(
            kind, meta, self.random, lambda name: self.find(kind, meta.get("namespace"), name) is not None
        )
        metadata.set_system_fields(meta, self.timestamp(), metadata.new_uid(self.random))
        if kind.generation:
            meta["generation"] = 1
        causes = self._rules(kind).create(self, kind, new)
        metadata.check_metadata(kind, meta, causes=causes)
        if self.find(kind, meta.get("namespace"), meta["name"]) is not None:
            raise failures.already_exists(kind, meta["name"])
        return new if dry_run else self._commit(kind, ADDED, None, new)

    def update(self, kind: ApiKind, obj: Json, *, subresource: str | None = None, dry_run: bool = False) -> Json:
        """Replaces the object, or with `subresource="status"` only its status. Returns the stored object.

        A resourceVersion in `obj` must be the current one; without one the last write wins. An update that changes
        nothing is not written. Removing the last finalizer of an object that is being deleted removes the object.
        """
        sent = obj.get("metadata") or {}
        old = self.get(kind, sent.get("namespace"), sent.get("name", ""))
        before = old["metadata"]
        if sent.get("resourceVersion") not in {None, "", before["resourceVersion"]}:
            raise failures.modified(kind, sent["name"])
        meta = dict(before) if sent is before else metadata.keep_system_fields(kind, before, deep_copy(sent))
        new = _restrict_to_subresource(kind, old, {**obj, "metadata": meta}, subresource)
        # Values still shared with the stored object need no copy, since nobody changes them, except in custom
        # resources: there a changed schema may set new defaults inside them.
        changed = [field for field in new.keys() | old.keys() if new.get(field) is not old.get(field)]
        changed.remove("metadata")
        rules = self._rules(kind)
        causes: Sequence[failures.FieldCause] = ()
        if changed:
            new |= deep_copy(new if kind.custom else {field: new[field] for field in changed if field in new})
            causes = rules.update(self, kind, old, new, subresource)
        meta = new["metadata"]
        if causes or sent is not before:
            metadata.check_metadata(kind, meta, before, causes=causes)
        # A binding writes nodeName and a condition in one write, which is no new generation.
        content = [field for field in changed if field != "status" or not kind.has_status]
        if kind.generation and subresource != "binding" and any(old.get(one) != new.get(one) for one in content):
            meta["generation"] = before.get("generation", 0) + 1
        if new == old or dry_run:
            return new
        if _can_be_removed(rules, new):
            self._commit(kind, DELETED, old, new)
            return new
        return self._commit(kind, MODIFIED, old, new)

    def delete(
        self,
        kind: ApiKind,
        namespace: str | None,
        name: str,
        *,
        grace: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> tuple[Json, bool]:
        """Deletes the object. Returns its current or last state, and whether it is gone.

        Finalizers keep an object until they are removed; a bound pod stays for its grace period, until its kubelet
        deletes it with grace period 0. `propagation` is Background (default), Foreground or Orphan.
        """
        old = self.get(kind, namespace, name)
        metadata.check_preconditions(kind, old["metadata"], preconditions or {})
        new = {**old, "metadata": dict(old["metadata"])}
        meta = new["metadata"]
        rules = self._rules(kind)
        seconds = rules.grace(old, grace)
        marked, before = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds") or 0
        # A repeated deletion without a propagation policy keeps that of the first one.
        metadata.set_propagation(meta, propagation or (rules.propagation if marked is None else None))
        if marked is None or seconds < before:
            start = self.clock() if marked is None else datetime.fromisoformat(marked) - timedelta(seconds=before)
            meta["deletionTimestamp"] = metadata.timestamp(start + timedelta(seconds=seconds))
            meta["deletionGracePeriodSeconds"] = seconds
        if marked is None:
            if "generation" in meta:
                meta["generation"] += 1
            rules.deleting(self, new)
        removable = _can_be_removed(rules, new)
        if dry_run:
            return new, removable
        if new != old and (rules.graceful or not removable):
            # Subscribers are called after both writes: one called between them might delete the object itself.
            last = {**new, "metadata": dict(meta)}
            old, new = self._commit(kind, MODIFIED, old, new, deliver=not removable), last
        if not removable:
            return old, False
        return self._commit(kind, DELETED, old, new), True

    def remove_finalizer(self, kind: ApiKind, obj: Json, finalizer: str) -> None:
        """Removes one finalizer; if it was the last one of an object being deleted, the object goes too."""
        meta = obj["metadata"]
        rest = [other for other in meta.get("finalizers", ()) if other != finalizer]
        self.update(kind, {**obj, "metadata": {**meta, "finalizers": rest}})

    def _commit(self, kind: ApiKind, event: str, old: Json | None, new: Json, *, deliver: bool = True) -> Json:
        self._version += 1
        meta = new["metadata"]
        meta["resourceVersion"] = str(self._version)
        change = StoredChange(self._version, event, kind, old, new)
        self._collection(kind).put(change)
        for topic in (kind.storage, ""):
            self._undelivered.extend((callback, change) for callback in self._subscribers.get(topic, ()))
        if deliver:
            self._deliver()
        return new

    def _deliver(self) -> None:
        # A write by a subscriber is queued instead of nested, so that all subscribers see the versions in order.
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                callback, change = self._undelivered.popleft()
                callback(change)
        finally:
            self._delivering = False
            # The error of a subscriber reaches the writer after all other subscribers have been called.
            if self._undelivered:
                self._deliver()

    def _collection(self, kind: ApiKind) -> Collection:
        collection = self._collections.get(kind.storage)
        if collection is None:
            collection = self._collections[kind.storage] = Collection(self._history)
        return collection

    def _rules(self, kind: ApiKind) -> KindRules:
        return self.rules.get(kind.storage, DEFAULT_RULES)

    def _set_namespace(self, kind: ApiKind, meta: Json) -> None:
        if not kind.namespaced:
            meta.pop("namespace", None)
            return
        namespace = meta.setdefault("namespace", "default")
        found = self.get(NAMESPACE_KIND, None, namespace)
        if found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            raise failures.forbidden(kind, meta.get("name", ""), why, [{**cause, "field": "metadata.namespace"}])


def _restrict_to_subresource(kind: ApiKind, old: Json, new: Json, subresource: str | None) -> Json:
    """The update without what it may not change: the status, or with the status subresource everything else."""
    new = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"]}
    if not kind.has_status or subresource == "binding":
        return new
    restricted, source = ({**old, "metadata": new["metadata"]}, new) if subresource == "status" else (new, old)
    if subresource == "status" and kind.custom:
        restricted["metadata"] = dict(old["metadata"])
    restricted.pop("status", None)
    return {**restricted, "status": source["status"]} if "status" in source else restricted


def _can_be_removed(rules: KindRules, obj: Json) -> bool:
    """Whether the object is being deleted and neither a grace period nor a finalizer keeps it any longer."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds") and not rules.held(obj)
