"""Decoder of Pods.

Pods share one object for everything they have in common: shape, labels, annotations, owner, node names. The decoder of
an informer skips container statuses, from which run times are read, unless a budget needs them.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw

from forebay.api.names import CAPACITY_CONDITION, REFUSED_CONDITION
from forebay.kube.decoders import ObjectDecoder
from forebay.kube.interning import Interned, interned_strings
from forebay.kube.pod_run_times import run_times
from forebay.kube.resources import Resource
from forebay.kube.salvage import LATEST, salvaged_pod
from forebay.kube.shapes import ABSENT, SEPARATOR, Shapes, SpecParts
from forebay.model.workloads import Owner, Phase, Pod, PodShape

#: Annotations that Forebay reads; all others are dropped.
ANNOTATION_PREFIXES: Final = (
    "forebay.dev/",
    "runpod.io/",
    "tgp.io/",
    "budget.zxuhan.dev/",
    "nodeprovisioner.compute.baseten.co/",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
)
_MIRROR: Final = "kubernetes.io/config.mirror"


class _Meta(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    # Fields are in the order in which the API server writes them: msgspec finds the next one without a search.
    name: str
    generate_name: str = ""
    namespace: str = ""
    uid: str
    resource_version: str
    creation_timestamp: datetime
    deletion_timestamp: datetime | None = None
    labels: Raw = ABSENT
    annotations: Raw = ABSENT
    owner_references: Raw = ABSENT
    finalizers: Raw = ABSENT


class _Status(msgspec.Struct, gc=False, rename="camel"):
    phase: str = ""
    conditions: Raw = ABSENT
    nominated_node_name: str = ""
    init_container_statuses: Raw = ABSENT
    container_statuses: Raw = ABSENT


class _PodOnWire(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: SpecParts
    status: _Status


class _OwnerReference(msgspec.Struct):
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


_labels = msgspec.json.Decoder(dict[str, str] | None)
_owners = msgspec.json.Decoder(list[_OwnerReference] | None)
_conditions = msgspec.json.Decoder(list[_Condition] | None)
_finalizers = msgspec.json.Decoder(tuple[str, ...] | None)

_PHASES: Final = {phase.value: phase for phase in Phase}
_MAX_LATEST: Final = 4_096
#: Module constants, because reading an enum member is slow.
_UNKNOWN: Final = Phase.UNKNOWN
_NO_LABELS: Final[Mapping[str, str]] = {}
_CAPACITY: Final = CAPACITY_CONDITION.encode()


class _Template(msgspec.Struct, frozen=True, gc=False):
    """The parts that pods of one pod template share."""

    shape: PodShape
    #: Whether to read when these pods ran.
    timed: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    mirror: bool
    owner: Owner | None
    finalizers: tuple[str, ...]


class _Latest(msgspec.Struct, frozen=True, gc=False):
    """Encoded parts of the latest pod of an owner, without its node, and the template decoded from them."""

    labels: Raw
    annotations: Raw
    owner_references: Raw
    finalizers: Raw
    spec: SpecParts
    template: _Template


class PodDecoder(ObjectDecoder[_PodOnWire, Pod]):
    """Decodes pods. Keeps bounded tables of the parts that pods share.

    `timed` names resources, besides GPUs, for whose pods the run time is read from container statuses; None reads it
    for every pod, which makes decoding about a fifth slower.

    Three look-ups, fastest first: the encoded parts equal those of the latest pod of the same owner; all parts together
    are in the table of templates; or, where labels or annotations differ from pod to pod (StatefulSets, indexed Jobs),
    each part is in a table of its own.
    """

    def __init__(self, timed: Collection[str] | None = None) -> None:
        super().__init__(_PodOnWire, self.build, salvage=salvaged_pod)
        self._timed = None if timed is None else frozenset(timed)
        self._latest: dict[str, _Latest] = {}
        self._templates: Interned[bytes, _Template] = Interned(self._make_template, 4_096)
        self._shapes = Shapes()
        self._names = interned_strings(65_536)
        self._labels: Interned[bytes, Mapping[str, str]] = Interned(self._make_labels, 16_384)
        self._annotations: Interned[bytes, tuple[Mapping[str, str], bool]] = Interned(_make_annotations, 4_096)
        self._owners: Interned[bytes, Owner | None] = Interned(self._make_owner, 16_384)

    def read_times_of(self, resources: Collection[str]) -> None:
        """Replaces `timed`. Call it only before the informer starts or inside `Informer.relist`."""
        self._timed = frozenset(resources)
        self._latest.clear()
        self._templates = Interned(self._make_template, 4_096)

    def build(self, wire: _PodOnWire) -> Pod:
        """Raises `ValueError` for a pod that does not decode."""
        meta, status = wire.metadata, wire.status
        template, node = self._template(meta, wire.spec)
        names = self._names
        phase = _PHASES.get(status.phase, _UNKNOWN)
        since = message = refusal = errors_since = capacity = nominated = started = finished = None
        restarted = False
        if not node:
            since, message, refusal, errors_since, capacity = self._read_conditions(status.conditions)
            # Meaningless for a bound pod.
            nominated = names[status.nominated_node_name] if status.nominated_node_name else None
        elif _CAPACITY in bytes(status.conditions):
            # Few bound pods have the condition, and decoding conditions takes longer than all the rest.
            capacity = self._read_conditions(status.conditions)[-1]
        if template.timed:
            started, finished, restarted = run_times(status.init_container_statuses, status.container_statuses, phase)
        # Positional arguments: keywords would take four times as long.
        return Pod(
            names[meta.namespace],
            meta.name,
            meta.uid,
            int(meta.resource_version),
            meta.creation_timestamp,
            template.shape,
            phase,
            template.labels,
            template.annotations,
            template.owner,
            names[node] if node else None,
            nominated,
            None if meta.deletion_timestamp is None else min(meta.deletion_timestamp, LATEST),
            since,
            message,
            template.finalizers,
            started,
            finished,
            restarted,
            template.mirror,
            refusal,
            errors_since,
            capacity,
        )

    def _template(self, meta: _Meta, spec: SpecParts) -> tuple[_Template, str]:
        """The template of a pod and its node name, the one field of the spec in which pods of a template differ."""
        node, spec.node_name = spec.node_name, ""
        latest = self._latest.get(meta.generate_name)
        if (
            latest is not None
            and latest.labels == meta.labels
            and latest.annotations == meta.annotations
            and latest.owner_references == meta.owner_references
            and latest.finalizers == meta.finalizers
            and latest.spec == spec
        ):
            return latest.template, node
        key = _key(meta, spec)
        template = self._templates.get(key)
        if template is None:
            return self._templates[key], node
        # The second pod of a template: more will follow. Copies, because a `Raw` keeps its whole page in memory.
        if len(self._latest) >= _MAX_LATEST:
            self._latest.clear()
        self._latest[meta.generate_name] = _Latest(
            meta.labels.copy(),
            meta.annotations.copy(),
            meta.owner_references.copy(),
            meta.finalizers.copy(),
            spec.copy(),
            template,
        )
        return template, node

    def _make_template(self, key: bytes) -> _Template:
        labels, annotations, owners, finalizers, shape_key = key.split(SEPARATOR, 4)
        shape = self._shapes[shape_key]
        return _Template(
            shape,
            self._timed is None
            or bool(shape.gpus())
            or shape.resource_claims
            or not self._timed.isdisjoint(shape.requests),
            self._labels[labels],
            *self._annotations[annotations],
            self._owners[owners],
            (_finalizers.decode(finalizers) if finalizers else None) or (),
        )

    def _make_labels(self, text: bytes) -> Mapping[str, str]:
        labels = _labels.decode(text) if text else None
        if not labels:
            return _NO_LABELS
        names = self._names
        return {names[key]: names[value] for key, value in labels.items()}

    def _make_owner(self, text: bytes) -> Owner | None:
        for owner in (_owners.decode(text) if text else None) or ():
            if owner.controller:
                return Owner(self._names[owner.kind], owner.name, owner.uid)
        return None

    def _read_conditions(
        self, conditions: Raw
    ) -> tuple[datetime | None, str | None, str | None, datetime | None, str | None]:
        """Since when the pod is unschedulable, the scheduler's message, the recorded refusal, since when the scheduler
        errs, and why the pod waits for capacity.
        """
        since = message = refusal = errors_since = capacity = None
        for condition in (_conditions.decode(conditions) if conditions else None) or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                if condition.reason == "Unschedulable":
                    since, message = condition.last_transition_time, self._names[condition.message]
                elif condition.reason == "SchedulerError":
                    errors_since, message = condition.last_transition_time, self._names[condition.message]
            elif condition.type == REFUSED_CONDITION and condition.status == "True":
                refusal = self._names[condition.message]
            elif condition.type == CAPACITY_CONDITION and condition.status == "False":
                capacity = self._names[f"{condition.reason}: {condition.message}"]
        return since, message, refusal, errors_since, capacity


def _key(meta: _Meta, spec: SpecParts) -> bytes:
    return SEPARATOR.join((meta.labels, meta.annotations, meta.owner_references, meta.finalizers, *spec.parts()))


def _make_annotations(text: bytes) -> tuple[Mapping[str, str], bool]:
    annotations = (_labels.decode(text) if text else None) or _NO_LABELS
    kept = {key: value for key, value in annotations.items() if key.startswith(ANNOTATION_PREFIXES)}
    return kept or _NO_LABELS, _MIRROR in annotations


def changes_more_than_capacity(old: Pod, new: Pod) -> bool:
    """False where nothing but the condition that says why the pod waits has changed: Forebay's own note, which may be
    written on thousands of pods in a row, and on which nothing depends.
    """
    if old.capacity == new.capacity:
        return True
    return msgspec.structs.replace(old, resource_version=new.resource_version, capacity=new.capacity) != new


PODS: Final = Resource(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    namespaced=True,
    type=Pod,
    make_decoder=PodDecoder,
)
