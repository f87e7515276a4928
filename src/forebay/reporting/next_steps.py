"""What comes next for a pod or GPUInstance, in one sentence, or what the user can do."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_pool import ConsolidationPolicy, GPUNodePool
from forebay.api.parts import Condition, Truth
from forebay.api.values import duration_or_never
from forebay.demand.assessment import DEFAULT_SCHEDULER
from forebay.demand.maintenance import keeps_machine
from forebay.demand.planned_pods import idle_condition
from forebay.demand.scheduler_waits import PREEMPTION
from forebay.lifecycle.cooldown import cooldowns
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.model.counts import counted
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod, pod_names
from forebay.reporting.cluster_view import ClusterView, EventLine
from forebay.reporting.machines import is_terminating
from forebay.reporting.replacements import replacement_due

_BEFORE_LAUNCH: Final = frozenset({InstanceState.REQUESTED, InstanceState.LAUNCHING, InstanceState.GONE})
_LAUNCHING: Final = frozenset({InstanceState.LAUNCHING, InstanceState.LAUNCHED, InstanceState.JOINED})
NOT_INSTALLED: Final = (
    "Forebay is not installed in this cluster, so no capacity will be launched. Install it: forebay manifests install "
    "| kubectl apply --server-side -f -"
)
NO_OPERATOR: Final = (
    "No operator is running, so nothing will change. Check the operator's Deployment, or start one with forebay run."
)


def scheduler_name(pod: Pod) -> str:
    """The scheduler as users know it: `kube-scheduler` for the default one."""
    name = pod.shape.scheduler_name
    return "kube-scheduler" if name == DEFAULT_SCHEDULER else name


def next_of_waiting_pod(
    pod: Pod, for_pod: Sequence[GPUInstance], view: ClusterView, events: list[EventLine] | None
) -> str:
    """What comes next for a pod that waits for capacity; `for_pod` are its GPUInstances, oldest first."""
    if view.records is None:
        return NOT_INSTALLED
    no_operator = f" {NO_OPERATOR}" if view.operator_running is False else ""
    live = [each for each in for_pod if each.state is not InstanceState.GONE and not is_terminating(each)]
    if live:
        return next_of_instance(live[-1], view)
    wait = view.budget_waits.get(pod.uid)
    if wait is not None and wait.sentence is not None:
        return f"{wait.sentence}{no_operator}"
    told = _told(pod, events, view.now)
    if told is not None:
        return f"{told}{no_operator}"
    if view.operator_running is False:
        return NO_OPERATOR
    return f"The operator has not decided yet; it does within seconds after {scheduler_name(pod)} reports no node."


def next_of_gated_pod(pod: Pod, view: ClusterView, events: list[EventLine] | None) -> str:
    """What comes next for a pod behind the scheduling gate of budgets."""
    if view.operator_running is False:
        return NO_OPERATOR
    wait, told = view.budget_waits.get(pod.uid), _told(pod, events, view.now)
    if wait is not None and wait.sentence is not None:
        return wait.sentence
    if (wait is None or wait.unknown_because is not None) and told is not None:
        return told
    if wait is not None and wait.unknown_because is not None:
        return (
            f"The operator removes the gate when the pod's budgets have room. When is unknown: {wait.unknown_because}."
        )
    return "The pod's budgets have room: the operator removes the gate within seconds."


def _told(pod: Pod, events: list[EventLine] | None, now: datetime) -> str | None:
    """Why the operator says that the pod waits: its condition, else its last event; None where neither is there."""
    if pod.capacity is not None:
        return pod.capacity
    event = next((each for each in reversed(events or ()) if each.about == "/".join(pod.key)), None)
    return None if event is None else f"{event.reason} ({human(now - event.at)} ago): {event.note}"


def next_of_other_pod(pod: Pod, reason: Reason, view: ClusterView) -> str:
    """What comes next for a pod that does not wait for capacity."""
    match reason:
        case Reason.BOUND:
            return "Nothing. The pod has a node."
        case Reason.ENDED | Reason.POD_DELETED:
            return "Nothing. The pod needs no capacity any more."
        case Reason.NO_GPU_ASKED:
            return "Forebay ignores this pod. To be served, it must request a GPU resource such as nvidia.com/gpu."
        case Reason.CLAIMS_NOT_SERVED:
            return (
                f"{scheduler_name(pod)} binds the pod when a node has the devices that it claims. For Forebay to "
                "launch capacity, the pod must request a GPU resource such as nvidia.com/gpu."
            )
        case Reason.GATED:
            gates = ", ".join(pod.shape.scheduling_gates)
            return (
                f"The controller that set {gates} must remove it; then {scheduler_name(pod)} tries to schedule the pod."
            )
        case Reason.PREEMPTING:
            return (
                f"{scheduler_name(pod)} binds the pod to {pod.nominated_node} when the preempted pods have terminated. "
                f"Where that takes longer than {human(PREEMPTION)}, Forebay looks for other capacity."
            )
        case _:
            age = human(view.now - pod.created)
            return (
                f"{scheduler_name(pod)} tries to schedule the pod (created {age} ago). If no node fits, Forebay "
                "launches capacity for it."
            )


def next_of_instance(record: GPUInstance, view: ClusterView) -> str:
    """What comes next for a GPUInstance, in each of its states."""
    if view.operator_running is False and record.state is not InstanceState.GONE:
        return NO_OPERATOR
    status, name, provider = record.status, record.metadata.name, record.spec.provider
    if (
        status is not None
        and status.reason == Reason.PROVIDER_NOT_CONFIGURED
        and record.state is not InstanceState.GONE
    ):
        return f"Nothing, until {provider} is configured for {name} again. Until then it counts as billed."
    match record.state:
        case InstanceState.REQUESTED:
            wait = status.not_before if status is not None else None
            when = f"at {_moment(wait, view.now)}" if wait is not None and wait > view.now else "now"
            return f"Forebay calls {provider} to {policy_of(record).words.launch} {name} {when}."
        case state if state in _LAUNCHING:
            idle = idle_condition(record)
            if idle is not None and idle.status is Truth.TRUE:
                return _next_of_unneeded(record, idle, f"{name} boots for nobody", view)
            deadline, come_up = status.deadline if status is not None else None, policy_of(record).words.come_up
            if deadline is None:
                return f"{name} must {come_up}; there is no deadline."
            return (
                f"{name} must {come_up} by {_moment(deadline, view.now)}. Otherwise Forebay "
                f"{_terminates(record)} {name}, lets it cool down, and launches other capacity."
            )
        case InstanceState.READY:
            return _next_of_ready_instance(record, view)
        case InstanceState.RUNNING:
            return f"{name} runs until its container exits; then Forebay terminates it."
        case InstanceState.DRAINING:
            evicted = f"Pods on {name} are evicted as their disruption budgets allow"
            return f"{evicted}; then Forebay {_terminates(record)} {name}."
        case InstanceState.GONE:
            fact = "was not started" if _never_started(record) else f"is gone, as {provider} has confirmed"
            gone = f"{name} {fact}. The record is kept for an hour."
            return _next_after_cooldown(record, view, gone) or f"Nothing. {gone}"
        case _:
            termination = policy_of(record).words.termination
            return f"Forebay repeats the {termination} of {name} until {provider} confirms it; billed until then."


def _never_started(record: GPUInstance) -> bool:
    """Whether every launch call is known to have failed, so that the provider had nothing to end."""
    status = record.status
    if status is None or not status.transitions or status.billed_from is not None:
        return False
    return {each.state for each in status.transitions} <= _BEFORE_LAUNCH


def _next_after_cooldown(record: GPUInstance, view: ClusterView, gone: str) -> str | None:
    """When a machine that failed may be used again, and how to use it sooner; None where nothing cools down."""
    cooling = next(iter(cooldowns([record], view.now).values()), None)
    if cooling is None:
        return None
    again = policy_of(record).words.launch_again
    return (
        f"Forebay does not {again} again before {_moment(cooling.until, view.now)}: {cooling.cause}. {gone} To end "
        f"the cooldown now, delete the record: kubectl delete gpuinstance {record.metadata.name}"
    )


def _next_of_ready_instance(record: GPUInstance, view: ClusterView) -> str:
    name = record.metadata.name
    pods = view.pods_by_node.get(record.node_name or "", ())
    users = [pod for pod in pods if keeps_machine(pod, view.gpu_resources)]
    if users:
        due = replacement_due(record, _pool(record, view.pools), view)
        if due is not None:
            return f"{due} Until then it runs {counted(len(users), 'pod')}: {pod_names(users)}."
        return f"{name} stays while pods run on it (now {len(users)}: {pod_names(users)})."
    idle = idle_condition(record)
    if idle is None or idle.status is not Truth.TRUE:
        return idle.message if idle is not None and idle.message else f"{name} stays while it is needed."
    since = f"{name} has been idle for {human(view.now - idle.last_transition_time)}"
    if pods:
        since += f" but for pods without a GPU, which are evicted first ({pod_names(pods)})"
    return _next_of_unneeded(record, idle, since, view)


def _next_of_unneeded(record: GPUInstance, idle: Condition, since: str, view: ClusterView) -> str:
    """When a machine goes that nobody needs, and which setting says so."""
    name = record.metadata.name
    pool = _pool(record, view.pools)
    if pool is None:
        return f"{since}. It belongs to no pool, so no consolidateAfter applies and it stays."
    disruption = pool.spec.disruption
    after = duration_or_never(disruption.consolidate_after)
    if disruption.consolidation_policy is ConsolidationPolicy.NEVER or after is None:
        return f"{since} and stays: pool {pool.metadata.name} never consolidates idle nodes (spec.disruption)."
    ends = idle.last_transition_time + after
    allowed = "as soon as disruption budgets and the scale-down interval allow"
    when = f"at {_moment(ends, view.now)}" if ends > view.now else allowed
    setting = f"consolidateAfter of pool {pool.metadata.name} is {disruption.consolidate_after}"
    return f"{since}. Forebay {_terminates(record)} {name} {when}: {setting}."


def _pool(record: GPUInstance, pools: Sequence[GPUNodePool]) -> GPUNodePool | None:
    wanted = record.spec.pool_ref
    if wanted is None:
        return None
    return next((each for each in pools if each.key == (wanted.namespace, wanted.name)), None)


def _terminates(record: GPUInstance) -> str:
    return policy_of(record).words.terminates


def _moment(at: datetime, now: datetime) -> str:
    left = at - now
    distance = f"in {human(left)}" if left >= timedelta(0) else f"{human(-left)} ago"
    return f"{at:%H:%M:%S} UTC ({distance})"
