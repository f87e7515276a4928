"""Pods as capacity planning sees them.

A cluster has many pods and few *shapes*: pods of one template ask for the same things. What scheduling looks at is the
`PodShape`, one object shared by all its pods; what differs from pod to pod is the `Pod`.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from forebay.model.quantities import Gpus, Quantity, Resources
from forebay.model.requirements import LabelSelector, NodeSelectorTerm, PreferredTerm, Toleration

#: Nodes offer so many of it, and every pod takes one.
POD_COUNT: Final = "pods"


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


class TopologySpread(msgspec.Struct, frozen=True):
    """A required spread (`DoNotSchedule`) of the pods that `selector` picks in the namespace of the pod."""

    topology_key: str
    max_skew: int
    selector: LabelSelector | None
    #: Labels whose value on the pod itself is part of the selector.
    match_label_keys: tuple[str, ...] = ()
    min_domains: int | None = None


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """All that a scheduler looks at, alike for every pod of a template."""

    #: What the scheduler reserves, as `effective_requests` reckons it; one of POD_COUNT included.
    requests: Resources
    node_selector: Mapping[str, str] = {}
    #: Required node affinity; the terms are alternatives. None where the pod has none: then every node will do.
    node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_node_affinity: tuple[PreferredTerm, ...] = ()
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = ()
    topology_spread: tuple[TopologySpread, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[str, ...] = ()
    #: Host ports as (port, protocol): two pods with one in common cannot share a node.
    host_ports: tuple[tuple[int, str], ...] = ()

    def gpus(self, names: Collection[str] | None = None) -> Gpus:
        """Of the resources named, or of every vendor's `<vendor>/gpu`."""
        return self.requests.gpus(names)


class Owner(msgspec.Struct, frozen=True):
    """The controller that made the pod."""

    kind: str
    name: str
    uid: str


class Pod(msgspec.Struct, frozen=True, gc=False):
    """Made with names of its fields, but where a hundred thousand are: there their order saves a fifth of the time."""

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
    #: First start and last end of any container; only for pods that ask for a GPU or for what a budget counts.
    started: datetime | None = None
    finished: datetime | None = None
    #: A container was started more than once: earlier starts may no longer be shown.
    restarted: bool = False
    #: A mirror of a static pod: only its kubelet can end it.
    mirror: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def occupies_node(self) -> bool:
        """Its node is in use because of it. Pods that every node has, and pods that have ended, are no reason to keep
        a machine on.
        """
        return not (self.phase.ended or self.mirror or (self.owner is not None and self.owner.kind == "DaemonSet"))


class ContainerResources(msgspec.Struct, frozen=True):
    """`resources` of a container or of a whole pod, still as Kubernetes quantities."""

    requests: Mapping[str, str | int] = {}
    limits: Mapping[str, str | int] = {}
    #: An init container with `restartPolicy: Always`, better known as a sidecar.
    restartable: bool = False


def effective_requests(
    containers: Iterable[ContainerResources],
    init_containers: Iterable[ContainerResources] = (),
    overhead: Mapping[str, str | int] | None = None,
    pod_level: ContainerResources | None = None,
) -> Resources:
    """What the scheduler reserves for a pod (KEP-753; init containers in their order), one of POD_COUNT included.

    Init containers run one after the other, each beside the sidecars started before it; then the containers run
    beside all sidecars. The larger of the two is reserved, resource by resource. `pod_level` overrides where it is set.
    """
    running: dict[str, int] = {}
    for container in containers:
        _add(running, _asked(container))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in init_containers:
        asked = _asked(container)
        if container.restartable:
            _add(running, asked)
            _add(sidecars, asked)
            asked = {}
        _add(asked, sidecars)
        _raise_to(starting, asked)
    _raise_to(running, starting)
    if pod_level is not None:
        running = _overridden(running, pod_level)
    if overhead:
        _add(running, _nano(overhead))
    running[POD_COUNT] = Quantity.parse(1).nano
    return Resources.from_nano(running)


def _asked(container: ContainerResources) -> dict[str, int]:
    """A limit stands in for a request that was left out, as the API server's defaults have it."""
    return _nano({**container.limits, **container.requests})


def _nano(quantities: Mapping[str, str | int]) -> dict[str, int]:
    return {name: Quantity.parse(quantity).nano for name, quantity in quantities.items()}


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(least: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        least[name] = max(least.get(name, 0), amount)


def _overridden(total: dict[str, int], pod_level: ContainerResources) -> dict[str, int]:
    """Pod-level requests replace the sum; a pod-level limit alone only fills in where no container asks for any."""
    return {**_of_a_pod(pod_level.limits), **total, **_of_a_pod(pod_level.requests)}


def _of_a_pod(quantities: Mapping[str, str | int]) -> dict[str, int]:
    """Only these can be asked for by a pod as a whole; the scheduler overlooks others."""
    return {
        name: amount
        for name, amount in _nano(quantities).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
