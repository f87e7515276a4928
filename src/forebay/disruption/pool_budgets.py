"""How many nodes of each pool may be disrupted in one tick, whatever the reason."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_node_pool import Disruption, DisruptionReason
from forebay.disruption.machine_use import MachineUse
from forebay.disruption.node_budgets import allowed_disruptions
from forebay.model.reasons import Reason

PoolName = tuple[str, str]


class PoolBudgets:
    """How many nodes of each pool may still be disrupted in this tick."""

    def __init__(self, machines: Sequence[MachineUse], pools: Mapping[PoolName, Disruption], now: datetime) -> None:
        self._machines = machines
        self._pools = pools
        self._now = now
        self._nodes: defaultdict[PoolName, int] = defaultdict(int)
        self._disrupted: defaultdict[PoolName, int] = defaultdict(int)
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
            # A node that was empty when it began to leave disrupts nobody, however long its termination takes.
            self._disrupted[pool] += leaving and not _was_empty(machine)
            self._nodes[pool] += leaving or machine.state in (InstanceState.JOINED, InstanceState.READY)

    def admit(self, machine: MachineUse, reason: DisruptionReason) -> bool:
        """True where the budgets allow one more disruption, which then counts.

        An empty node counts for none: it goes unless a budget allows no disruption at all. So a drain that is blocked,
        or a termination that fails, keeps no idle node on.
        """
        self._count()
        pool = pool_of(machine)
        assert pool is not None, "a machine without a pool is neither idle, nor expired, nor drifted"
        budgets = self._pools[pool].budgets
        empty = reason is DisruptionReason.IDLE and not machine.pods
        disrupted = 0 if empty else self._disrupted[pool]
        left = allowed_disruptions(budgets, reason, self._nodes[pool], disrupted, self._now)
        if left is not None and left <= 0:
            return False
        self._disrupted[pool] += not empty
        return True


def _was_empty(machine: MachineUse) -> bool:
    """True where the machine that is leaving began to do so because it was idle, and no pods have to leave it."""
    transitions = machine.record.status.transitions if machine.record.status is not None else ()
    return not machine.pods and bool(transitions) and transitions[-1].reason == Reason.IDLE


def pool_of(machine: MachineUse) -> PoolName | None:
    """Namespace and name of the machine's pool."""
    pool = machine.record.spec.pool_ref
    return None if pool is None else (pool.namespace, pool.name)
