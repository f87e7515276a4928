"""Decoders of lists and watch streams.

A page or a batch of watch events is decoded in one call. If that fails, each object is decoded by itself: the invalid
one becomes an `UndecodableObject`, and the others are returned as usual. No result keeps a page or a chunk in memory.
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
_UPSERT_TYPES: Final = frozenset({ADDED, MODIFIED})
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

#: Larger pages are decoded object by object: one call for all of it would block the event loop.
_LARGE_PAGE: Final = 8 << 20
#: Bytes of a watch that are decoded in one call, for the same reason.
_BATCH: Final = 256 << 10


class WireObject(Protocol):
    """What every decoded type has."""

    @property
    def metadata(self) -> Any: ...


_W = TypeVar("_W", bound=WireObject)


class UndecodableObject(msgspec.Struct, frozen=True):
    """An object that exists but does not decode."""

    key: ObjectKey
    uid: str
    resource_version: int
    error: str
    #: What can be said of the object nevertheless, to be used in its place; None: nothing.
    salvaged: Any = None


class Bookmark(msgspec.Struct, frozen=True):
    """A BOOKMARK event: every change up to this version has been sent."""

    resource_version: int
    #: The end of the initial events of a WatchList: every existing object has been sent.
    ends_initial_events: bool


#: Complete lines, as texts with the start and end of the lines in each.
Batch = list[tuple[bytes, int, int]]
#: Objects of ADDED and MODIFIED events. Which of the two it was says nothing reliable, so it is dropped.
Upserts = list[T | UndecodableObject]
#: Type and object of any other event; None as the object of an unknown type.
WatchEvent = tuple[str, T | UndecodableObject | Bookmark | Status | None]


class _Event(msgspec.Struct, Generic[_W], gc=False):
    type: str
    object: _W


class _List(msgspec.Struct, Generic[_W]):
    metadata: ListMeta
    # Go sometimes writes an empty list as null. A body without the field is no list.
    items: list[_W] | None


class _Identity(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"


class _IdentityObject(msgspec.Struct):
    metadata: _Identity


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _BookmarkObject(msgspec.Struct):
    metadata: _BookmarkMeta


_raw_event_decoder = msgspec.json.Decoder(_Event[msgspec.Raw])  # type: ignore[type-var]  # only the envelope
_raw_list_decoder = msgspec.json.Decoder(_List[msgspec.Raw])  # type: ignore[type-var]
_identity_decoder = msgspec.json.Decoder(_IdentityObject)
_bookmark_decoder = msgspec.json.Decoder(_BookmarkObject)
_status_decoder = msgspec.json.Decoder(Status)


class ObjectDecoder(Generic[_W, T]):
    """Decodes objects of one kind: msgspec decodes JSON into a `wire_type`, and `build` makes the object from that.

    A `ValueError` from either means that this object does not decode.
    """

    def __init__(
        self,
        wire_type: type[_W],
        build: Callable[[_W], T],
        *,
        salvage: Callable[[dict[str, Any]], T | None] | None = None,
        large_page: int = _LARGE_PAGE,
    ) -> None:
        """`salvage` makes what it can of the JSON of an object that does not decode, and never raises `ValueError`."""
        self._build = build
        self._salvage = salvage
        self._large_page = large_page
        self._object = msgspec.json.Decoder(wire_type)
        self._events = msgspec.json.Decoder(_Event[wire_type])  # type: ignore[valid-type]
        self._list = msgspec.json.Decoder(_List[wire_type])  # type: ignore[valid-type]

    def object(self, body: bytes | msgspec.Raw) -> T:
        """Raises `ValueError`."""
        return self._build(self._object.decode(body))

    def page(self, body: bytes) -> tuple[ListMeta, Iterator[T | UndecodableObject]]:
        """The objects of a list response, built lazily. Raises `Unreadable` if the body is no list."""
        if len(body) < self._large_page:
            try:
                page = self._list.decode(body)
            except ValueError:
                pass
            else:
                return _checked(page.metadata), self._build_page(page.items or [], body)
        try:
            raw = _raw_list_decoder.decode(body)
        except ValueError as error:
            raise Unreadable(f"the response is not a list of objects: {error}") from error
        return _checked(raw.metadata), map(self._decode_object, raw.items or ())

    def events(self, batch: Batch) -> Iterator[Upserts[T] | WatchEvent[T]]:
        """The events of complete lines, in order; consecutive ADDED and MODIFIED events come as one list.

        Raises `Unreadable` for a line that is no event.
        """
        try:
            events = self._events.decode_lines(_to_decode(batch))
        except ValueError:
            for line in _lines(batch):
                yield self._decode_event(line)
            return
        build = self._build
        upserts: Upserts[T] = []
        lines: list[bytes] = []
        for number, event in enumerate(events):
            if event.type in _UPSERT_TYPES:
                # The hot loop of a large cluster: no unnecessary calls.
                try:
                    upserts.append(build(event.object))
                except ValueError:
                    lines = lines or _lines(batch)
                    upserts.append(self._decode_object(_raw_event_decoder.decode(lines[number]).object))
                continue
            if upserts:
                yield upserts
                upserts = []
            if event.type == DELETED:
                yield DELETED, self._build_object(event.object)
            else:
                yield self._decode_event(_lines(batch)[number])
        if upserts:
            yield upserts

    def _build_page(self, items: list[_W], body: bytes) -> Iterator[T | UndecodableObject]:
        raw: list[msgspec.Raw] = []
        for number, decoded in enumerate(items):
            try:
                yield self._build(decoded)
            except ValueError:
                raw = raw or _raw_list_decoder.decode(body).items or []
                yield self._decode_object(raw[number])

    def _build_object(self, decoded: _W) -> T | UndecodableObject:
        try:
            return self._build(decoded)
        except ValueError as error:
            return _undecodable(decoded.metadata, error)

    def _decode_object(self, raw: msgspec.Raw) -> T | UndecodableObject:
        try:
            return self._build(self._object.decode(raw))
        except ValueError as error:
            try:
                meta = _identity_decoder.decode(raw).metadata
            except ValueError as no_name:
                raise Unreadable(f"an object has no readable name: {no_name}") from no_name
            salvaged = self._salvage(msgspec.json.decode(raw)) if self._salvage is not None else None
            return _undecodable(meta, error, salvaged)

    def _decode_event(self, line: bytes) -> Upserts[T] | WatchEvent[T]:
        try:
            event = _raw_event_decoder.decode(line)
            if event.type in _UPSERT_TYPES:
                return [self._decode_object(event.object)]
            if event.type == DELETED:
                return DELETED, self._decode_object(event.object)
            if event.type == BOOKMARK:
                mark = _bookmark_decoder.decode(event.object).metadata
                ends = (mark.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
                return BOOKMARK, Bookmark(int(mark.resource_version), ends)
            if event.type == ERROR:
                return ERROR, _status_decoder.decode(event.object)
        except ValueError as error:
            raise Unreadable(f"a line of the watch is not an event: {error}") from error
        return event.type, None


class LineSplitter:
    """Splits a stream into batches of complete lines. Copies only lines that span chunks."""

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


def _checked(meta: ListMeta) -> ListMeta:
    if not meta.resource_version.isdecimal():
        raise Unreadable(f'the list has resourceVersion "{meta.resource_version}", from which no watch can start')
    return meta


def _undecodable(meta: Any, error: ValueError, salvaged: Any = None) -> UndecodableObject:
    if not meta.name:
        raise Unreadable(f"an object has no name: {error}") from error
    version = int(meta.resource_version) if meta.resource_version.isdecimal() else 0
    return UndecodableObject((meta.namespace or "", meta.name), meta.uid, version, str(error), salvaged)


def decoder_for(resource: Resource[T]) -> ObjectDecoder[Any, T]:
    """A new decoder for objects of this resource. Keep it: decoders cache what objects have in common."""
    if resource.make_decoder is not None:
        return resource.make_decoder()
    kind: Any = resource.type
    return ObjectDecoder(kind, _without_managed_fields)


class Decoders:
    """One decoder per resource, created at its first use."""

    def __init__(self) -> None:
        self._decoders: dict[Resource[Any], ObjectDecoder[Any, Any]] = {}

    def __getitem__(self, resource: Resource[T]) -> ObjectDecoder[Any, T]:
        decoder = self._decoders.get(resource)
        if decoder is None:
            decoder = self._decoders[resource] = decoder_for(resource)
        return decoder


def _without_managed_fields(decoded: T) -> T:
    if isinstance(decoded, Object):
        # As `Raw` they would keep the page in memory. An update without managedFields leaves them unchanged.
        decoded.metadata.managed_fields = []
    return decoded
