"""Decoding of successful responses. A body that does not decode raises `Unreadable` with the object and the field."""

from typing import TypeVar, cast

import msgspec

from forebay.kube.decoders import Decoders, UndecodableObject
from forebay.kube.errors import Unreadable
from forebay.kube.lists import Page
from forebay.kube.resources import Resource, T

_D = TypeVar("_D")


class _Name(msgspec.Struct, kw_only=True):
    name: str = ""
    namespace: str = ""


class _Head(msgspec.Struct, kw_only=True):
    """Kind, namespace and name of any object, for messages."""

    kind: str = ""
    metadata: _Name = msgspec.field(default_factory=_Name)


_head = msgspec.json.Decoder(_Head)


class ResponseDecoder:
    """Decodes the responses to one client."""

    def __init__(self) -> None:
        self._decoders = Decoders()

    def object(self, resource: Resource[T], body: bytes, call: str) -> T:
        try:
            return self._decoders[resource].object(body)
        except ValueError as error:
            raise Unreadable(f"{call}: {_describe(resource, body)} cannot be read: {error}") from error

    def page(self, resource: Resource[T], body: bytes, call: str) -> Page[T]:
        try:
            metadata, found = self._decoders[resource].page(body)
            items = [_readable(resource, item) for item in found]
        except Unreadable as error:
            raise Unreadable(f"{call}: {error}") from error
        return Page(
            items=items,
            resource_version=int(metadata.resource_version),
            continue_token=metadata.continue_token,
        )


def _readable(resource: Resource[T], item: T | UndecodableObject) -> T:
    if isinstance(item, UndecodableObject):
        if item.salvaged is not None:
            return cast("T", item.salvaged)
        raise Unreadable(f"{resource.kind} {_full_name(*item.key)} cannot be read: {item.error}")
    return item


def decode_plain(body: bytes, kind: type[_D], call: str) -> _D:
    """A response that is no Kubernetes object, such as the version."""
    try:
        return msgspec.json.decode(body, type=kind)
    except ValueError as error:
        raise Unreadable(f"{call}: the response cannot be read: {error}") from error


def is_status(body: bytes) -> bool:
    """Whether the body is a `Status` instead of an object."""
    try:
        return _head.decode(body).kind == "Status"
    except ValueError:
        return False


def _describe(resource: Resource[T], body: bytes) -> str:
    try:
        name = _head.decode(body).metadata
    except ValueError:
        return f"a {resource.kind}"
    return f"{resource.kind} {_full_name(name.namespace, name.name)}"


def _full_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
