"""What a migration says beside the manifests that it writes."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from forebay.api.names import API_VERSION

Document: TypeAlias = dict[str, Any]


class NoteKind(StrEnum):
    """CHANGED: done, and good to know. NEEDED: a person must do it. IMPOSSIBLE: it could never have worked."""

    CHANGED = "changed"
    NEEDED = "needed"
    IMPOSSIBLE = "impossible"


class MigrationNote(msgspec.Struct, frozen=True):
    """One sentence about one object."""

    kind: NoteKind
    #: The object, as `GPUNodeClass standard`.
    about: str
    sentence: str
    #: The field of the new object that somebody must fill in. What is wrong with it is not said a second time.
    field: str = ""


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """The manifests to apply, and what to know about them."""

    manifests: tuple[Document, ...] = ()
    notes: tuple[MigrationNote, ...] = ()
    #: Values of Forebay's chart.
    values: Document = {}

    @property
    def complete(self) -> bool:
        """Whether the manifests can be applied as they are."""
        return not any(each.kind is NoteKind.NEEDED for each in self.notes)


class Notes:
    """Collects notes about one object."""

    def __init__(self, about: str) -> None:
        self.about = about
        self.found: list[MigrationNote] = []

    def changed(self, sentence: str) -> None:
        self._add(NoteKind.CHANGED, sentence)

    def needed(self, sentence: str, *, field: str = "") -> None:
        self._add(NoteKind.NEEDED, sentence, field)

    def impossible(self, sentence: str) -> None:
        self._add(NoteKind.IMPOSSIBLE, sentence)

    def _add(self, kind: NoteKind, sentence: str, field: str = "") -> None:
        note = MigrationNote(kind, self.about, sentence, field)
        if note not in self.found:
            self.found.append(note)


def described(document: Mapping[str, Any]) -> str:
    """Kind and name of an object, for notes."""
    metadata = mapping(document, "metadata")
    namespace = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{document.get('kind') or 'object'} {namespace}{metadata.get('name') or 'without a name'}"


def mapping(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The field, where it is a mapping; else an empty one."""
    found = value.get(name)
    return dict(found) if isinstance(found, Mapping) else {}


def items(value: Mapping[str, Any], name: str) -> list[Any]:
    """The field, where it is a list; else an empty one."""
    found = value.get(name)
    return list(found) if isinstance(found, list | tuple) else []


def manifest(kind: str, former: Document, spec: Document, suffix: str = "") -> Document:
    """An object of Forebay's with the name, labels and annotations of a former one."""
    before = mapping(former, "metadata")
    name = "-".join(filter(None, (str(before.get("name", "")), suffix)))
    kept = {key: before.get(key) for key in ("namespace", "labels")}
    annotations = mapping(before, "annotations")
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    metadata = without_nothing({"name": name, **kept, "annotations": annotations})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def listed(words: Iterable[str]) -> str:
    """Words as they are said: `a, b and c`."""
    found = list(words)
    return " and ".join((", ".join(found[:-1]), found[-1])) if len(found) > 1 else "".join(found)


def without_nothing(document: Document) -> Document:
    """The mapping without fields that are None or empty: they say nothing."""
    return {key: value for key, value in document.items() if value not in (None, {}, [], "")}
