"""API objects as they travel and are stored: plain JSON, identified by namespace and name."""

from collections.abc import Mapping
from typing import Any

import msgspec

Json = dict[str, Any]
Labels = Mapping[str, str]
#: Namespace and name; the namespace of a cluster-scoped object is empty.
StoredKey = tuple[str, str]


def object_key(obj: Json) -> StoredKey:
    meta = obj["metadata"]
    return (meta.get("namespace") or "", meta["name"])


def deep_copy(obj: Json) -> Json:
    """A copy that shares nothing with the original, so that it can be changed in place."""
    copy: Json = msgspec.json.decode(msgspec.json.encode(obj))
    return copy
