"""Local copy of the objects of one kind, from two sources: the watch, and the responses to our own writes.

The watch brings every change in order, a little late. A response to our own write is *ahead* of the watch until the
watch has passed its version: until then nothing older from the watch replaces it.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, ValuesView
from types import MappingProxyType
from typing import Final, Generic

import msgspec

from forebay.kube.decoders import UndecodableObject
from forebay.kube.index import ChangeHandler, Index, Indexes, ObjectKey
from forebay.kube.resources import T
from forebay.model.kept import KeptTuple

#: Seconds for which our own write stays although the watch does not bring it. After that the server has lost the write
#: (an etcd restored from a backup starts again at older versions).
OWN_WRITE_TIMEOUT: Final = 60.0
#: Seconds for which a deletion that is ahead of the watch is remembered.
_OWN_DELETION_TIMEOUT: Final = 600.0


class Added(msgspec.Struct, Generic[T], frozen=True):
    new: T


class Updated(msgspec.Struct, Generic[T], frozen=True):
    old: T
    new: T


class Deleted(msgspec.Struct, Generic[T], frozen=True):
    old: T
    #: The final state of the object, or `old` if the deletion was noticed only by a relist.
    last: T


ObjectChange = Added[T] | Updated[T] | Deleted[T]


class _OwnWrite(msgspec.Struct, frozen=True):
    resource_version: int
    at: float


class _OwnDeletion(msgspec.Struct, frozen=True):
    list_number: int
    at: float


class View(Generic[T]):
    """The objects with their indexes and handlers. `now` is always the loop time.

    `on_change` is called for every change but those of an object from an old to a new state that `matters` denies.
    """

    def __init__(
        self,
        indexes: Iterable[Index[T]] = (),
        on_change: Callable[[], None] | None = None,
        handlers: Iterable[ChangeHandler[T]] = (),
        matters: Callable[[T, T], bool] | None = None,
    ) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._all: KeptTuple[T] | None = None
        self._indexes = Indexes(indexes, handlers)
        self._on_change = on_change
        self._matters = matters
        self._subscribers: list[Callable[[ObjectChange[T]], None]] = []
        self._undecodable: dict[ObjectKey, str] = {}
        self._own_writes: dict[ObjectKey, _OwnWrite] = {}
        self._own_deletions: dict[str, _OwnDeletion] = {}
        self._list_number = 0
        self._is_listing = False
        #: Keys that the present list has brought. None for the first list, which has nothing to delete.
        self._listed: set[ObjectKey] | None = None
        #: The resourceVersion up to which the watch has been seen.
        self.resource_version = 0

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: ObjectKey) -> T | None:
        return self._objects.get(key)

    def values(self) -> ValuesView[T]:
        return self._objects.values()

    def all(self) -> KeptTuple[T]:
        """The objects, in a tuple that is the same until one of them changes."""
        if self._all is None:
            self._all = KeptTuple(self._objects.values())
        return self._all

    def index(self, name: str) -> Index[T]:
        return self._indexes[name]

    def by(self, name: str, value: Hashable) -> tuple[T, ...]:
        return self._indexes[name].get(value)

    @property
    def undecodable(self) -> Mapping[ObjectKey, str]:
        """Errors of objects that exist but do not decode.

        What could be salvaged of them is in the view; otherwise their last decodable state, if any, is kept.
        """
        return MappingProxyType(self._undecodable)

    def subscribe(self, subscriber: Callable[[ObjectChange[T]], None]) -> Callable[[], None]:
        """Calls `subscriber` with every change from now on, in order. The returned function unsubscribes."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def begin_list(self) -> None:
        """Starts a list: all existing objects come before `end_list`. Discards a list that was cut off."""
        self._list_number += 1
        self._is_listing = True
        self._listed = set() if self._objects or self._undecodable else None

    def end_list(self, resource_version: int, now: float) -> None:
        """Ends a list: objects that it did not bring are removed, unless our own write is newer than the list."""
        listed, self._listed = self._listed, None
        self._is_listing = False
        if listed is not None:
            for key in [key for key in self._undecodable if key not in listed]:
                del self._undecodable[key]
            for key in [key for key in self._objects if key not in listed]:
                write = self._own_writes.get(key)
                if write is None or write.resource_version <= resource_version or _timed_out(write, now):
                    self._remove(key)
        # Even if it is lower than before: the server may have been restored from a backup.
        self.resource_version = resource_version
        self._passed(resource_version, now)

    def apply(self, new: T, now: float) -> None:
        """Stores an object from a list or a watch."""
        key = new.key
        version = new.resource_version
        if self._own_deletions and self._known_deleted(new.uid):
            return
        before = self._objects.get(key)
        if self._is_listing:
            if self._listed is not None:
                self._listed.add(key)
        else:
            if version > self.resource_version:  # noqa: PLR1730 (`max` costs thrice as much, a hundred thousand times)
                self.resource_version = version
            if before is not None and before.uid == new.uid and version < before.resource_version:
                return
        if self._own_writes:
            write = self._own_writes.get(key)
            if write is not None:
                if version < write.resource_version and not _timed_out(write, now):
                    return
                del self._own_writes[key]
        if self._undecodable:
            self._undecodable.pop(key, None)
        self._put(key, before, new)

    def apply_all(self, objects: Collection[T], now: float) -> None:
        """`apply` for each object; faster during the first list, when there is nothing to compare or to report."""
        known = self._own_deletions or self._own_writes or self._undecodable or self._subscribers
        if self._is_listing and self._listed is None and not known:
            new_objects = {new.key: new for new in objects}
            if len(new_objects) == len(objects) and self._objects.keys().isdisjoint(new_objects):
                self._objects.update(new_objects)
                self._all = None
                self._indexes.add(new_objects)
                if self._on_change is not None:
                    self._on_change()
                return
        for new in objects:
            self.apply(new, now)

    def apply_undecodable(self, undecoded: UndecodableObject) -> None:
        if self._listed is not None:
            self._listed.add(undecoded.key)
        self.resource_version = max(self.resource_version, undecoded.resource_version)
        write = self._own_writes.get(undecoded.key)
        if write is not None:
            if undecoded.resource_version < write.resource_version:
                return
            del self._own_writes[undecoded.key]
        self._undecodable[undecoded.key] = undecoded.error
        before = self._objects.get(undecoded.key)
        if undecoded.salvaged is not None:
            self._put(undecoded.key, before, undecoded.salvaged)
        elif before is not None and before.uid != undecoded.uid:
            self._remove(undecoded.key)

    def apply_deleted(self, last: T | UndecodableObject) -> None:
        """Removes an object that the watch reports as deleted."""
        key = last.key
        self.resource_version = max(self.resource_version, last.resource_version)
        self._own_deletions.pop(last.uid, None)
        before = self._objects.get(key)
        if before is not None and before.uid != last.uid:
            return  # our own write has created a new object of that name
        self._undecodable.pop(key, None)
        if self._listed is not None:
            self._listed.discard(key)
        if before is not None:
            self._remove(key, None if isinstance(last, UndecodableObject) else last)

    def apply_bookmark(self, resource_version: int, now: float) -> None:
        self.resource_version = max(self.resource_version, resource_version)
        self._passed(resource_version, now)

    def observe(self, new: T, now: float) -> bool:
        """Stores the response to our own write. False if a newer state is already there."""
        key = new.key
        before = self._objects.get(key)
        if new.uid in self._own_deletions:
            return False
        # The watch has passed that version without the object: deleted since, or not selected by this watch.
        if new.resource_version <= (self.resource_version if before is None else before.resource_version):
            return False
        self._own_writes[key] = _OwnWrite(new.resource_version, now)
        self._undecodable.pop(key, None)
        self._put(key, before, new)
        return True

    def observe_deleted(self, key: ObjectKey, uid: str, now: float) -> None:
        """Removes an object that a response proved to be gone. Older events of the watch do not bring it back."""
        self._own_deletions[uid] = _OwnDeletion(self._list_number, now)
        before = self._objects.get(key)
        if before is not None and before.uid == uid:
            self._remove(key)

    def has_lost_write(self, now: float) -> bool:
        """Whether the watch should have brought one of our own writes long ago: a reason to relist."""
        return any(_timed_out(write, now) for write in self._own_writes.values())

    def _known_deleted(self, uid: str) -> bool:
        deletion = self._own_deletions.get(uid)
        if deletion is None:
            return False
        if self._is_listing and deletion.list_number < self._list_number:
            # The list started after the deletion and still has the object: the server is right.
            del self._own_deletions[uid]
            return False
        return True

    def _passed(self, resource_version: int, now: float) -> None:
        """Removes our own writes that the watch has passed without bringing them: its selector excludes them."""
        for key, write in list(self._own_writes.items()):
            if write.resource_version <= resource_version:
                self._remove(key)
        for uid, deletion in list(self._own_deletions.items()):
            if now - deletion.at > _OWN_DELETION_TIMEOUT:
                del self._own_deletions[uid]

    def _put(self, key: ObjectKey, before: T | None, new: T) -> None:
        if before is not None:
            if before.uid != new.uid:
                self._remove(key, keep_own_write=True)
                before = None
            elif before.resource_version == new.resource_version and not (self._is_listing and before != new):
                # After `Informer.relist` the same version may decode into more fields.
                return
        self._objects[key] = new
        self._all = None
        self._indexes.change(key, before, new)
        if self._on_change is not None and (before is None or self._matters is None or self._matters(before, new)):
            self._on_change()
        if self._subscribers:
            self._notify(Added(new) if before is None else Updated(before, new))

    def _remove(self, key: ObjectKey, last: T | None = None, *, keep_own_write: bool = False) -> None:
        if not keep_own_write:
            self._own_writes.pop(key, None)
        before = self._objects.pop(key)
        self._all = None
        self._indexes.change(key, before, None)
        if self._on_change is not None:
            self._on_change()
        if self._subscribers:
            self._notify(Deleted(before, before if last is None else last))

    def _notify(self, change: ObjectChange[T]) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(change)


def _timed_out(write: _OwnWrite, now: float) -> bool:
    return now - write.at > OWN_WRITE_TIMEOUT
