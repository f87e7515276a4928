"""Decoder of Pods, and the indexes over them.

Pods share one object for everything they have in common: shape, labels, annotations, owner, node names. The decoder of
an informer skips container statuses, from which run times are read, unless a budget needs them.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import Raw

from forebay.api.names import (
    BUDGET_GATE,
    CAPACITY_CONDITION,
    PAUSE_REQUESTED_BY_ANNOTATION,
    REFUSED_CONDITION,
    USAGE_FINALIZER,
)
from forebay.kube.decoders import ObjectDecoder
from forebay.kube.index import Index
from forebay.kube.interning import Interned, interned_strings
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

PENDING_GPU: Final = "pending GPU pods"
PENDING_CLAIMS: Final = "pending pods with resource claims that request no GPU"
BY_NODE: Final = "pods by node"
BY_OWNER: Final = "pods by owner"
MARKED: Final = "pods with a finalizer, gate or annotation of a budget"
TOLD_BUT_BOUND: Final = "bound pods whose condition says that they wait"


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


class _Ran(msgspec.Struct, rename="camel"):
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _State(msgspec.Struct):
    running: _Ran | None = None
    terminated: _Ran | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    state: _State | None = None
    last_state: _State | None = None
    restart_count: int = 0


_labels = msgspec.json.Decoder(dict[str, str] | None)
_owners = msgspec.json.Decoder(list[_OwnerReference] | None)
_conditions = msgspec.json.Decoder(list[_Condition] | None)
_container_statuses = msgspec.json.Decoder(list[_ContainerStatus] | None)
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
            started, finished, restarted = _run_times(status.init_container_statuses, status.container_statuses, phase)
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


def _run_times(init: Raw, main: Raw, phase: Phase) -> tuple[datetime | None, datetime | None, bool]:
    """Start, end and whether a container restarted, which means that earlier starts may be missing.

    The start is the earliest of any container, init containers and sidecars included. The end is the latest of any
    container, None until the pod has ended and every container that ran reports its end.
    """
    starts: list[datetime] = []
    ends: list[datetime] = []
    restarted, complete = False, phase.ended
    for statuses in (init, main):
        for container in (_container_statuses.decode(statuses) if statuses else None) or ():
            restarted |= container.restart_count > 0
            for state in (container.state, container.last_state):
                ran = state and (state.running or state.terminated)
                if ran:
                    if ran.started_at is not None:
                        starts.append(ran.started_at)
                    if ran.finished_at is not None:
                        ends.append(ran.finished_at)
                    elif state is container.state:
                        complete = False
    return min(starts, default=None), max(ends, default=None) if complete else None, restarted


def is_pending(pod: Pod) -> bool:
    """Whether a pod waits for a node: not bound, not ended, not being deleted."""
    return pod.node is None and pod.deleted is None and not pod.phase.ended


def asks_for_gpu(pod: Pod) -> bool:
    return pod.shape.requests.any_gpu()


def changes_more_than_capacity(old: Pod, new: Pod) -> bool:
    """False where nothing but the condition that says why the pod waits has changed: Forebay's own note, which may be
    written on thousands of pods in a row, and on which nothing depends.
    """
    if old.capacity == new.capacity:
        return True
    return msgspec.structs.replace(old, resource_version=new.resource_version, capacity=new.capacity) != new


def pod_indexes(gpu_resources: Collection[str] | None = None) -> tuple[Index[Pod], ...]:
    """PENDING_GPU, PENDING_CLAIMS and TOLD_BUT_BOUND (by True), BY_NODE, BY_OWNER (by UID), MARKED.

    MARKED is by USAGE_FINALIZER, BUDGET_GATE and PAUSE_REQUESTED_BY_ANNOTATION.

    `gpu_resources` are the resources that count as GPUs; None: every `<vendor>/gpu`.
    """
    wants_gpu = asks_for_gpu if gpu_resources is None else lambda pod: pod.shape.requests.any_gpu(gpu_resources)
    return (
        Index(BY_NODE, attrgetter("node")),
        Index(BY_OWNER, lambda pod: None if pod.owner is None else pod.owner.uid),
        Index(MARKED, _marks, several=True),
        Index(PENDING_GPU, lambda pod: is_pending(pod) or None, among=wants_gpu),
        Index(
            PENDING_CLAIMS,
            lambda pod: is_pending(pod) or None,
            among=lambda pod: pod.shape.resource_claims and not wants_gpu(pod),
        ),
        Index(TOLD_BUT_BOUND, _told_but_bound),
    )


def _told_but_bound(pod: Pod) -> bool | None:
    return (pod.capacity is not None and pod.node is not None and not pod.phase.ended) or None


def _marks(pod: Pod) -> tuple[str, ...]:
    if not pod.finalizers and not pod.shape.scheduling_gates and not pod.annotations:
        return ()
    finalizer = (USAGE_FINALIZER,) if USAGE_FINALIZER in pod.finalizers else ()
    gate = (BUDGET_GATE,) if BUDGET_GATE in pod.shape.scheduling_gates else ()
    pause = (PAUSE_REQUESTED_BY_ANNOTATION,) if PAUSE_REQUESTED_BY_ANNOTATION in pod.annotations else ()
    return (*finalizer, *gate, *pause)


PODS: Final = Resource(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    namespaced=True,
    type=Pod,
    make_decoder=PodDecoder,
)
