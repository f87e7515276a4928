"""Objects of one storage key, and the history of their changes."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import islice

import msgspec

from forebay.embedded.api import failures
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json, object_key
from forebay.kube.decoders import DELETED


class StoredChange(msgspec.Struct, frozen=True, gc=False):
    """One write to the store."""

    version: int
    type: str
    kind: ApiKind
    old: Json | None
    #: After DELETED the last state, with the resource version of the deletion.
    new: Json


class Collection:
    def __init__(self, history: int) -> None:
        self.namespaces: dict[str, dict[str, Json]] = {}
        self._history: deque[StoredChange] = deque(maxlen=history)
        #: The history is complete only for changes after this version.
        self._compacted = 0
        #: The last list of a past version, which the next page most likely needs again.
        self._past_list: tuple[int, str | None, Sequence[Json]] | None = None

    def put(self, change: StoredChange) -> None:
        space, name = object_key(change.new)
        if change.type == DELETED:
            objects = self.namespaces[space]
            del objects[name]
            if not objects:
                del self.namespaces[space]
        else:
            self.namespaces.setdefault(space, {})[name] = change.new
        if len(self._history) == self._history.maxlen:
            self._compacted = self._history[0].version
        self._history.append(change)

    def list(self, namespace: str | None) -> list[Json]:
        spaces = sorted(self.namespaces) if namespace is None else [namespace]
        return [obj for space in spaces for _, obj in sorted(self.namespaces.get(space, {}).items())]

    def list_at(self, namespace: str | None, version: int) -> Sequence[Json]:
        """The list as of a past version: the current one with all later changes undone."""
        since = self.changes_since(version)
        if self._past_list is not None and self._past_list[:2] == (version, namespace):
            return self._past_list[2]
        objects = {object_key(obj): obj for obj in self.list(namespace)}
        for change in reversed(since):
            key = object_key(change.new)
            if namespace is not None and key[0] != namespace:
                continue
            if change.old is None:
                objects.pop(key, None)
            else:
                objects[key] = change.old
        page = [obj for _, obj in sorted(objects.items())]
        self._past_list = (version, namespace, page)
        return page

    def changes_since(self, version: int) -> Sequence[StoredChange]:
        if version < self._compacted:
            raise failures.too_old(version, self._compacted)
        start = bisect_right(self._history, version, key=lambda change: change.version)
        return list(islice(self._history, start, None))

    def clear_history(self, version: int) -> None:
        self._history.clear()
        self._past_list = None
        self._compacted = version
