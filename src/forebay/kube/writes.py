"""Bodies of requests that change something: whole objects, patches, delete options."""

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
    """RFC 7386: maps are merged, null removes, lists are replaced whole."""
    return Patch("application/merge-patch+json", _encoder.encode(changes))


def json_patch(operations: Sequence[Mapping[str, Any]]) -> Patch:
    """RFC 6902. With a `test` operation it is a compare-and-swap on one field."""
    return Patch("application/json-patch+json", _encoder.encode(operations))


def strategic_merge_patch(changes: Mapping[str, Any]) -> Patch:
    """Kubernetes' own merge, which knows the keys of built-in lists. Custom resources answer 415."""
    return Patch("application/strategic-merge-patch+json", _encoder.encode(changes))


def encode_object(resource: Resource[T], written: T | Mapping[str, Any]) -> bytes:
    """The object as the API server reads it, with the apiVersion and kind that its type leaves out."""
    if isinstance(written, Mapping):
        return _encoder.encode({"apiVersion": resource.api_version, "kind": resource.kind, **written})
    # Spliced, not rebuilt: one pass of the encoder over the object, whatever its size.
    head = _encoder.encode({"apiVersion": resource.api_version, "kind": resource.kind})
    body = _encoder.encode(written)
    return head if body == b"{}" else head[:-1] + b"," + body[1:]


def key_of(written: Tracked | Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of an object about to be written."""
    if isinstance(written, Mapping):
        metadata = written.get("metadata", {})
        return metadata.get("namespace", ""), metadata.get("name", "")
    return written.key


def preconditions(uid: str | None) -> dict[str, Any]:
    return {} if uid is None else {"preconditions": {"uid": uid}}
