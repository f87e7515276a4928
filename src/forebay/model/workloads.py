"""Pods as capacity planning sees them.

A cluster has many pods and few *shapes*: pods of one template request the same things. Everything that scheduling looks
at is in the `PodShape`, one object shared by all its pods; what differs from pod to pod is in the `Pod`.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from forebay.model.quantities import Gpus, Quantity, Resources
from forebay.model.requirements import LabelSelector, NodeSelectorTerm, PreferredTerm, Toleration

#: Resource of which every pod takes one and nodes have as many as they may run pods.
POD_COUNT: Final = "pods"


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def ended(self) -> bool:
        """Whether the pod has finished and uses nothing of its node any more."""
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
    #: Whether nodes count that the pod's node affinity, or their taints, do not allow: nodeAffinityPolicy: Honor and
    #: nodeTaintsPolicy: Ignore are the defaults of Kubernetes.
    honors_node_affinity: bool = True
    honors_node_taints: bool = False


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a scheduler looks at, equal for all pods of a template."""

    #: What the scheduler reserves, computed by `effective_requests`; one of POD_COUNT included.
    requests: Resources
    node_selector: Mapping[str, str] = {}
    #: Required node affinity; the terms are alternatives. None: all nodes match.
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
    #: Whether the pod has resource claims, by which it may use GPUs that it does not request.
    resource_claims: bool = False

    def gpus(self, names: Collection[str] | None = None) -> Gpus:
        """GPUs requested, counted in the resources `names`; by default in every vendor's `<vendor>/gpu`."""
        return self.requests.gpus(names)


class Owner(msgspec.Struct, frozen=True):
    """The controller that created the pod."""

    kind: str
    name: str
    uid: str


class Pod(msgspec.Struct, frozen=True, gc=False):
    """One pod. Code that creates a hundred thousand passes the fields by position, which saves a fifth of the time."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    created: datetime
    shape: PodShape
    phase: Phase
    labels: Mapping[str, str]
    #: Only annotations under prefixes that Forebay uses.
    annotations: Mapping[str, str]
    owner: Owner | None
    node: str | None
    nominated_node: str | None
    #: Deletion timestamp.
    deleted: datetime | None
    #: Since when the pod is unschedulable, and the scheduler's message.
    unschedulable_since: datetime | None
    unschedulable_message: str | None
    finalizers: tuple[str, ...]
    #: First start and last finish of any container; only for pods that request a GPU or what a budget counts.
    started: datetime | None = None
    finished: datetime | None = None
    #: A container was started more than once, so its first start may be unknown.
    restarted: bool = False
    #: A mirror of a static pod, which only its kubelet can delete.
    mirror: bool = False
    #: The scheduler's message when it did not use a node launched for the pod; None where that has not happened.
    refusal: str | None = None
    #: Since when the scheduler reports an error instead of an answer; the error is in `unschedulable_message`.
    scheduler_error_since: datetime | None = None
    #: `Reason: message` of the condition CAPACITY_CONDITION; None where the pod has none, or has it with status True.
    capacity: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def occupies_node(self) -> bool:
        """Whether the pod is a reason to keep its node. DaemonSet and mirror pods and finished pods are not."""
        return not (self.phase.ended or self.mirror or (self.owner is not None and self.owner.kind == "DaemonSet"))


def pod_names(pods: Collection[Pod], most: int = 3) -> str:
    """`team/a, team/b and 4 more`."""
    names = sorted(f"{pod.namespace}/{pod.name}" for pod in pods)
    shown, rest = names[:most], len(names) - most
    if rest > 0:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


class ContainerResources(msgspec.Struct, frozen=True):
    """`resources` of a container or of a whole pod, still as Kubernetes quantities."""

    requests: Mapping[str, str | int] = {}
    limits: Mapping[str, str | int] = {}
    #: An init container with `restartPolicy: Always`: a sidecar.
    restartable: bool = False


def effective_requests(
    containers: Iterable[ContainerResources],
    init_containers: Iterable[ContainerResources] = (),
    overhead: Mapping[str, str | int] | None = None,
    pod_level: ContainerResources | None = None,
) -> Resources:
    """Resources that the scheduler reserves for a pod (KEP-753), one of POD_COUNT included.

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
    """Requests of the container in billionths. A limit stands in for a missing request, as in the API server."""
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
    """`total` with pod-level requests in its place; a pod-level limit counts only where no container has a request."""
    return {**_of_a_pod(pod_level.limits), **total, **_of_a_pod(pod_level.requests)}


def _of_a_pod(quantities: Mapping[str, str | int]) -> dict[str, int]:
    """Pod-level amounts: cpu, memory and huge pages. The scheduler ignores other pod-level resources."""
    return {
        name: amount
        for name, amount in _nano(quantities).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
