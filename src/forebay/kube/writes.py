"""Bodies of requests that change something: whole objects, patches, delete options."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from forebay.kube.resources import Resource, T, Tracked

FIELD_MANAGER = "forebay"

JSON = "application/json"
APPLY = "application/apply-patch+yaml"

Propagation = Literal["Background", "Foreground", "Orphan"]

_encoder = msgspec.json.Encoder()


class Patch(msgspec.Struct, frozen=True):
    content_type: str
    body: bytes


def merge(changes: Mapping[str, Any]) -> Patch:
    """RFC 7386: maps are merged, null removes, lists are replaced whole."""
    return Patch("application/merge-patch+json", _encoder.encode(changes))


def json_patch(operations: Sequence[Mapping[str, Any]]) -> Patch:
    """RFC 6902. With a `test` operation it is a compare-and-swap on one field."""
    return Patch("application/json-patch+json", _encoder.encode(operations))


def strategic(changes: Mapping[str, Any]) -> Patch:
    """Kubernetes' own merge, which knows the keys of built-in lists. Custom resources answer 415."""
    return Patch("application/strategic-merge-patch+json", _encoder.encode(changes))


def encode(resource: Resource[T], written: T | Mapping[str, Any]) -> bytes:
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


def preconditions(uid: str | None, resource_version: int | None) -> dict[str, Any]:
    held = {"uid": uid, "resourceVersion": None if resource_version is None else str(resource_version)}
    given = {name: value for name, value in held.items() if value is not None}
    return {"preconditions": given} if given else {}


def delete_options(
    *,
    propagation: Propagation | None = None,
    grace_period: int | None = None,
    uid: str | None = None,
    resource_version: int | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """All of it in the body: a server that is sent one does not look at the query, not even for `dryRun`."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", **preconditions(uid, resource_version)}
    if dry_run:
        options["dryRun"] = ["All"]
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    return options
