"""What is known of the objects of one kind, from two sources that do not agree on time.

The server's stream says everything in order, a little late. Our own writes are known at once, from their responses.
A write stays *ahead* until the stream has passed its version: until then nothing older from the stream undoes it.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, ValuesView
from types import MappingProxyType
from typing import Final, Generic

import msgspec

from forebay.kube.decoders import UndecodableObject
from forebay.kube.index import ChangeHandler, Index, Indexes, ObjectKey
from forebay.kube.resources import T

#: How long a write of ours is believed against a server that does not show it. Longer, and the server has lost it
#: (a database restored from a backup counts versions anew).
TRUST_IN_OWN_WRITES: Final = 60.0
#: How long a deletion that we saw ahead of the stream is remembered.
_MEMORY_OF_DELETIONS: Final = 600.0


class Added(msgspec.Struct, Generic[T], frozen=True):
    new: T


class Updated(msgspec.Struct, Generic[T], frozen=True):
    old: T
    new: T


class Deleted(msgspec.Struct, Generic[T], frozen=True):
    old: T
    #: Its state when it was deleted, or `old` where the deletion was found out only later.
    last: T


ObjectChange = Added[T] | Updated[T] | Deleted[T]


class _Ahead(msgspec.Struct, frozen=True):
    resource_version: int
    at: float


class _Gone(msgspec.Struct, frozen=True):
    listing: int
    at: float


class View(Generic[T]):
    """`now` is the loop's time in every call: nothing here reads a clock."""

    def __init__(
        self,
        indexes: Iterable[Index[T]] = (),
        on_change: Callable[[], None] | None = None,
        handlers: Iterable[ChangeHandler[T]] = (),
    ) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._indexes = Indexes(indexes, handlers)
        self._on_change = on_change
        self._subscribers: list[Callable[[ObjectChange[T]], None]] = []
        self._undecodable: dict[ObjectKey, str] = {}
        self._ahead: dict[ObjectKey, _Ahead] = {}
        self._gone: dict[str, _Gone] = {}
        self._listing = 0
        self._is_listing = False
        #: What the listing has shown. Not kept for the first one, when there is nothing to compare it with.
        self._listed: set[ObjectKey] | None = None
        #: The stream has been seen up to here.
        self.resource_version = 0

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: ObjectKey) -> T | None:
        return self._objects.get(key)

    def values(self) -> ValuesView[T]:
        return self._objects.values()

    def index(self, name: str) -> Index[T]:
        return self._indexes[name]

    def by(self, name: str, value: Hashable) -> tuple[T, ...]:
        return self._indexes[name].get(value)

    @property
    def undecodable(self) -> Mapping[ObjectKey, str]:
        """Objects that are there and could not be read, with the reason. Their last readable state, if any, is kept."""
        return MappingProxyType(self._undecodable)

    def subscribe(self, subscriber: Callable[[ObjectChange[T]], None]) -> Callable[[], None]:
        """Calls it with every change from now on, in the stream's order. The returned function ends that."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def begin_listing(self) -> None:
        """What is shown until `end_listing` is everything there is. Beginning anew forgets a listing that broke off."""
        self._listing += 1
        self._is_listing = True
        self._listed = set() if self._objects or self._undecodable else None

    def end_listing(self, resource_version: int, now: float) -> None:
        """What was not shown is not there, unless a write of ours is newer than the listing."""
        listed, self._listed = self._listed, None
        self._is_listing = False
        if listed is not None:
            for key in [key for key in self._undecodable if key not in listed]:
                del self._undecodable[key]
            for key in [key for key in self._objects if key not in listed]:
                ahead = self._ahead.get(key)
                if ahead is None or ahead.resource_version <= resource_version or _mistrusted(ahead, now):
                    self._remove(key)
        # As it says, even where that is less: the server may have been restored from a backup.
        self.resource_version = resource_version
        self._pass(resource_version, now)

    def show(self, new: T, now: float) -> None:
        """From the stream: the object is there, and like this."""
        key = new.key
        version = new.resource_version
        if self._gone and self._known_gone(new.uid):
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
        if self._ahead:
            ahead = self._ahead.get(key)
            if ahead is not None:
                if version < ahead.resource_version and not _mistrusted(ahead, now):
                    return
                del self._ahead[key]
        if self._undecodable:
            self._undecodable.pop(key, None)
        self._put(key, before, new)

    def show_all(self, found: Collection[T], now: float) -> None:
        """`show` for each; quicker for the first filling, which has nothing to compare with and nobody to tell."""
        known = self._gone or self._ahead or self._undecodable or self._subscribers
        if self._is_listing and self._listed is None and not known:
            shown = {new.key: new for new in found}
            if len(shown) == len(found) and self._objects.keys().isdisjoint(shown):
                self._objects.update(shown)
                self._indexes.add(shown)
                if self._on_change is not None:
                    self._on_change()
                return
        for new in found:
            self.show(new, now)

    def show_undecodable(self, unread: UndecodableObject) -> None:
        if self._listed is not None:
            self._listed.add(unread.key)
        self.resource_version = max(self.resource_version, unread.resource_version)
        ahead = self._ahead.get(unread.key)
        if ahead is not None:
            if unread.resource_version < ahead.resource_version:
                return
            del self._ahead[unread.key]
        self._undecodable[unread.key] = unread.why
        before = self._objects.get(unread.key)
        if before is not None and before.uid != unread.uid:
            self._remove(unread.key)

    def show_deleted(self, last: T | UndecodableObject) -> None:
        """From the stream: the object is there no more."""
        key = last.key
        self.resource_version = max(self.resource_version, last.resource_version)
        self._gone.pop(last.uid, None)
        before = self._objects.get(key)
        if before is not None and before.uid != last.uid:
            return  # a later object of that name, which we wrote
        self._undecodable.pop(key, None)
        if self._listed is not None:
            self._listed.discard(key)
        if before is not None:
            self._remove(key, None if isinstance(last, UndecodableObject) else last)

    def show_bookmark(self, resource_version: int, now: float) -> None:
        self.resource_version = max(self.resource_version, resource_version)
        self._pass(resource_version, now)

    def observe(self, new: T, now: float) -> bool:
        """The response to a write of ours. False where the view already knows better."""
        key = new.key
        before = self._objects.get(key)
        if new.uid in self._gone:
            return False
        # Absent although the stream has passed that version: it was deleted since, or is not for this view.
        if new.resource_version <= (self.resource_version if before is None else before.resource_version):
            return False
        self._ahead[key] = _Ahead(new.resource_version, now)
        self._undecodable.pop(key, None)
        self._put(key, before, new)
        return True

    def observe_deleted(self, key: ObjectKey, uid: str, now: float) -> None:
        """A response to us proves that the object of this uid is gone for good; what the stream still says is old."""
        self._gone[uid] = _Gone(self._listing, now)
        before = self._objects.get(key)
        if before is not None and before.uid == uid:
            self._remove(key)

    def mistrusts(self, now: float) -> bool:
        """Whether the server should have shown a write of ours long ago: time for a new listing."""
        return any(_mistrusted(ahead, now) for ahead in self._ahead.values())

    def _known_gone(self, uid: str) -> bool:
        gone = self._gone.get(uid)
        if gone is None:
            return False
        if self._is_listing and gone.listing < self._listing:
            # The listing began after the deletion we heard of, and yet shows it: the server is right.
            del self._gone[uid]
            return False
        return True

    def _pass(self, resource_version: int, now: float) -> None:
        """All changes up to this version are in. A write of ours that was not among them is not for this view."""
        for key, ahead in list(self._ahead.items()):
            if ahead.resource_version <= resource_version:
                self._remove(key)
        for uid, gone in list(self._gone.items()):
            if now - gone.at > _MEMORY_OF_DELETIONS:
                del self._gone[uid]

    def _put(self, key: ObjectKey, before: T | None, new: T) -> None:
        if before is not None:
            if before.uid != new.uid:
                self._remove(key, keep_ahead=True)
                before = None
            elif before.resource_version == new.resource_version and not (self._is_listing and before != new):
                # A listing may show the same version with more of it read (`Informer.relist`).
                return
        self._objects[key] = new
        self._indexes.change(key, before, new)
        if self._on_change is not None:
            self._on_change()
        if self._subscribers:
            self._tell(Added(new) if before is None else Updated(before, new))

    def _remove(self, key: ObjectKey, last: T | None = None, *, keep_ahead: bool = False) -> None:
        if not keep_ahead:
            self._ahead.pop(key, None)
        before = self._objects.pop(key)
        self._indexes.change(key, before, None)
        if self._on_change is not None:
            self._on_change()
        if self._subscribers:
            self._tell(Deleted(before, before if last is None else last))

    def _tell(self, change: ObjectChange[T]) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(change)


def _mistrusted(ahead: _Ahead, now: float) -> bool:
    return now - ahead.at > TRUST_IN_OWN_WRITES
