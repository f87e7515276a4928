"""The form in which a client gets objects: whole, or only their metadata. Tables are in `kubectl.tables`."""

from collections.abc import Sequence

from forebay.embedded.api.events import to_client
from forebay.embedded.api.kinds import POD_KIND, ApiKind
from forebay.embedded.api.objects import Json

_TYPE_META = frozenset({"kind", "apiVersion"})


class Form:
    """Whole objects, alone, in a list or in a watch."""

    def __init__(self, kind: ApiKind) -> None:
        self.kind = kind

    def one(self, obj: Json) -> Json:
        return to_client(self.kind, obj)

    def event(self, obj: Json) -> Json:
        """The object of a watch event."""
        return self.one(obj)

    def bookmark(self, meta: Json) -> Json:
        # A real server encodes an empty Pod with these two fields.
        empty = {"spec": {"containers": None}, "status": {}} if self.kind is POD_KIND else {}
        return {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": meta, **empty}

    def many(self, objects: Sequence[Json], meta: Json) -> Json:
        head = {"kind": self.kind.list_kind, "apiVersion": self.kind.api_version, "metadata": meta}
        items = [self.one(obj) for obj in objects]
        if not self.kind.custom:
            # In lists of built-in kinds a real server leaves kind and apiVersion out of the items.
            items = [{key: value for key, value in item.items() if key not in _TYPE_META} for item in items]
        return {**head, "items": items}


class PartialForm(Form):
    """Metadata only: `PartialObjectMetadata`."""

    def one(self, obj: Json) -> Json:
        return partial_metadata(obj)

    def bookmark(self, meta: Json) -> Json:
        return partial_metadata({"metadata": meta})

    def many(self, objects: Sequence[Json], meta: Json) -> Json:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
        return {**head, "items": [self.one(obj) for obj in objects]}


def partial_metadata(obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
