"""Pods as capacity planning sees them.

A cluster has many pods and few *shapes*: pods of one template ask for the same things. What scheduling looks at is the
`PodShape`, one object shared by all its pods; what differs from pod to pod is the `Pod`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from forebay.model.quantities import Resources
from forebay.model.requirements import LabelSelector, NodeSelectorTerm, PreferredTerm, Toleration


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def ended(self) -> bool:
        """Holds nothing on its node any more."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class PodAffinityTerm(msgspec.Struct, frozen=True):
    """Required (anti-)affinity to the pods that `selector` picks in `namespaces` (empty: the pod's own)."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...] = ()


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """All that a scheduler looks at, alike for every pod of a template."""

    #: What the scheduler reserves: the larger of init phase and run phase, sidecars and overhead included.
    requests: Resources
    node_selector: Mapping[str, str] = {}
    #: Required node affinity; the terms are alternatives. None where the pod has none: then every node will do.
    node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_node_affinity: tuple[PreferredTerm, ...] = ()
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[str, ...] = ()
    #: Host ports as (port, protocol): two pods with one in common cannot share a node.
    host_ports: tuple[tuple[int, str], ...] = ()


class Owner(msgspec.Struct, frozen=True):
    """The controller that made the pod."""

    kind: str
    name: str
    uid: str


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    namespace: str
    name: str
    uid: str
    resource_version: int
    created: datetime
    shape: PodShape
    phase: Phase
    labels: Mapping[str, str]
    #: Only those under prefixes that mean something to Forebay.
    annotations: Mapping[str, str]
    owner: Owner | None
    node: str | None
    nominated_node: str | None
    #: When it was asked to end.
    deleted: datetime | None
    #: Since when, and in the scheduler's words why, no node takes it.
    unschedulable_since: datetime | None
    unschedulable_message: str | None
    finalizers: tuple[str, ...]
    #: First container start and last container end; only for pods that ask for a GPU.
    started: datetime | None = None
    finished: datetime | None = None
    #: A mirror of a static pod: only its kubelet can end it.
    mirror: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)
