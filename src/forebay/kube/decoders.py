"""Lists and watch streams from bytes to objects, in one pass over the bytes where every object is well.

Where one is not, the slow way round finds out which: it becomes an `UndecodableObject` with its name, and the others
are read as usual. Nothing that is returned keeps a page or a chunk of the stream in memory.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from forebay.api.meta import Object
from forebay.kube.errors import Status, Unreadable
from forebay.kube.index import ObjectKey
from forebay.kube.lists import ListMeta
from forebay.kube.resources import Resource, T

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"
_SHOWN: Final = frozenset({ADDED, MODIFIED})
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

#: A page beyond this is cut into objects first: one call that decodes it all would hold up the loop.
_LARGE_PAGE: Final = 8 << 20
#: As much of a stream is decoded in one call, for the same reason.
_BATCH: Final = 256 << 10


class WireObject(Protocol):
    """What every type that is read from the wire has."""

    @property
    def metadata(self) -> Any: ...


_W = TypeVar("_W", bound=WireObject)


class UndecodableObject(msgspec.Struct, frozen=True):
    """An object that is there and cannot be read."""

    key: ObjectKey
    uid: str
    resource_version: int
    why: str


class Bookmark(msgspec.Struct, frozen=True):
    """Every change up to this version has been sent."""

    resource_version: int
    #: The first one of a WatchList: every object that was there has been sent.
    ends_initial_events: bool


#: Complete lines: texts, and from where to where they are meant.
Batch = list[tuple[bytes, int, int]]
#: Objects that are there: ADDED or MODIFIED, which is only the server's guess at what the reader knew.
Shown = list[T | UndecodableObject]
#: Anything else a watch says: the type of the event, and what it is about. An unknown type comes with None.
WatchEvent = tuple[str, T | UndecodableObject | Bookmark | Status | None]


class _Event(msgspec.Struct, Generic[_W], gc=False):
    type: str
    object: _W


class _List(msgspec.Struct, Generic[_W]):
    metadata: ListMeta
    # Go writes an empty list as null in places. Without the field at all it is no list.
    items: list[_W] | None


class _Identity(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"


class _Identified(msgspec.Struct):
    metadata: _Identity


class _Mark(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _Marked(msgspec.Struct):
    metadata: _Mark


_raw_event = msgspec.json.Decoder(_Event[msgspec.Raw])  # type: ignore[type-var]  # only the envelope
_raw_list = msgspec.json.Decoder(_List[msgspec.Raw])  # type: ignore[type-var]
_identified = msgspec.json.Decoder(_Identified)
_marked = msgspec.json.Decoder(_Marked)
_status = msgspec.json.Decoder(Status)


class ObjectDecoder(Generic[_W, T]):
    """Reads objects of one kind: msgspec makes a `wire_type`, of which `build` makes the object.

    A `ValueError` from either means that this one object cannot be read.
    """

    def __init__(
        self,
        wire_type: type[_W],
        build: Callable[[_W], T],
        *,
        large_page: int = _LARGE_PAGE,
    ) -> None:
        self._build = build
        self._large_page = large_page
        self._object = msgspec.json.Decoder(wire_type)
        self._events = msgspec.json.Decoder(_Event[wire_type])  # type: ignore[valid-type]
        self._list = msgspec.json.Decoder(_List[wire_type])  # type: ignore[valid-type]

    def object(self, body: bytes | msgspec.Raw) -> T:
        """Raises `ValueError`."""
        return self._build(self._object.decode(body))

    def page(self, body: bytes) -> tuple[ListMeta, Iterator[T | UndecodableObject]]:
        """The objects are made as they are taken. Raises `Unreadable` for what is no list at all."""
        if len(body) < self._large_page:
            try:
                page = self._list.decode(body)
            except ValueError:
                pass
            else:
                return _with_version(page.metadata), map(self._built, page.items or ())
        try:
            raw = _raw_list.decode(body)
        except ValueError as error:
            raise Unreadable(f"the answer is not a list of objects: {error}") from error
        return _with_version(raw.metadata), map(self._read, raw.items or ())

    def events(self, batch: Batch) -> Iterator[Shown[T] | WatchEvent[T]]:
        """The events in complete lines, in their order; many objects that are there come together.

        Raises `Unreadable` for a line that is no event.
        """
        try:
            events = self._events.decode_lines(_to_decode(batch))
        except ValueError:
            for line in _lines(batch):
                yield self._event(line)
            return
        build = self._build
        shown: Shown[T] = []
        for number, event in enumerate(events):
            if event.type in _SHOWN:
                # The hot loop of a large cluster: no call more than it needs.
                try:
                    shown.append(build(event.object))
                except ValueError as error:
                    shown.append(_undecodable(event.object.metadata, error))  # type: ignore[attr-defined]
                continue
            if shown:
                yield shown
                shown = []
            if event.type == DELETED:
                yield DELETED, self._built(event.object)
            else:
                yield self._event(_lines(batch)[number])
        if shown:
            yield shown

    def _built(self, wire: _W) -> T | UndecodableObject:
        try:
            return self._build(wire)
        except ValueError as error:
            return _undecodable(wire.metadata, error)

    def _read(self, raw: msgspec.Raw) -> T | UndecodableObject:
        try:
            return self._build(self._object.decode(raw))
        except ValueError as error:
            try:
                meta = _identified.decode(raw).metadata
            except ValueError as nameless:
                raise Unreadable(f"an object without a readable name: {nameless}") from nameless
            return _undecodable(meta, error)

    def _event(self, line: bytes) -> Shown[T] | WatchEvent[T]:
        try:
            event = _raw_event.decode(line)
            if event.type in _SHOWN:
                return [self._read(event.object)]
            if event.type == DELETED:
                return DELETED, self._read(event.object)
            if event.type == BOOKMARK:
                mark = _marked.decode(event.object).metadata
                ends = (mark.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
                return BOOKMARK, Bookmark(int(mark.resource_version), ends)
            if event.type == ERROR:
                return ERROR, _status.decode(event.object)
        except ValueError as error:
            raise Unreadable(f"a line of the watch is no event: {error}") from error
        return event.type, None


class LineSplitter:
    """Cuts a stream into batches of complete lines. Only lines that span chunks are copied, once, however long."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Batch]:
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._rest.append(chunk)
            return
        start = 0
        batch: Batch = []
        if self._rest:
            start = chunk.find(b"\n") + 1
            line = b"".join([*self._rest, chunk[:start]])
            batch.append((line, 0, len(line)))
        self._rest = [chunk[end:]] if end < len(chunk) else []
        while start < end:
            stop = end if end - start <= _BATCH else chunk.find(b"\n", start + _BATCH) + 1
            yield [*batch, (chunk, start, stop)]
            batch = []
            start = stop
        if batch:
            yield batch


def _to_decode(batch: Batch) -> bytes | memoryview:
    if len(batch) == 1:
        text, start, end = batch[0]
        return memoryview(text)[start:end]
    return _text(batch)


def _text(batch: Batch) -> bytes:
    return b"".join([memoryview(text)[start:end] for text, start, end in batch])


def _lines(batch: Batch) -> list[bytes]:
    return [line for line in _text(batch).splitlines() if line.strip()]


def _with_version(meta: ListMeta) -> ListMeta:
    if not meta.resource_version.isdecimal():
        raise Unreadable(f'the list is of no version this can continue from: "{meta.resource_version}"')
    return meta


def _undecodable(meta: Any, error: ValueError) -> UndecodableObject:
    if not meta.name:
        raise Unreadable(f"an object without a name: {error}") from error
    version = int(meta.resource_version) if meta.resource_version.isdecimal() else 0
    return UndecodableObject((meta.namespace or "", meta.name), meta.uid, version, str(error))


def decoder_for(resource: Resource[T]) -> ObjectDecoder[Any, T]:
    """A new decoder for objects of this resource. Decoders keep tables of what objects have in common: keep yours."""
    if resource.make_decoder is not None:
        return resource.make_decoder()
    kind: Any = resource.type
    return ObjectDecoder(kind, _as_it_is)


class Decoders:
    """One decoder per resource, made when it is first needed."""

    def __init__(self) -> None:
        self._made: dict[Resource[Any], ObjectDecoder[Any, Any]] = {}

    def __getitem__(self, resource: Resource[T]) -> ObjectDecoder[Any, T]:
        made = self._made.get(resource)
        if made is None:
            made = self._made[resource] = decoder_for(resource)
        return made


def _as_it_is(decoded: T) -> T:
    if isinstance(decoded, Object):
        # They are `Raw`, so they would keep the page. An update without them leaves the server's as they are.
        decoded.metadata.managed_fields = []
    return decoded
