"""Machines of deleted GPUNodePools, as their class tells of them: what becomes of each, and what keeps it from going.

A pool has no finalizer, so that `kubectl replace --force` lets it come back at once (docs/decisions/0015).
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.parts import Truth
from forebay.demand.evictions import eviction_refused
from forebay.demand.maintenance import held_by_people
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.revocation import POOL_GONE_AFTER, owner_lost_since
from forebay.lifecycle.wording import terminated
from forebay.model.reasons import Reason
from forebay.model.workloads import pod_names
from forebay.reconcile.class_finalizers import some_of
from forebay.reconcile.reports import Fact
from forebay.reconcile.snapshot import Snapshot

#: Condition of a class that has machines of deleted pools, or had.
POOLS_DELETED: Final = "PoolsDeleted"
_LONGEST: Final = 4096


def deleted_pools(snapshot: Snapshot) -> Mapping[str, Fact]:
    """By class, the condition PoolsDeleted: True while machines of deleted pools are left."""
    live = {pool.key for pool in snapshot.pools} | snapshot.unreadable_pools
    left: defaultdict[str, list[GPUInstance]] = defaultdict(list)
    for record in snapshot.records:
        if record.spec.pool_ref is not None and record.state is not InstanceState.GONE and record.pool_key not in live:
            left[record.spec.node_class_name or ""].append(record)
    told_before = {each.metadata.name: _NONE_LEFT for each in snapshot.classes if _told(each)}
    return told_before | {name: _fact(records, snapshot) for name, records in left.items()}


_NONE_LEFT: Final = Fact(POOLS_DELETED, Truth.FALSE, Reason.TERMINATED, "No machine of a deleted GPUNodePool is left.")


def _told(node_class: GPUNodeClass) -> bool:
    conditions = node_class.status.conditions if node_class.status is not None else ()
    return any(each.type == POOLS_DELETED for each in conditions)


def _fact(records: list[GPUInstance], snapshot: Snapshot) -> Fact:
    by_pool: defaultdict[str, list[str]] = defaultdict(list)
    for record in sorted(records, key=lambda each: each.metadata.name):
        by_pool["/".join(record.pool_key)].append(f"{record.metadata.name} ({_fate(record, snapshot)})")
    told = " ".join(f"GPUNodePool {pool} was deleted, and has left {some_of(each)}." for pool, each in by_pool.items())
    return Fact(POOLS_DELETED, Truth.TRUE, Reason.POOL_GONE, told[:_LONGEST])


def _fate(record: GPUInstance, snapshot: Snapshot) -> str:
    """What happens to the machine next, and what blocks that."""
    node = snapshot.nodes.get(record.node_name or "")
    pods = [pod for pod in snapshot.pods_by_node.get(record.node_name or "", ()) if pod.deleted is None]
    held = held_by_people(record, node, held_by_cordon=policy_of(record).held_by_cordon)
    if held is not None:
        return f"{record.state}; kept, because {held}"
    if record.state is InstanceState.DRAINING and pods:
        why = eviction_refused(pods, snapshot.pod_disruption_budgets)
        return f"Draining {pod_names(pods)}" + (f"; blocked: {why}" if why is not None else "")
    if record.state in {InstanceState.DRAINING, InstanceState.TERMINATING}:
        failing = record.status is not None and record.status.reason == Reason.TERMINATION_FAILED
        return f"{record.state}; its provider fails to end it" if failing else str(record.state)
    since = owner_lost_since(record)
    running = f" with {pod_names(pods)}" if pods else ""
    if since is None:
        return f"{record.state}{running}"
    at = since + POOL_GONE_AFTER
    return (
        f"{record.state}{running}; drained and {terminated(record)} from {at:%H:%M:%S} UTC on, unless the pool is back"
    )
