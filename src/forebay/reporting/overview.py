"""The operator's figures at a glance, and what needs a person."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import VIRTUAL_NODE
from forebay.api.parts import Truth
from forebay.lifecycle.wording import for_pods
from forebay.model.counts import counted
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.reconcile.machine_costs import hourly_cost
from forebay.reconcile.snapshot import Snapshot

#: Reasons for which a pod waits until somebody changes the pod, a pool or a class.
_HOPELESS: Final = frozenset({Reason.NO_OFFER_FITS, Reason.NO_CAPACITY_CONFIGURED, Reason.SCHEDULER_REFUSES})


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person may have to mend."""

    about: str
    sentence: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    cluster: str
    #: Dollars an hour, exact, of all GPUInstances.
    hourly: str
    #: Of these, GPUInstances that are billed, and all that are not Gone by state.
    billed: int
    states: dict[str, int]
    nodes: int
    nodes_ready: int
    #: Allocatable on nodes that are Ready.
    gpus: int
    gpus_requested: int
    #: GPUs of remote containers, by the requests of their pods.
    gpus_remote: int
    waiting: int
    waiting_gpus: int
    problems: list[Problem]


def overview(snapshot: Snapshot) -> Overview:
    resources = snapshot.rules.gpu_resources
    costs = [hourly_cost(record) for record in snapshot.records]
    states = Counter(record.state.value for record in snapshot.records)
    # The virtual node has no GPUs of its own: its pods use those of remote containers.
    nodes = {name: node for name, node in snapshot.nodes.items() if name != VIRTUAL_NODE}
    remote = snapshot.used.get(VIRTUAL_NODE)
    return Overview(
        at=snapshot.now,
        cluster=snapshot.cluster,
        hourly=sum(costs, start=UsdPerHour.zero()).exact(),
        billed=sum(map(bool, costs)),
        states={state.value: states[state] for state in InstanceState if states[state]},
        nodes=len(nodes),
        nodes_ready=sum(node.ready for node in nodes.values()),
        gpus=sum(int(node.allocatable.gpus(resources)) for node in nodes.values() if node.ready),
        gpus_requested=sum(int(used.gpus(resources)) for name, used in snapshot.used.items() if name in nodes),
        gpus_remote=int(remote.gpus(resources)) if remote is not None else 0,
        waiting=len(snapshot.waiting),
        waiting_gpus=sum(int(pod.shape.gpus(resources)) for pod in snapshot.waiting),
        problems=list(problems(snapshot)),
    )


#: Reasons of machines that may be billed and that Forebay does not get rid of by itself.
_NOT_TERMINATED: Final = frozenset({Reason.TERMINATION_FAILED, Reason.PROVIDER_NOT_CONFIGURED})


def problems(snapshot: Snapshot) -> Iterator[Problem]:
    """What needs a person: first what may cost money unnoticed, then what keeps pods waiting."""
    for record in snapshot.records:
        if (
            record.status is not None
            and record.status.reason in _NOT_TERMINATED
            and record.state is not InstanceState.GONE
        ):
            yield Problem(about=f"GPUInstance {record.metadata.name}", sentence=record.status.message or "")
    yield from _unsuitable(snapshot.records)
    for name, why in snapshot.unreadable_records.items():
        yield Problem(about=f"GPUInstance {name}", sentence=f"cannot be read, so nothing is decided about it: {why}")
    for key, why in snapshot.unusable.items():
        yield Problem(about=f"{key.provider} of GPUNodeClass {key.node_class}", sentence=why)
    for source_key, source in snapshot.sources.items():
        if source.error is not None:
            yield Problem(about=f"{source_key.provider} of GPUNodeClass {source_key.node_class}", sentence=source.error)
    for pool in snapshot.pools:
        for condition in pool.status.conditions if pool.status is not None else ():
            if condition.type == "Ready" and condition.status is Truth.FALSE:
                yield Problem(about=f"GPUNodePool {'/'.join(pool.key)}", sentence=condition.message)
    for provisioner in snapshot.provisioners:
        for condition in provisioner.status.conditions if provisioner.status is not None else ():
            if condition.type == "Ready" and condition.status is Truth.FALSE:
                yield Problem(about=f"NodeProvisioner {provisioner.metadata.name}", sentence=condition.message)
    yield from _hopeless(snapshot.waiting)
    state = snapshot.budget_state
    if state is not None and state.unstored is not None:
        yield Problem(about="The ledger", sentence=f"cannot be stored: {state.unstored}")
    if snapshot.gate_missing is not None:
        yield Problem(about="Budgets", sentence=snapshot.gate_missing)


def _unsuitable(records: Iterable[GPUInstance]) -> Iterator[Problem]:
    """Pods whose containers lack something, such as a Secret that does not exist or may not be read."""
    for record in records:
        if record.status is not None and record.status.reason == Reason.CONTAINER_CONFIG_ERROR:
            yield Problem(about=f"Pod {for_pods(record)}", sentence=record.status.message or "")


def _hopeless(waiting: Iterable[Pod]) -> Iterator[Problem]:
    """Pods that no waiting helps, one problem for each reason with the pod that waits longest."""
    by_reason: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in waiting:
        reason = (pod.capacity or "").partition(": ")[0]
        if reason in _HOPELESS:
            by_reason[reason].append(pod)
    for pods in by_reason.values():
        first = min(pods, key=lambda each: (each.created, each.key))
        others = f" and {counted(len(pods) - 1, 'other pod')}" if len(pods) > 1 else ""
        yield Problem(about=f"Pod {'/'.join(first.key)}{others}", sentence=(first.capacity or "").partition(": ")[2])
