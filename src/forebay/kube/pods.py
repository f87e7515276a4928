"""Pods from the API server's JSON, with as little as possible kept of each (see `measured.md`, section 1).

Whatever pods have in common is one object for all of them: shape, labels, annotations, owner, names of nodes. The
decoder of an informer reads container statuses, and so the time a pod ran, only where somebody counts it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import Raw

from forebay.api.names import BUDGET_GATE, USAGE_FINALIZER
from forebay.kube.decoders import ObjectDecoder
from forebay.kube.index import Index
from forebay.kube.interning import Interned, interned_strings
from forebay.kube.resources import Resource
from forebay.kube.shapes import ABSENT, BETWEEN, Shapes, SpecParts
from forebay.model.workloads import Owner, Phase, Pod, PodShape

#: Annotations that mean something to Forebay; a pod's others are not kept.
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
BY_NODE: Final = "pods by node"
BY_OWNER: Final = "pods by owner"
MARKED: Final = "pods with marks of budgets"


class _Meta(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    # The fields of all wire types stand in the API server's own order, which msgspec then need not search for.
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
_LATEST: Final = 4_096
#: Looked up once: reading a member of an enum is slow.
_UNKNOWN: Final = Phase.UNKNOWN
_NO_LABELS: Final[Mapping[str, str]] = {}


class _Template(msgspec.Struct, frozen=True, gc=False):
    """What pods of one template have in common."""

    shape: PodShape
    #: When its pods ran is read.
    timed: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    mirror: bool
    owner: Owner | None
    finalizers: tuple[str, ...]


class _Latest(msgspec.Struct, frozen=True, gc=False):
    """What the latest pod of an owner was made of, apart from its node."""

    labels: Raw
    annotations: Raw
    owner_references: Raw
    finalizers: Raw
    spec: SpecParts
    template: _Template


class PodDecoder(ObjectDecoder[_PodOnWire, Pod]):
    """Builds pods; holds the tables of what they have in common. They are bounded, so it may live for ever.

    `timed` are the resources, beside GPUs, whose pods' start and end are read from their container statuses; None: of
    every pod. In a cluster of 100,000 pods these statuses cost more than all else that is read of a pod.

    Three ways to the same: most pods are like the latest one of their owner, which a comparison shows; else the text of
    all parts together is looked up; else, where a label or an annotation differs from pod to pod (StatefulSets, indexed
    Jobs), the inner tables still know the other parts.
    """

    def __init__(self, timed: Collection[str] | None = None) -> None:
        super().__init__(_PodOnWire, self.build)
        self._timed = None if timed is None else frozenset(timed)
        self._latest: dict[str, _Latest] = {}
        self._templates: Interned[bytes, _Template] = Interned(self._make_template, 4_096)
        self._shapes = Shapes()
        self._names = interned_strings(65_536)
        self._labels: Interned[bytes, Mapping[str, str]] = Interned(self._make_labels, 16_384)
        self._annotations: Interned[bytes, tuple[Mapping[str, str], bool]] = Interned(_make_annotations, 4_096)
        self._owners: Interned[bytes, Owner | None] = Interned(self._make_owner, 16_384)

    def read_times_of(self, resources: Collection[str]) -> None:
        """Replaces `timed`. Only while no pods are being read: before the informer starts, or before it lists again."""
        self._timed = frozenset(resources)
        self._latest.clear()
        self._templates = Interned(self._make_template, 4_096)

    def build(self, wire: _PodOnWire) -> Pod:
        """Raises `ValueError` for a pod that cannot be read."""
        meta, status = wire.metadata, wire.status
        template, node = self._template(meta, wire.spec)
        names = self._names
        phase = _PHASES.get(status.phase, _UNKNOWN)
        since = message = nominated = started = finished = None
        restarted = False
        if not node:
            since, message = self._unschedulable(status.conditions)
            # Says nothing of a pod that has its node.
            nominated = names[status.nominated_node_name] if status.nominated_node_name else None
        if template.timed:
            started, finished, restarted = _ran(status.init_container_statuses, status.container_statuses, phase)
        # In the order of its fields: by their names it takes four times as long.
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
            meta.deletion_timestamp,
            since,
            message,
            template.finalizers,
            started,
            finished,
            restarted,
            template.mirror,
        )

    def _template(self, meta: _Meta, spec: SpecParts) -> tuple[_Template, str]:
        """And the name of the node, the one thing in a spec in which pods of a template differ."""
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
        # Seen a second time, so there is a third. Copies, because a `Raw` keeps the page it was cut from.
        if len(self._latest) >= _LATEST:
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
        labels, annotations, owners, finalizers, of_shape = key.split(BETWEEN, 4)
        shape = self._shapes[of_shape]
        return _Template(
            shape,
            self._timed is None or bool(shape.gpus()) or not self._timed.isdisjoint(shape.requests),
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

    def _unschedulable(self, conditions: Raw) -> tuple[datetime | None, str | None]:
        for condition in (_conditions.decode(conditions) if conditions else None) or ():
            if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
                return condition.last_transition_time, self._names[condition.message]
        return None, None


def _key(meta: _Meta, spec: SpecParts) -> bytes:
    return BETWEEN.join((meta.labels, meta.annotations, meta.owner_references, meta.finalizers, *spec.parts()))


def _make_annotations(text: bytes) -> tuple[Mapping[str, str], bool]:
    annotations = (_labels.decode(text) if text else None) or _NO_LABELS
    kept = {key: value for key, value in annotations.items() if key.startswith(ANNOTATION_PREFIXES)}
    return kept or _NO_LABELS, _MIRROR in annotations


def _ran(init: Raw, main: Raw, phase: Phase) -> tuple[datetime | None, datetime | None, bool]:
    """Earliest start of any container, init containers and sidecars included; latest end, once the pod has ended and
    every container that ran shows its own; whether one was started again, so that earlier starts may not be shown.
    """
    starts: list[datetime] = []
    ends: list[datetime] = []
    restarted, told = False, phase.ended
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
                        told = False
    return min(starts, default=None), max(ends, default=None) if told else None, restarted


def is_pending(pod: Pod) -> bool:
    """Waits for a node: not bound, not ended, not asked to go."""
    return pod.node is None and pod.deleted is None and not pod.phase.ended


def asks_for_gpu(pod: Pod) -> bool:
    return bool(pod.shape.requests.gpus())


def pod_indexes(gpu_resources: Collection[str] | None = None) -> tuple[Index[Pod], ...]:
    """PENDING_GPU (under True), BY_NODE, BY_OWNER (uid), MARKED (USAGE_FINALIZER, BUDGET_GATE).

    `gpu_resources` are the resources by which pods ask for GPUs; None: every `<vendor>/gpu`.
    """
    asks = asks_for_gpu if gpu_resources is None else lambda pod: bool(pod.shape.requests.gpus(gpu_resources))
    return (
        Index(BY_NODE, attrgetter("node")),
        Index(BY_OWNER, lambda pod: None if pod.owner is None else pod.owner.uid),
        Index(MARKED, _marks, several=True),
        Index(PENDING_GPU, lambda pod: is_pending(pod) or None, among=asks),
    )


def _marks(pod: Pod) -> tuple[str, ...]:
    if not pod.finalizers and not pod.shape.scheduling_gates:
        return ()
    finalizer = (USAGE_FINALIZER,) if USAGE_FINALIZER in pod.finalizers else ()
    return (*finalizer, BUDGET_GATE) if BUDGET_GATE in pod.shape.scheduling_gates else finalizer


PODS: Final = Resource(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    namespaced=True,
    type=Pod,
    make_decoder=PodDecoder,
)
