"""GPUInstances as users see them: state, cost, history, and the pods on their nodes."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.budgets.bill_shares import billed
from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.workloads import Pod
from forebay.reconcile.machine_costs import hourly_cost

_TERMINATING: Final = frozenset({InstanceState.FINISHED, InstanceState.DRAINING, InstanceState.TERMINATING})
#: States in which the pod of a remote container is bound to it.
_CONTAINED: Final = frozenset({InstanceState.LAUNCHING, InstanceState.LAUNCHED, InstanceState.RUNNING})

NO_COST: Final = Usd(0)


class HistoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One state transition of a GPUInstance."""

    at: datetime
    state: str
    reason: str
    message: str


class MachineView(msgspec.Struct, frozen=True, kw_only=True):
    """One GPUInstance. `cost_exact` is an exact fraction of dollars; `cost` is the same, rounded to decimals."""

    name: str
    state: str
    reason: str
    message: str
    since: datetime | None
    deadline: datetime | None
    #: As namespace/name; "" where the GPUInstance belongs to no pool.
    pool: str
    node_class: str
    provider: str
    type: str
    gpus: int
    gpu_type: str
    price_per_hour: str
    #: Dollars an hour at this moment: 0 before the launch call and after termination is proven.
    hourly: str
    billed_from: datetime | None
    billed_until: datetime | None
    cost: str
    cost_exact: str
    node: str
    #: Pods on its node, without those of DaemonSets; the pod of a remote container.
    pods: list[str]
    #: Pods it was launched for.
    launched_for: list[str]
    why: str
    history: list[HistoryLine]


def price(record: GPUInstance) -> UsdPerHour:
    """Price per hour: the billed one where the provider reports it, else the one of the offer."""
    billed = record.status.hourly_price if record.status is not None else None
    return UsdPerHour(str(billed if billed is not None else record.spec.hourly_price or 0))


def cost(record: GPUInstance, now: datetime) -> Usd:
    """Cost until now; of a machine that has ended, with what its billing terms add."""
    paid, status = billed(record), record.status
    if paid is None or status is None or status.billed_from is None:
        return NO_COST
    if paid.end is None:
        return price(record) * max(now - status.billed_from, timedelta(0))
    return price(record) * timedelta(seconds=paid.end - paid.start)


def is_terminating(record: GPUInstance) -> bool:
    """Whether the GPUInstance is on its way out: finished, draining, terminating or deleted."""
    return record.state in _TERMINATING or record.metadata.deletion_timestamp is not None


def machine_view(record: GPUInstance, pods_by_node: Mapping[str, Collection[Pod]], now: datetime) -> MachineView:
    spec, status = record.spec, record.status or GPUInstanceStatus()
    node = record.node_name or status.node_name or ""
    paid = cost(record, now)
    gone = record.state is InstanceState.GONE
    on_node = [] if gone else sorted("/".join(pod.key) for pod in pods_by_node.get(node, ()))
    launched_for = [f"{pod.namespace}/{pod.name}" for pod in spec.pods]
    return MachineView(
        name=record.metadata.name,
        state=record.state,
        reason=status.reason or "",
        message=status.message or "",
        since=status.since or record.metadata.creation_timestamp,
        deadline=status.deadline,
        pool="" if spec.pool_ref is None else f"{spec.pool_ref.namespace}/{spec.pool_ref.name}",
        node_class=spec.node_class_name or "",
        provider=spec.provider,
        type=spec.offer.instance_type if spec.offer is not None else "",
        gpus=spec.offer.gpu_count if spec.offer is not None else 0,
        gpu_type=(spec.offer.gpu_type or "") if spec.offer is not None else "",
        price_per_hour=price(record).exact(),
        hourly=hourly_cost(record).exact(),
        billed_from=status.billed_from,
        billed_until=status.billed_until,
        cost=decimal(paid.dollars),
        cost_exact=paid.exact(),
        node=node,
        pods=launched_for if record.state in _CONTAINED and not spec.delivers.has_node else on_node,
        launched_for=launched_for,
        why=spec.why or "",
        history=[
            HistoryLine(at=step.at, state=step.state, reason=step.reason, message=step.message)
            for step in status.transitions
        ],
    )


def decimal(amount: Fraction) -> str:
    """`amount` in decimals, to the nearest millionth, for scripts that do not compute with fractions."""
    micro = round(abs(amount) * 10**6)
    return f"{'-' if amount < 0 and micro else ''}{micro // 10**6}.{micro % 10**6:06}"
