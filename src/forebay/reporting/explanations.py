"""Explanations of a pod, Job, node or GPUInstance: how it stands, why, and what comes next.

Pure: `forebay explain` reads the `ClusterView` and prints the `Explanation`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import BUDGET_GATE, MANAGED_MARK, PAUSED_AT_ANNOTATION, PAUSED_BY_ANNOTATION, VIRTUAL_NODE
from forebay.api.node_provisioner import NodeProvisioner, NodeProvisionerStatus
from forebay.api.parts import Truth
from forebay.demand.assessment import not_demand
from forebay.demand.planned_pods import planned_nodes
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.wording import for_pods
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Phase, Pod, pod_names
from forebay.offload.record_progress import did_anything
from forebay.reporting.budget_waits import is_gated
from forebay.reporting.cluster_view import INSTANCES, NODES, ClusterView, EventLine, JobView
from forebay.reporting.machines import MachineView, machine_view, price
from forebay.reporting.next_steps import (
    NO_OPERATOR,
    NOT_INSTALLED,
    next_of_gated_pod,
    next_of_instance,
    next_of_other_pod,
    next_of_waiting_pod,
    scheduler_name,
)
from forebay.reporting.status import capacity_launching

_NOT_RUN_YET: Final = frozenset({InstanceState.REQUESTED, InstanceState.LAUNCHING, InstanceState.LAUNCHED})


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """How one object stands, and what comes next."""

    #: Kind and name of the object.
    about: str
    #: The state in one word, for programs, and in sentences.
    reason: str
    answer: str
    #: How the answer was computed, one step a line.
    steps: list[str] = []
    #: What happens next, or what the user can do.
    next: str
    #: Of a pod: whether it is Unschedulable and needs capacity.
    waits_for_capacity: bool = False
    machines: list[MachineView] = []
    #: Unfinished pods of a Job.
    pods: list["Explanation"] = []
    #: None where this user may not list events.
    events: list[EventLine] | None = []
    #: What else this user may not list, and what is therefore not considered.
    hidden: tuple[str, ...] = ()


def explain_pod(pod: Pod, view: ClusterView, events: list[EventLine] | None) -> Explanation:
    """Whether the pod waits for capacity and why, and the GPUInstances that were created for it."""
    records = view.records or ()
    ours = planned_nodes(records, {pod.uid}).get(pod.uid, set())
    nodes = None if NODES in view.hidden else view.nodes
    found = not_demand(pod, view.gpu_resources, view.now, nodes=nodes, planned_nodes=ours)
    for_pod = sorted(
        (each for each in records if any(planned.uid == pod.uid for planned in each.spec.pods)), key=_oldest_first
    )
    reason: str
    if found is None:
        since = pod.unschedulable_since or pod.created
        gpus = pod.shape.gpus(view.gpu_resources)
        answer = (
            f"Waiting for capacity: requests {gpus}; {scheduler_name(pod)} has found no node for "
            f"{human(view.now - since)}. {_scheduler_message(pod)}"
        )
        told = capacity_launching(pod, records, view.now) or pod.capacity
        reason = Reason.UNSCHEDULABLE if told is None else told.partition(":")[0]
        following = next_of_waiting_pod(pod, for_pod, view, events)
    elif _waits_for_container(pod, for_pod):
        told = pod.capacity.partition(":")[0] if pod.capacity is not None else Reason.BOUND
        reason = told if _live(for_pod) is None else Reason.CAPACITY_LAUNCHING
        answer = f"Waiting for a remote container. {found.sentence}"
        following = next_of_waiting_pod(pod, for_pod, view, events)
    elif is_gated(pod):
        reason = Reason.HELD_BY_BUDGET
        answer = (
            f"Held by the scheduling gate {BUDGET_GATE}: the quota of a GPUWorkloadBudget was used up when the pod "
            "was created."
        )
        following = next_of_gated_pod(pod, view, events)
    else:
        reason, answer = found.reason, f"Not waiting for capacity. {found.sentence}"
        following = next_of_other_pod(pod, found.reason, view)
    wait = view.budget_waits.get(pod.uid)
    if wait is not None and (found is None or is_gated(pod)):
        answer = f"{answer.rstrip()} {' '.join(wait.standing)}"
    if pod.node is not None and not pod.phase.ended and INSTANCES not in view.hidden:
        answer += _remote_container(for_pod) if pod.node == VIRTUAL_NODE else _origin_of_node(pod.node, view)
    return Explanation(
        about=f"Pod {pod.namespace}/{pod.name}",
        reason=reason,
        answer=answer.rstrip(),
        next=following,
        waits_for_capacity=found is None,
        machines=[machine_view(each, view.pods_by_node, view.now) for each in for_pod],
        events=events,
    )


def explain_job(
    job: JobView,
    pods: Sequence[Pod],
    view: ClusterView,
    events: list[EventLine] | None,
    pod_events: Mapping[str, list[EventLine]],
) -> Explanation:
    """The Job's progress, the explanation of each unfinished pod, and the GPUInstances of those that have ended.

    `pod_events`: by the pod's namespace/name.
    """
    namespace, name = job.namespace, job.name
    unfinished = [
        explain_pod(pod, view, pod_events.get(f"{pod.namespace}/{pod.name}", []))
        for pod in sorted(pods, key=lambda each: (each.created, each.name))
        if not pod.phase.ended
    ]
    waiting = [each for each in unfinished if each.waits_for_capacity]
    succeeded = f"{job.succeeded} of {job.completions} succeeded"
    failed = f", {job.failed} failed" if job.failed else ""
    answer = f"Pods: {succeeded}{failed}, {len(unfinished)} unfinished, {len(waiting)} waiting for capacity."
    reason: str
    if job.suspended and (by := job.annotations.get(PAUSED_BY_ANNOTATION)) is not None:
        at = job.annotations.get(PAUSED_AT_ANNOTATION, "an unknown time")
        reason = Reason.PAUSED
        following = (
            f"GPUWorkloadBudget {by} suspended this Job at {at}. The operator resumes it when the budget has room "
            "again, the Job that was paused first before others. To resume it sooner, raise spec.quota of the budget."
        )
    elif job.suspended:
        reason = "Suspended"
        following = "The Job is suspended, so it has no pods. To resume it, set spec.suspend: false."
    elif unfinished:
        first = waiting[0] if waiting else unfinished[0]
        reason, following = first.reason, first.next
    else:
        reason, following = Reason.ENDED, "Nothing. The Job has no pods that need capacity."
    return Explanation(
        about=f"Job {namespace}/{name}",
        reason=reason,
        answer=answer,
        next=following,
        machines=_machines_of_ended(pods, view),
        pods=unfinished,
        events=events,
    )


def _machines_of_ended(pods: Sequence[Pod], view: ClusterView) -> list[MachineView]:
    """GPUInstances that were launched for pods which have ended, and for no other of these pods."""
    ended = {pod.uid for pod in pods if pod.phase.ended}
    others = {pod.uid for pod in pods} - ended
    found = [
        each
        for each in view.records or ()
        if (uids := {planned.uid for planned in each.spec.pods}) & ended and not uids & others
    ]
    return [machine_view(each, view.pods_by_node, view.now) for each in sorted(found, key=_oldest_first)]


def explain_instance(record: GPUInstance, view: ClusterView, events: list[EventLine] | None) -> Explanation:
    """State, history and cost of the GPUInstance, and when it is terminated."""
    machine = machine_view(record, view.pods_by_node, view.now)
    since = f" for {human(view.now - machine.since)}" if machine.since is not None else ""
    return Explanation(
        about=f"GPUInstance {machine.name}",
        reason=machine.reason or machine.state,
        answer=f"{machine.state}{since}. {machine.message}".rstrip(),
        next=next_of_instance(record, view),
        machines=[machine],
        events=events,
    )


def explain_node(node: Node, view: ClusterView, events: list[EventLine] | None) -> Explanation:
    """Whether Forebay launched the node, why, and when it is terminated."""
    about = f"Node {node.name}"
    record = record_of_node(node.name, view.records or ())
    if node.name == VIRTUAL_NODE:
        remote = [each for each in view.records or () if not each.spec.delivers.has_node]
        number = sum(each.state is InstanceState.RUNNING for each in remote)
        answer = f"The node stands for remote containers, of which {number} run now. Each has a GPUInstance."
        return Explanation(
            about=about,
            reason="Virtual",
            answer=answer,
            next="Nothing. Forebay keeps the node while remote containers are offered.",
            events=events,
        )
    if record is None:
        following = "Nothing. Forebay neither terminates nor replaces a node that it did not launch."
        if view.records is None:
            following = NOT_INSTALLED
        # Without the pods: those on nodes that Forebay did not launch are not read.
        answer = "Forebay did not launch this node: no GPUInstance belongs to it."
        return Explanation(about=about, reason="NotManaged", answer=answer, next=following, events=events)
    machine = machine_view(record, view.pods_by_node, view.now)
    # The reason begins with the name of a machine or with its GPUs: no letter of it is changed.
    why = f"Why: {machine.why}" if machine.why else machine.message
    running = view.pods_by_node.get(node.name, ())
    if record.state is InstanceState.GONE:
        pods = machine.message if machine.why else ""
    elif running:
        pods = f"Pods on the node: {len(running)} ({pod_names(running)})."
    else:
        pods = "Only DaemonSet pods run on it."
    answer = f"Forebay {_launched(record)} {node.name} for {for_pods(record)}, at {price(record)}. {why} {pods}"
    return Explanation(
        about=about,
        reason=machine.reason or machine.state,
        answer=answer.rstrip(),
        next=next_of_instance(record, view),
        machines=[machine],
        events=events,
    )


def explain_provisioner(provisioner: NodeProvisioner, view: ClusterView, events: list[EventLine] | None) -> Explanation:
    """The target of the instance groups with the arithmetic that led to it, and what happens to their nodes."""
    status, spec = provisioner.status or NodeProvisionerStatus(), provisioner.spec
    name = provisioner.metadata.name
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    blocked = [each.message for each in status.conditions if each.type == "GrowthBlocked" and each.status is Truth.TRUE]
    about = f"NodeProvisioner {name}"
    if status.target_size is None:
        answer = ready.message if ready is not None else "Forebay has not sized its instance groups yet."
        following = (
            "The groups are sized when they can be listed." if view.operator_running is not False else NO_OPERATOR
        )
        reason = ready.reason if ready is not None else Reason.GROUPS_NOT_LISTED
        return Explanation(about=about, reason=reason, answer=answer, next=following, events=events)
    answer = " ".join((status.message or "", *(f"Growth is blocked: {each}" for each in blocked)))
    if spec.node_class_ref is not None:
        answer = (
            f"{answer} Its nodes are {spec.provider.instance_type} of {spec.provider.name}, rented one by one as "
            f"GPUNodeClass {spec.node_class_ref.name} says."
        )
    if ready is not None and ready.status is not Truth.TRUE:
        answer = f"{answer} {ready.message}"
    return Explanation(
        about=about,
        reason=status.reason or Reason.GROUPS_READY,
        answer=answer,
        steps=[each for each in status.arithmetic if each != status.message],
        next=_next_of_groups(status, spec.scale_down_delay) if view.operator_running is not False else NO_OPERATOR,
        events=events,
    )


def _next_of_groups(status: NodeProvisionerStatus, delay: str) -> str:
    current, target = status.current_size or 0, status.target_size or 0
    if target > current:
        return f"{target - current} members are created."
    if status.tainted_nodes:
        return (
            f"{status.tainted_nodes} empty nodes are tainted and deleted {delay} after that, unless a pod comes or the "
            "target rises."
        )
    if target < current:
        return "Nodes go when they are empty: nodes with pods are never deleted."
    return "Nothing, until pods come or leave."


def record_of_node(name: str, records: Sequence[GPUInstance]) -> GPUInstance | None:
    """The GPUInstance of the node: a live one, else the latest of those that are gone."""
    found = [each for each in records if each.node_name == name]
    return max(found, key=lambda each: (each.state is not InstanceState.GONE, _oldest_first(each)), default=None)


def _oldest_first(record: GPUInstance) -> tuple[str, str]:
    created = record.metadata.creation_timestamp
    return (created.isoformat() if created is not None else "", record.metadata.name)


def _scheduler_message(pod: Pod) -> str:
    message = pod.unschedulable_message
    return f'Message of {scheduler_name(pod)}: "{message.rstrip(".")}".' if message else ""


def _origin_of_node(name: str, view: ClusterView) -> str:
    record = record_of_node(name, view.records or ())
    if record is None or record.state is InstanceState.GONE:
        return f" Forebay did not launch {name}."
    return f" Forebay {_launched(record)} {name} as GPUInstance {record.metadata.name}, at {price(record)}."


def _waits_for_container(pod: Pod, records: Sequence[GPUInstance]) -> bool:
    """Whether Forebay has bound the pod to the virtual node, and nothing runs for it yet."""
    is_remote = pod.node == VIRTUAL_NODE and (bool(records) or MANAGED_MARK in pod.labels)
    return is_remote and pod.phase is Phase.PENDING and pod.deleted is None


def _live(records: Sequence[GPUInstance]) -> GPUInstance | None:
    """The last of the records, of which some may be gone, that is not."""
    return next((each for each in reversed(records) if each.state is not InstanceState.GONE), None)


def _remote_container(records: Sequence[GPUInstance]) -> str:
    """What runs a pod of the virtual node. `records` are those of its containers, the oldest first."""
    record = _live(records)
    if record is None:
        return " The node stands for remote containers, and none runs the pod now."
    known = record.status
    named = f" {known.instance_id}" if known is not None and known.instance_id is not None else ""
    if record.state in _NOT_RUN_YET:
        return (
            f" Its container{named} at {record.spec.provider} does not run yet: GPUInstance {record.metadata.name} is "
            f"{record.state}, at {price(record)}."
        )
    if record.state is InstanceState.TERMINATING and not did_anything(record):
        return (
            f" Its container{named} at {record.spec.provider} has not run and is terminated: GPUInstance "
            f"{record.metadata.name}, at {price(record)}."
        )
    return (
        f" The pod runs remotely, in container{named} at {record.spec.provider}: GPUInstance {record.metadata.name}, "
        f"at {price(record)}."
    )


def _launched(record: GPUInstance) -> str:
    return policy_of(record).words.launched
