"""What a tick may decide. Every decision says why, in a word for programs and a sentence for people.

What is decided about a GPUInstance is in `lifecycle.steps`, about a node that its pods wait for in `demand.promise`,
about the pods of a budget in `budgets`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.parts import Condition
from forebay.budgets.admission import Release
from forebay.budgets.enforcement import CannotPause, Evict, Pause, Resume
from forebay.demand.nomination import NominatePods
from forebay.lifecycle.steps import Adopt, AnyStep
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.model.workloads import Pod


class ReportPool(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the owner of a GPUNodePool how it stands."""

    namespace: str
    name: str
    uid: str
    #: What was looked at: the write is refused where the pool has changed meanwhile, and the next tick looks again.
    resource_version: int
    generation: int
    #: The whole list, as it is to stand in the status.
    conditions: tuple[Condition, ...]
    #: Of all its machines: how many, and what they cost per hour.
    node_count: int
    hourly_cost: str
    reason: Reason
    sentence: str


class ReportClass(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the owner of a GPUNodeClass how it and its providers stand."""

    name: str
    uid: str
    resource_version: int
    generation: int
    conditions: tuple[Condition, ...]
    active_nodes: int
    hourly_cost: str
    offers: int
    reason: Reason
    sentence: str


class ReportBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the owner of a GPUWorkloadBudget how it stands, and admission policies which budgets to look at."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    generation: int
    conditions: tuple[Condition, ...]
    #: By the name of their field in the status; None takes one away.
    figures: Mapping[str, Any]
    #: None: without it.
    labels: Mapping[str, str | None]
    #: It will be used up before long: what to say.
    forewarned: str | None = None
    reason: Reason
    sentence: str


class AddUsageFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Keep the pod from going before its time is recorded."""

    pod: Pod


class RemoveUsageFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Its time is recorded, or nobody needs it any more."""

    pod: Pod


class CreateInstance(msgspec.Struct, frozen=True, kw_only=True):
    """Write down that this capacity is wanted. Nothing is asked of its provider before that is durable."""

    name: str
    spec: GPUInstanceSpec
    #: What it begins with, where that is not nothing.
    status: GPUInstanceStatus | None = None
    reason: Reason
    sentence: str


class SetClassFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Keep a GPUNodeClass from going before its machines, or let it go now that they have."""

    node_class: GPUNodeClass
    held: bool


class SyncNode(msgspec.Struct, frozen=True, kw_only=True):
    """Put on a node what its plan says it carries: pods may ask for these labels, and must tolerate these taints."""

    record: GPUInstance
    node: Node
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


class PodEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Say on a pod why it waits, and what comes next."""

    pod: Pod
    reason: Reason
    sentence: str
    #: Nothing will happen by itself: somebody must do something.
    warning: bool = False


#: About pods for the sake of their budgets.
BudgetDecision = (
    ReportBudget | Evict | Pause | CannotPause | Resume | Release | AddUsageFinalizer | RemoveUsageFinalizer
)
Decision = (
    ReportPool
    | ReportClass
    | CreateInstance
    | Adopt
    | AnyStep
    | SetClassFinalizer
    | SyncNode
    | NominatePods
    | PodEvent
    | BudgetDecision
)


def subject(decision: Decision) -> tuple[str, str, str]:
    """Which object it is about: what is decided about one is done in order."""
    match decision:
        case ReportPool():
            return ("pool", decision.namespace, decision.name)
        case ReportClass():
            return ("class", "", decision.name)
        case SetClassFinalizer():
            return ("class", "", decision.node_class.metadata.name)
        case CreateInstance() | Adopt():
            return ("record", "", decision.name)
        case ReportBudget():
            return ("budget", decision.namespace, decision.name)
        case Pause():
            return ("job", decision.pod.namespace, decision.job.name)
        case Resume():
            return ("job", decision.namespace, decision.job.name)
        case PodEvent() | Evict() | CannotPause() | Release() | AddUsageFinalizer() | RemoveUsageFinalizer():
            return ("pod", *decision.pod.key)
        case SyncNode() | NominatePods():
            # Where these fail, the machine must be given back all the same.
            return ("node", "", decision.node.name)
        case _:
            return ("record", "", decision.record.metadata.name)
