"""Request bodies: whole objects, patches, preconditions."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from forebay.kube.resources import Resource, T, Tracked

FIELD_MANAGER = "forebay"

JSON = "application/json"

_encoder = msgspec.json.Encoder()


class Patch(msgspec.Struct, frozen=True):
    content_type: str
    body: bytes


def merge_patch(changes: Mapping[str, Any]) -> Patch:
    """JSON merge patch (RFC 7386): objects are merged, null removes a field, lists are replaced."""
    return Patch("application/merge-patch+json", _encoder.encode(changes))


def json_patch(operations: Sequence[Mapping[str, Any]]) -> Patch:
    """JSON patch (RFC 6902). A `test` operation makes it a compare-and-swap on one field."""
    return Patch("application/json-patch+json", _encoder.encode(operations))


def strategic_merge_patch(changes: Mapping[str, Any]) -> Patch:
    """Strategic merge patch, which merges lists of built-in kinds by key. Not supported for custom resources (415)."""
    return Patch("application/strategic-merge-patch+json", _encoder.encode(changes))


def encode_object(resource: Resource[T], written: T | Mapping[str, Any]) -> bytes:
    """The object as JSON, with apiVersion and kind, which the types leave out."""
    if isinstance(written, Mapping):
        return _encoder.encode({"apiVersion": resource.api_version, "kind": resource.kind, **written})
    # apiVersion and kind are spliced into the bytes, so that the object is encoded only once.
    head = _encoder.encode({"apiVersion": resource.api_version, "kind": resource.kind})
    body = _encoder.encode(written)
    return head if body == b"{}" else head[:-1] + b"," + body[1:]


def key_of(written: Tracked | Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of an object to write."""
    if isinstance(written, Mapping):
        metadata = written.get("metadata", {})
        return metadata.get("namespace", ""), metadata.get("name", "")
    return written.key


def preconditions(uid: str | None) -> dict[str, Any]:
    return {} if uid is None else {"preconditions": {"uid": uid}}
