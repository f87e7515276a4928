"""Decisions that a tick may return. Each carries its reason: a word for programs and a sentence for people.

Decisions about a GPUInstance are in `lifecycle.steps`, about startup taints in `demand.startup_taint`, about the
pods of a budget in `budgets`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool, PoolDecision
from forebay.api.parts import Condition
from forebay.budgets.admission import Release
from forebay.budgets.enforcement import Alert, CannotPause, Evict, Pause, RemovePauseMarks, Resume
from forebay.demand.refusal import RecordRefusal
from forebay.demand.startup_taint import AddToleration, OpenNode, ReserveNode
from forebay.lifecycle.node_certificates import ApproveCertificate, CertificateDecision
from forebay.lifecycle.steps import Adopt, AnyStep
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.model.workloads import Owner, Pod


class ReportPool(msgspec.Struct, frozen=True, kw_only=True):
    """Write the status of a GPUNodePool."""

    namespace: str
    name: str
    uid: str
    #: Version that the tick saw: the API server refuses the write where the pool has changed since.
    resource_version: int
    generation: int
    #: The complete list, conditions of other writers included.
    conditions: tuple[Condition, ...]
    #: Number of the pool's GPUInstances, their cost in USD per hour, and their GPUs by resource.
    node_count: int
    hourly_cost: str
    resources: Mapping[str, int] = {}
    #: Offers of its class.
    #: None: not known yet.
    offers: int | None = None
    last_decisions: tuple[PoolDecision, ...] = ()
    reason: Reason
    sentence: str


class ReportClass(msgspec.Struct, frozen=True, kw_only=True):
    """Write the status of a GPUNodeClass: conditions of the class and of its providers."""

    name: str
    uid: str
    resource_version: int
    generation: int
    conditions: tuple[Condition, ...]
    active_nodes: int
    hourly_cost: str
    #: None: not known yet.
    offers: int | None
    reason: Reason
    sentence: str


class ReportProvisioner(msgspec.Struct, frozen=True, kw_only=True):
    """Write the status of a NodeProvisioner."""

    name: str
    uid: str
    #: Version that the tick saw: the API server refuses the write where the object has changed since.
    resource_version: int
    generation: int
    #: The complete list, conditions of other writers included.
    conditions: tuple[Condition, ...]
    #: Values by the name of their status field; None removes the field.
    figures: Mapping[str, Any]
    reason: Reason
    sentence: str


class ReportBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Write the status of a GPUWorkloadBudget, and the labels by which admission policies select budgets."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    generation: int
    conditions: tuple[Condition, ...]
    #: Values by the name of their status field; None removes the field.
    figures: Mapping[str, Any]
    #: None removes the label.
    labels: Mapping[str, str | None]
    #: Sentence of the warning event that the quota will soon be used up; None where no warning is due.
    forecast_warning: str | None = None
    reason: Reason
    sentence: str


class AddUsageFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Add the usage finalizer, so that the pod object stays until its usage is stored."""

    pod: Pod


class RemoveUsageFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the usage finalizer: the pod's usage is stored, or no budget counts the pod any more."""

    pod: Pod


class RemovePauseAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the annotations that ask for a pause: the pod's budget has headroom, or no longer pauses."""

    pod: Pod


class CreateInstance(msgspec.Struct, frozen=True, kw_only=True):
    """Create a GPUInstance: the durable intent to launch. The provider is called only after this write."""

    name: str
    spec: GPUInstanceSpec
    #: Initial status, where it is not empty.
    status: GPUInstanceStatus | None = None
    reason: Reason
    sentence: str


class SetClassFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Add or remove the finalizer that keeps a GPUNodeClass until its machines are gone."""

    node_class: GPUNodeClass
    present: bool


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """Create or set back the class or the pool that shows the machines of environment variables."""

    wanted: GPUNodeClass | GPUNodePool
    #: As it is in the cluster; None where it is not there.
    published: GPUNodeClass | GPUNodePool | None


class Unpublish(msgspec.Struct, frozen=True, kw_only=True):
    """Delete that class or pool: no environment variable names a machine any more."""

    published: GPUNodeClass | GPUNodePool


class SyncNode(msgspec.Struct, frozen=True, kw_only=True):
    """Add the planned labels, annotations and taints that a registered node lacks: its pods were planned with them.

    Also adds or removes the out-of-service taint of a machine that is proven off.
    """

    #: None: no GPUInstance is left of the machine.
    record: GPUInstance | None
    node: Node
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    remove: tuple[Taint, ...] = ()
    annotations: Mapping[str, str] = {}


class PodEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Emit an event on a pending pod: why it waits, and what comes next."""

    pod: Pod
    reason: Reason
    sentence: str
    #: Somebody has to act, or the pod stays pending.
    warning: bool = False


class OwnerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Emit an event on a Job, ReplicaSet or other owner, many of whose pods wait for the same reason."""

    namespace: str
    owner: Owner
    #: Number of pods that wait.
    pods: int
    reason: Reason
    #: Why one of them waits.
    sentence: str
    warning: bool


class UnreadableInstance(msgspec.Struct, frozen=True, kw_only=True):
    """Emit an event on a GPUInstance that cannot be read."""

    name: str
    reason: Reason
    sentence: str


class CapacityChange(msgspec.Struct, frozen=True):
    """What the condition CAPACITY_CONDITION of a pod should say."""

    pod: Pod
    #: Whether the pod has a node: status True.
    bound: bool
    reason: Reason
    message: str

    @property
    def text(self) -> str:
        """As `Pod.capacity` has it."""
        return f"{self.reason}: {self.message}"


class ReportCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """Write the condition CAPACITY_CONDITION of pods, as fast as the API server's means allow."""

    #: Pods whose condition is missing or has another reason, the most important first.
    changes: tuple[CapacityChange, ...] = ()
    #: Pods whose condition has the right reason, but a sentence that is no longer true.
    refreshes: tuple[CapacityChange, ...] = ()


#: Decisions about budgets, their pods and their Jobs.
BudgetDecision = (
    ReportBudget
    | Evict
    | Pause
    | CannotPause
    | Resume
    | RemovePauseMarks
    | Alert
    | Release
    | AddUsageFinalizer
    | RemoveUsageFinalizer
    | RemovePauseAnnotations
)
Decision = (
    ReportPool
    | ReportClass
    | ReportProvisioner
    | CreateInstance
    | Adopt
    | AnyStep
    | CertificateDecision
    | SetClassFinalizer
    | Publish
    | Unpublish
    | SyncNode
    | ReserveNode
    | AddToleration
    | OpenNode
    | RecordRefusal
    | PodEvent
    | OwnerEvent
    | UnreadableInstance
    | ReportCapacity
    | BudgetDecision
)


def subject(decision: Decision) -> tuple[str, str, str]:
    """Key of the object that the decision is about. Decisions about one object are applied in order."""
    match decision:
        case ReportPool():
            return ("pool", decision.namespace, decision.name)
        case ReportClass():
            return ("class", "", decision.name)
        case ReportProvisioner():
            return ("provisioner", "", decision.name)
        case SetClassFinalizer():
            return ("class", "", decision.node_class.metadata.name)
        case Publish():
            return (_kind(decision.wanted), *decision.wanted.key)
        case Unpublish():
            return (_kind(decision.published), *decision.published.key)
        case CreateInstance() | Adopt() | UnreadableInstance():
            return ("record", "", decision.name)
        case ReportBudget():
            return ("budget", decision.namespace, decision.name)
        case Alert():
            return ("budget", *decision.budget)
        case Pause():
            return ("job", decision.pod.namespace, decision.job.name)
        case Resume() | RemovePauseMarks():
            return ("job", decision.namespace, decision.job.name)
        case (
            PodEvent()
            | RecordRefusal()
            | AddToleration()
            | Evict()
            | CannotPause()
            | Release()
            | AddUsageFinalizer()
            | RemoveUsageFinalizer()
            | RemovePauseAnnotations()
        ):
            return ("pod", *decision.pod.key)
        case OwnerEvent():
            return ("owner", decision.namespace, decision.owner.uid)
        case ReportCapacity():
            return ("conditions", "", "")
        case ApproveCertificate():
            return ("certificate", "", decision.request.name)
        case SyncNode() | OpenNode():
            # Not the record's key: where a write to the Node fails, the machine must still be terminated. A node is
            # reserved under that key, because its machine is launched afterwards.
            return ("node", "", decision.node.name)
        case _:
            return ("record", "", decision.record.metadata.name)


def _kind(published: GPUNodeClass | GPUNodePool) -> str:
    return "class" if isinstance(published, GPUNodeClass) else "pool"
