"""GPUInstances as people look at them: where they stand, what they cost, and who is on them."""

from collections.abc import Collection, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.workloads import Pod
from forebay.reconcile.reports import hourly_cost

_GOING: Final = frozenset({InstanceState.FINISHED, InstanceState.DRAINING, InstanceState.TERMINATING})

FREE: Final = Usd(0)


class HistoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a machine's history."""

    at: datetime
    state: str
    reason: str
    message: str


class MachineView(msgspec.Struct, frozen=True, kw_only=True):
    """One GPUInstance. Money is exact: `cost_exact` is a fraction of dollars, `cost` the same in decimals."""

    name: str
    state: str
    reason: str
    message: str
    since: datetime | None
    deadline: datetime | None
    #: As namespace/name; "" where it has none.
    pool: str
    node_class: str
    provider: str
    type: str
    gpus: int
    gpu_type: str
    price_per_hour: str
    #: What it costs at this moment: nothing before it was asked for and after it has gone.
    hourly: str
    billed_from: datetime | None
    billed_until: datetime | None
    cost: str
    cost_exact: str
    node: str
    #: What runs on its node, DaemonSets aside.
    pods: list[str]
    #: What it was asked for.
    asked_for: list[str]
    why: str
    history: list[HistoryLine]


def price(record: GPUInstance) -> UsdPerHour:
    """What the provider bills, where it tells; else what it offered."""
    billed = record.status.hourly_price if record.status is not None else None
    return UsdPerHour(str(billed if billed is not None else record.spec.hourly_price or 0))


def cost(record: GPUInstance, now: datetime) -> Usd:
    """Of all the time it has been billed for, until now."""
    status = record.status
    if status is None or status.billed_from is None:
        return FREE
    until = status.billed_until or max(now, status.billed_from)
    return price(record) * (until - status.billed_from)


def is_going(record: GPUInstance) -> bool:
    return record.state in _GOING or record.metadata.deletion_timestamp is not None


def machine_view(record: GPUInstance, pods_by_node: Mapping[str, Collection[Pod]], now: datetime) -> MachineView:
    spec, status = record.spec, record.status or GPUInstanceStatus()
    node = record.node_name or status.node_name or ""
    billed = cost(record, now)
    gone = record.state is InstanceState.GONE
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
        cost=decimal(billed.dollars),
        cost_exact=billed.exact(),
        node=node,
        pods=[] if gone else sorted("/".join(pod.key) for pod in pods_by_node.get(node, ())),
        asked_for=[f"{pod.namespace}/{pod.name}" for pod in spec.pods],
        why=spec.why or "",
        history=[
            HistoryLine(at=step.at, state=step.state, reason=step.reason, message=step.message)
            for step in status.transitions
        ],
    )


def decimal(amount: Fraction) -> str:
    """For scripts that reckon in decimals: to the nearest millionth."""
    micro = round(abs(amount) * 10**6)
    return f"{'-' if amount < 0 and micro else ''}{micro // 10**6}.{micro % 10**6:06}"
