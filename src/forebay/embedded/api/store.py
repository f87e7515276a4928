"""Objects by kind, one counter of versions, and the history that watches resume from.

Everything is synchronous and single-threaded. Stored objects are shared with readers, subscribers and watchers and are
never changed: a write replaces the whole object. What goes in is deep_copy, so the caller may go on using its own.
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
from forebay.kube.wire import ADDED, DELETED, MODIFIED
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
        self._moment: tuple[datetime | None, str] = (None, "")
        self._shelves: dict[str, Collection] = {}
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
        if now != self._moment[0]:
            self._moment = (now, metadata.timestamp(now))
        return self._moment[1]

    def get(self, kind: ApiKind, namespace: str | None, name: str) -> Json:
        """The object, or `ApiFailure` 404."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise failures.not_found(kind, name)
        return found

    def find(self, kind: ApiKind, namespace: str | None, name: str) -> Json | None:
        return self._shelf(kind).namespaces.get((namespace or "") if kind.namespaced else "", {}).get(name)

    def list(self, kind: ApiKind, namespace: str | None = None) -> list[Json]:
        """All objects of the kind, or those of one namespace, ordered by namespace and name."""
        return self._shelf(kind).list(namespace if kind.namespaced else None)

    def is_empty(self, kind: ApiKind, namespace: str | None = None) -> bool:
        shelf = self._shelf(kind).namespaces
        return not shelf if namespace is None else namespace not in shelf

    def list_at(self, kind: ApiKind, namespace: str | None, version: int) -> Sequence[Json]:
        """The list as it was at an earlier version; 410 once that is forgotten."""
        if version == self._version:
            return self.list(kind, namespace)
        return self._shelf(kind).list_at(namespace, version)

    def changes_since(self, kind: ApiKind, version: int) -> Sequence[StoredChange]:
        """What happened to the kind after `version`, in order; 410 when that is no longer known."""
        return self._shelf(kind).changes_since(version)

    def compact(self) -> None:
        """Forget all history: whoever resumes from before now gets a 410."""
        for kind in self.kinds:
            self._shelf(kind).forget(self._version)

    def subscribe(self, kind: ApiKind | None, callback: Subscriber) -> Callable[[], None]:
        """Calls back right after each write to the kind (None: to any), in the order of versions. Returns its end."""
        calls = self._subscribers.setdefault("" if kind is None else kind.storage, [])
        calls.append(callback)
        return lambda: calls.remove(callback) if callback in calls else None

    def create(self, kind: ApiKind, obj: Json, *, dry_run: bool = False) -> Json:
        new = deep_copy(obj)
        new["apiVersion"], new["kind"] = kind.api_version, kind.kind
        meta = new.setdefault("metadata", {})
        self._place(kind, meta)
        metadata.name_new(
            kind, meta, self.random, lambda name: self.find(kind, meta.get("namespace"), name) is not None
        )
        metadata.settle_new(meta, self.timestamp(), metadata.new_uid(self.random))
        if kind.generation:
            meta["generation"] = 1
        causes = self._rules(kind).create(self, kind, new)
        metadata.check_metadata(kind, meta, causes=causes)
        if self.find(kind, meta.get("namespace"), meta["name"]) is not None:
            raise failures.already_exists(kind, meta["name"])
        return new if dry_run else self._commit(kind, ADDED, None, new)

    def update(self, kind: ApiKind, obj: Json, *, subresource: str | None = None, dry_run: bool = False) -> Json:
        """Replaces the object; `subresource="status"` replaces only its status. The object as stored afterwards.

        A resourceVersion in `obj` must be the current one; without one the last write wins. Equal content writes
        nothing. Removing the last finalizer of an object being deleted removes it.
        """
        sent = obj.get("metadata") or {}
        old = self.get(kind, sent.get("namespace"), sent.get("name", ""))
        before = old["metadata"]
        if sent.get("resourceVersion") not in {None, "", before["resourceVersion"]}:
            raise failures.modified(kind, sent["name"])
        meta = dict(before) if sent is before else metadata.carried_over(kind, before, deep_copy(sent))
        new = _isolated(kind, old, {**obj, "metadata": meta}, subresource)
        # What is still the stored object's own never changes, so it need not be copied, except where a schema that has
        # changed since may give it new defaults.
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
        # A binding moves the pod and says so in its status, in one write that is no new generation.
        content = [field for field in changed if field != "status" or not kind.has_status]
        if kind.generation and subresource != "binding" and any(old.get(one) != new.get(one) for one in content):
            meta["generation"] = before.get("generation", 0) + 1
        if new == old or dry_run:
            return new
        if _over(rules, new):
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
        """The object as it is now (or last was), and whether it is gone.

        Finalizers keep it until they are removed; a bound pod stays for its grace, until its kubelet deletes it with
        grace 0. `propagation` is Background (default), Foreground or Orphan.
        """
        old = self.get(kind, namespace, name)
        metadata.require(kind, old["metadata"], preconditions or {})
        new = {**old, "metadata": dict(old["metadata"])}
        meta = new["metadata"]
        rules = self._rules(kind)
        seconds = rules.grace(old, grace)
        already, before = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds") or 0
        # Who asks again without a wish leaves the first one standing.
        metadata.propagate(meta, propagation or (rules.propagation if already is None else None))
        if already is None or seconds < before:
            start = self.clock() if already is None else datetime.fromisoformat(already) - timedelta(seconds=before)
            meta["deletionTimestamp"] = metadata.timestamp(start + timedelta(seconds=seconds))
            meta["deletionGracePeriodSeconds"] = seconds
        if already is None:
            if "generation" in meta:
                meta["generation"] += 1
            rules.deleting(self, new)
        over = _over(rules, new)
        if dry_run:
            return new, over
        if new != old and (rules.graceful or not over):
            # Nobody hears of the first step before the second is taken: they might take it themselves.
            last = {**new, "metadata": dict(meta)}
            old, new = self._commit(kind, MODIFIED, old, new, deliver=not over), last
        if not over:
            return old, False
        return self._commit(kind, DELETED, old, new), True

    def remove_finalizer(self, kind: ApiKind, obj: Json, finalizer: str) -> None:
        """Takes one finalizer off, which may be what ends the object."""
        meta = obj["metadata"]
        rest = [other for other in meta.get("finalizers", ()) if other != finalizer]
        self.update(kind, {**obj, "metadata": {**meta, "finalizers": rest}})

    def _commit(self, kind: ApiKind, event: str, old: Json | None, new: Json, *, deliver: bool = True) -> Json:
        self._version += 1
        meta = new["metadata"]
        meta["resourceVersion"] = str(self._version)
        change = StoredChange(self._version, event, kind, old, new)
        self._shelf(kind).put(change)
        for topic in (kind.storage, ""):
            self._undelivered.extend((callback, change) for callback in self._subscribers.get(topic, ()))
        if deliver:
            self._deliver()
        return new

    def _deliver(self) -> None:
        # A subscriber that writes adds to the queue instead of nesting, so that everyone sees versions in order.
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                callback, change = self._undelivered.popleft()
                callback(change)
        finally:
            self._delivering = False
            # One that fails is the writer's trouble, after all others have heard.
            if self._undelivered:
                self._deliver()

    def _shelf(self, kind: ApiKind) -> Collection:
        shelf = self._shelves.get(kind.storage)
        if shelf is None:
            shelf = self._shelves[kind.storage] = Collection(self._history)
        return shelf

    def _rules(self, kind: ApiKind) -> KindRules:
        return self.rules.get(kind.storage, DEFAULT_RULES)

    def _place(self, kind: ApiKind, meta: Json) -> None:
        if not kind.namespaced:
            meta.pop("namespace", None)
            return
        space = meta.setdefault("namespace", "default")
        home = self.get(NAMESPACE_KIND, None, space)
        if home["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {space} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {space} is being terminated"}
            raise failures.forbidden(kind, meta.get("name", ""), why, [{**cause, "field": "metadata.namespace"}])


def _isolated(kind: ApiKind, old: Json, new: Json, subresource: str | None) -> Json:
    """The spec's writers cannot touch the status, nor the status' writers the spec."""
    new = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"]}
    if not kind.has_status or subresource == "binding":
        return new
    isolated, source = ({**old, "metadata": new["metadata"]}, new) if subresource == "status" else (new, old)
    if subresource == "status" and kind.custom:
        isolated["metadata"] = dict(old["metadata"])
    isolated.pop("status", None)
    return {**isolated, "status": source["status"]} if "status" in source else isolated


def _over(rules: KindRules, obj: Json) -> bool:
    """Marked for deletion, and nothing holds it any longer."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds") and not rules.held(obj)
