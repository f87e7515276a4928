"""Why: what is so, what was done about it, and what comes next. From values alone; `explain` fetches and prints."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_pool import ConsolidationPolicy, GPUNodePool
from forebay.api.names import BUDGET_GATE, PAUSED_AT_ANNOTATION, PAUSED_BY_ANNOTATION
from forebay.api.parts import Truth
from forebay.api.values import duration_or_never
from forebay.demand.assessment import not_demand
from forebay.demand.planned_pods import idle_condition, planned_nodes
from forebay.lifecycle.wording import for_pods
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.reporting.budget_waits import is_gated
from forebay.reporting.cluster_view import ClusterView, EventLine, JobView
from forebay.reporting.machines import MachineView, is_going, machine_view, price

_ON_ITS_WAY: Final = frozenset({InstanceState.LAUNCHING, InstanceState.LAUNCHED, InstanceState.JOINED})
_NOT_INSTALLED: Final = (
    "Forebay is not installed in this cluster, so nothing will be obtained: run forebay manifests install | "
    "kubectl apply --server-side -f -"
)
_NOBODY_ACTS: Final = (
    "No operator is at work, so nothing will change: look at its Deployment, or start one with forebay run."
)


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    #: Kind and name of what was asked about.
    about: str
    #: How it stands, in a word for programs and in sentences.
    reason: str
    answer: str
    #: What comes next, or what would help.
    next: str
    machines: list[MachineView] = []
    #: The pods of a Job.
    pods: list["Explanation"] = []
    #: None where they may not be read.
    events: list[EventLine] | None = []


def explain_pod(pod: Pod, view: ClusterView, events: list[EventLine] | None) -> Explanation:
    records = view.records or ()
    ours = planned_nodes(records, {pod.uid}).get(pod.uid, set())
    found = not_demand(pod, view.gpu_resources, view.now, nodes=view.nodes, planned_nodes=ours)
    for_it = sorted(
        (each for each in records if any(asked.uid == pod.uid for asked in each.spec.pods)), key=_oldest_first
    )
    if found is None:
        since = pod.unschedulable_since or pod.created
        gpus = pod.shape.gpus(view.gpu_resources)
        answer = (
            f"It is demand: it asks for {gpus} and the scheduler has found no node for it for "
            f"{human(view.now - since)}. {_quoted(pod)}"
        )
        reason, coming = Reason.UNSCHEDULABLE, _coming(pod, for_it, view, events)
    elif is_gated(pod):
        reason = Reason.HELD_BY_BUDGET
        answer = f"It is held back by the scheduling gate {BUDGET_GATE}: a GPUWorkloadBudget was used up when it came."
        coming = _held(pod, view, events)
    else:
        reason, answer = found.reason, f"It is not demand: {found.sentence[0].lower()}{found.sentence[1:]}"
        coming = _after_all(pod, found.reason, view)
    if (wait := view.waits.get(pod.uid)) is not None and reason in {Reason.UNSCHEDULABLE, Reason.HELD_BY_BUDGET}:
        answer = f"{answer.rstrip()} {' '.join(wait.standing)}"
    if pod.node is not None and not pod.phase.ended:
        answer += _on_node(pod.node, view)
    return Explanation(
        about=f"Pod {pod.namespace}/{pod.name}",
        reason=reason,
        answer=answer.rstrip(),
        next=coming,
        machines=[machine_view(each, view.pods_by_node, view.now) for each in for_it],
        events=events,
    )


def explain_job(
    job: JobView,
    pods: Sequence[Pod],
    view: ClusterView,
    events: list[EventLine] | None,
    pod_events: Mapping[str, list[EventLine]],
) -> Explanation:
    namespace, name = job.namespace, job.name
    told = [
        explain_pod(pod, view, pod_events.get(f"{pod.namespace}/{pod.name}", []))
        for pod in sorted(pods, key=lambda each: (each.created, each.name))
        if not pod.phase.ended
    ]
    waiting = sum(story.reason == Reason.UNSCHEDULABLE for story in told)
    done = f"{job.succeeded} of {job.completions} succeeded"
    failed = f", {job.failed} failed" if job.failed else ""
    answer = f"Pods: {done}{failed}, {len(told)} not over, {waiting} waiting for capacity."
    reason: str
    if job.suspended and (by := job.annotations.get(PAUSED_BY_ANNOTATION)) is not None:
        since = job.annotations.get(PAUSED_AT_ANNOTATION, "a time that nobody has noted")
        reason = Reason.PAUSED
        coming = (
            f"GPUWorkloadBudget {by} has suspended it, since {since}. It goes on when that has room again, the longest "
            "paused first; raise spec.quota there to let it go on now."
        )
    elif job.suspended:
        reason, coming = "Suspended", "It is suspended, so it has no pods: resume it with spec.suspend: false."
    elif told:
        first = next((story for story in told if story.reason == Reason.UNSCHEDULABLE), told[0])
        reason, coming = first.reason, first.next
    else:
        reason, coming = Reason.ENDED, "It has no pods that could need capacity."
    return Explanation(
        about=f"Job {namespace}/{name}", reason=reason, answer=answer, next=coming, pods=told, events=events
    )


def explain_instance(record: GPUInstance, view: ClusterView, events: list[EventLine] | None) -> Explanation:
    machine = machine_view(record, view.pods_by_node, view.now)
    since = f" for {human(view.now - machine.since)}" if machine.since is not None else ""
    return Explanation(
        about=f"GPUInstance {machine.name}",
        reason=machine.reason or machine.state,
        answer=f"It has been {machine.state}{since}. {machine.message}".rstrip(),
        next=_next_of_machine(record, view),
        machines=[machine],
        events=events,
    )


def explain_node(node: Node, view: ClusterView, events: list[EventLine] | None) -> Explanation:
    about = f"Node {node.name}"
    record = record_of_node(node.name, view.records or ())
    pods = sorted("/".join(pod.key) for pod in view.pods_by_node.get(node.name, ()))
    runs = f"Pods on it: {len(pods)}" if pods else "Nothing but DaemonSets runs on it"
    if record is None:
        what = _NOT_INSTALLED if view.records is None else "It is yours: Forebay neither gives it back nor replaces it."
        answer = f"No GPUInstance says that Forebay obtained it. {runs}."
        return Explanation(about=about, reason="NotObtained", answer=answer, next=what, events=events)
    machine = machine_view(record, view.pods_by_node, view.now)
    why = _sentence(machine.why or machine.message)
    answer = f"Forebay obtained it for {for_pods(record)}, at {price(record)}. {why} {runs}."
    return Explanation(
        about=about,
        reason=machine.reason or machine.state,
        answer=answer,
        next=_next_of_machine(record, view),
        machines=[machine],
        events=events,
    )


def record_of_node(name: str, records: Sequence[GPUInstance]) -> GPUInstance | None:
    """The one it is there for; of those that have gone, the latest."""
    found = [each for each in records if each.node_name == name]
    return max(found, key=lambda each: (each.state is not InstanceState.GONE, _oldest_first(each)), default=None)


def _oldest_first(record: GPUInstance) -> tuple[str, str]:
    born = record.metadata.creation_timestamp
    return (born.isoformat() if born is not None else "", record.metadata.name)


def _quoted(pod: Pod) -> str:
    return f'The scheduler says: "{pod.unschedulable_message.rstrip(".")}".' if pod.unschedulable_message else ""


def _on_node(name: str, view: ClusterView) -> str:
    record = record_of_node(name, view.records or ())
    if record is None or record.state is InstanceState.GONE:
        return " Forebay did not obtain that node."
    return f" Forebay obtained that node, as GPUInstance {record.metadata.name}, at {price(record)}."


def _coming(pod: Pod, for_it: Sequence[GPUInstance], view: ClusterView, events: list[EventLine] | None) -> str:
    """For a pod that waits."""
    if view.records is None:
        return _NOT_INSTALLED
    halted = f" {_NOBODY_ACTS}" if view.acting is False else ""
    live = [each for each in for_it if each.state is not InstanceState.GONE and not is_going(each)]
    if live:
        return _next_of_machine(live[-1], view)
    wait = view.waits.get(pod.uid)
    if wait is not None and wait.sentence is not None:
        return f"{wait.sentence}{halted}"
    told = _last_word(pod, events)
    if told is not None:
        return f"{told.reason}, said {human(view.now - told.at)} ago: {told.note}{halted}"
    if view.acting is False:
        return _NOBODY_ACTS
    return "The operator has said nothing about it yet; it decides within seconds of the scheduler's word."


def _held(pod: Pod, view: ClusterView, events: list[EventLine] | None) -> str:
    """For a pod at the gate of budgets."""
    if view.acting is False:
        return _NOBODY_ACTS
    wait, told = view.waits.get(pod.uid), _last_word(pod, events)
    if wait is not None and wait.sentence is not None:
        return wait.sentence
    if (wait is None or wait.unread is not None) and told is not None:
        return f"{told.reason}, said {human(view.now - told.at)} ago: {told.note}"
    if wait is not None and wait.unread is not None:
        return f"It goes on when its budgets have room. When that is cannot be told: {wait.unread}."
    return "Its budgets have room: the operator takes the gate away within seconds."


def _last_word(pod: Pod, events: list[EventLine] | None) -> EventLine | None:
    return next((each for each in reversed(events or ()) if each.about == "/".join(pod.key)), None)


def _after_all(pod: Pod, reason: Reason, view: ClusterView) -> str:
    """For a pod that is no demand."""
    match reason:
        case Reason.BOUND:
            return "Nothing: it has what it asked for."
        case Reason.ENDED | Reason.POD_DELETED:
            return "Nothing: it needs no capacity any more."
        case Reason.NO_GPU_ASKED:
            return "Forebay leaves it to others. To be served, it must ask for a resource such as nvidia.com/gpu."
        case Reason.GATED:
            gates = ", ".join(pod.shape.scheduling_gates)
            return f"Whoever set {gates} takes it away; then the scheduler tries the pod, and Forebay sees it."
        case Reason.PREEMPTING:
            return f"It is placed on {pod.nominated_node} when the pods there have left."
        case _:
            waits = human(view.now - pod.created)
            return f"{pod.shape.scheduler_name} tries it (waiting for {waits}); if no node takes it, it becomes demand."


def _next_of_machine(record: GPUInstance, view: ClusterView) -> str:
    if view.acting is False and record.state is not InstanceState.GONE:
        return _NOBODY_ACTS
    status, name = record.status, record.metadata.name
    match record.state:
        case InstanceState.REQUESTED:
            wait = status.not_before if status is not None else None
            when = f" at {_moment(wait, view.now)}" if wait is not None and wait > view.now else " at once"
            return f"{record.spec.provider} is asked for {name}{when}."
        case state if state in _ON_ITS_WAY:
            deadline = status.deadline if status is not None else None
            if deadline is None:
                return f"{name} becomes a ready node with its GPUs; nothing says by when it must."
            return (
                f"{name} must be a ready node with its GPUs by {_moment(deadline, view.now)}; else it is given back, "
                "left alone for a while, and other capacity is sought."
            )
        case InstanceState.READY:
            return _when_it_goes(record, view)
        case InstanceState.RUNNING:
            return "It runs until its container ends; then it is given back."
        case InstanceState.DRAINING:
            return "Its pods leave as their disruption budgets allow; then it is given back."
        case InstanceState.GONE:
            return "Nothing: the provider has shown that nothing of it is left. The record is kept for an hour."
        case _:
            return f"{record.spec.provider} is asked to end it until it is shown to be gone; until then it is billed."


def _when_it_goes(record: GPUInstance, view: ClusterView) -> str:
    """Of a machine in service."""
    pods = view.pods_by_node.get(record.node_name or "", ())
    if pods:
        return f"It stays while pods run on it (now: {len(pods)})."
    mark = idle_condition(record)
    if mark is None or mark.status is not Truth.TRUE:
        return mark.message if mark is not None and mark.message else "It stays while it is needed."
    since = f"It has been idle for {human(view.now - mark.last_transition_time)}"
    pool = _pool(record, view.pools)
    if pool is None:
        if record.spec.delivers is Delivery.POWER:
            return f"{since} and goes after the operator's --idle-delay."
        return f"{since}. It belongs to no pool, so nothing says when it goes."
    disruption = pool.spec.disruption
    after = duration_or_never(disruption.consolidate_after)
    if disruption.consolidation_policy is ConsolidationPolicy.NEVER or after is None:
        return f"{since} and stays: the disruption of pool {pool.metadata.name} never gives idle nodes back."
    goes = mark.last_transition_time + after
    when = f"at {_moment(goes, view.now)}" if goes > view.now else "as soon as budgets and the interval allow"
    return f"{since}. It goes {when}: consolidateAfter of pool {pool.metadata.name} is {disruption.consolidate_after}."


def _pool(record: GPUInstance, pools: Sequence[GPUNodePool]) -> GPUNodePool | None:
    wanted = record.spec.pool_ref
    if wanted is None:
        return None
    return next((each for each in pools if each.key == (wanted.namespace, wanted.name)), None)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _moment(at: datetime, now: datetime) -> str:
    left = at - now
    distance = f"in {human(left)}" if left >= timedelta(0) else f"{human(-left)} ago"
    return f"{at:%H:%M:%S} UTC ({distance})"
