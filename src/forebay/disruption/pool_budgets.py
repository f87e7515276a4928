"""How many nodes of each pool may be disrupted in one tick, whatever the reason."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_pool import Disruption, DisruptionReason
from forebay.disruption.machine_use import MachineUse
from forebay.disruption.node_budgets import allowed_disruptions
from forebay.model.reasons import Reason

PoolName = tuple[str, str]

#: A drain that takes longer than this is blocked.
DRAIN_BLOCKED_AFTER: Final = timedelta(minutes=5)


class PoolBudgets:
    """How many nodes of each pool may still be disrupted in this tick."""

    def __init__(self, machines: Sequence[MachineUse], pools: Mapping[PoolName, Disruption], now: datetime) -> None:
        self._machines = machines
        self._pools = pools
        self._now = now
        self._nodes: defaultdict[PoolName, int] = defaultdict(int)
        self._disrupted: defaultdict[PoolName, int] = defaultdict(int)
        #: Those of them whose drain is blocked.
        self._blocked: defaultdict[PoolName, int] = defaultdict(int)
        self._counted = False

    def _count(self) -> None:
        """Counts the machines, when the first disruption asks: in most ticks none does."""
        if self._counted:
            return
        self._counted = True
        for machine in self._machines:
            pool = pool_of(machine)
            if pool is None:
                continue
            # A launch that never registered is no node of the pool: neither present nor disrupted.
            was_node = machine.record.status is not None and machine.record.status.node_name is not None
            leaving = machine.state in (InstanceState.DRAINING, InstanceState.TERMINATING) and was_node
            # A node that was empty when it began to leave disrupts nobody, however long its termination takes; and one
            # that only cannot be terminated does so no more.
            disrupted = leaving and not _was_empty(machine) and not _fails_to_end(machine)
            self._disrupted[pool] += disrupted
            self._blocked[pool] += disrupted and _is_blocked(machine, self._now)
            self._nodes[pool] += leaving or machine.state in (InstanceState.JOINED, InstanceState.READY)

    def admit(self, machine: MachineUse, reason: DisruptionReason) -> bool:
        """True where the budgets allow one more disruption, which then counts.

        An empty node counts for none: it goes unless a budget allows no disruption at all. Of the others an idle one
        does not count those whose drain is blocked. So neither that nor a termination that fails keeps an idle node on.
        """
        self._count()
        pool = pool_of(machine)
        assert pool is not None, "a machine without a pool is neither idle, nor expired, nor drifted"
        budgets = self._pools[pool].budgets
        idle = reason is DisruptionReason.IDLE
        empty = idle and not machine.pods
        disrupted = 0 if empty else self._disrupted[pool] - (self._blocked[pool] if idle else 0)
        left = allowed_disruptions(budgets, reason, self._nodes[pool], disrupted, self._now)
        if left is not None and left <= 0:
            return False
        self._disrupted[pool] += not empty
        return True

    def release(self, machine: MachineUse) -> None:
        """Takes an admission back: the node is not disrupted after all."""
        if (pool := pool_of(machine)) is not None:
            self._disrupted[pool] -= 1


def _was_empty(machine: MachineUse) -> bool:
    """True where the machine that is leaving began to do so because it was idle, and no pods have to leave it."""
    transitions = machine.record.status.transitions if machine.record.status is not None else ()
    return not machine.pods and bool(transitions) and transitions[-1].reason == Reason.IDLE


def _fails_to_end(machine: MachineUse) -> bool:
    """True where the machine has been drained, and its termination or power-off fails."""
    status = machine.record.status
    return status is not None and not machine.pods and status.reason == Reason.TERMINATION_FAILED


def _is_blocked(machine: MachineUse, now: datetime) -> bool:
    """True where pods have kept the machine from going for long."""
    return machine.state is InstanceState.DRAINING and bool(machine.pods) and drain_is_late(machine.record, now)


def drain_is_late(record: GPUInstance, now: datetime) -> bool:
    """Whether the machine has drained for longer than `DRAIN_BLOCKED_AFTER`."""
    since = record.status.since if record.status is not None else None
    return since is not None and now - since >= DRAIN_BLOCKED_AFTER


def pool_of(machine: MachineUse) -> PoolName | None:
    """Namespace and name of the machine's pool."""
    pool = machine.record.spec.pool_ref
    return None if pool is None else (pool.namespace, pool.name)
