"""Pods of a saved snapshot. Each pod shape is written once, because the many pods of a template share it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict

from forebay.model.encoding import enc_hook
from forebay.model.workloads import Owner, Phase, Pod, PodShape

_encoder = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted")


class NotASnapshot(ValueError):
    """The file is not a snapshot that this release reads; the message says why."""


class SavedPod(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A pod, with the index of its shape among the shapes of the file."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    created: datetime
    shape: int
    phase: Phase
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner: Owner | None = None
    node: str | None = None
    nominated_node: str | None = None
    deleted: datetime | None = None
    unschedulable_since: datetime | None = None
    unschedulable_message: str | None = None
    finalizers: tuple[str, ...] = ()
    started: datetime | None = None
    finished: datetime | None = None
    restarted: bool = False
    mirror: bool = False
    refusal: str | None = None
    scheduler_error_since: datetime | None = None
    capacity: str | None = None


class SavedShapes:
    """Pod shapes in the order in which they were first seen, each once."""

    def __init__(self) -> None:
        self.found: list[PodShape] = []
        self._by_content: dict[bytes, int] = {}
        self._by_id: dict[int, int] = {}

    def index(self, shape: PodShape) -> int:
        index = self._by_id.get(id(shape))
        if index is None:
            index = self._by_content.setdefault(_encoder.encode(shape), len(self.found))
            if index == len(self.found):
                self.found.append(shape)
            self._by_id[id(shape)] = index
        return index

    def pods(self, pods: Iterable[Pod]) -> tuple[SavedPod, ...]:
        return tuple(SavedPod(**{**asdict(pod), "shape": self.index(pod.shape)}) for pod in pods)


def loaded_pods(saved: Iterable[SavedPod], shapes: tuple[PodShape, ...]) -> tuple[Pod, ...]:
    return tuple(_pod(each, shapes) for each in saved)


def _pod(saved: SavedPod, shapes: tuple[PodShape, ...]) -> Pod:
    fields: dict[str, Any] = asdict(saved)
    return Pod(**{**fields, "shape": shapes[saved.shape]})
