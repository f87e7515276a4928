"""`ClusterView`: one consistent view of a cluster, as values, from which status and explanations are computed."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.reporting.budget_waits import BudgetWait

#: What a user may not be permitted to list, as `ClusterView.hidden` names it.
INSTANCES: Final = "GPUInstances"
NODES: Final = "nodes"


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of one operator's Lease. `renewed` is by the holder's clock, which may differ from ours."""

    namespace: str
    #: "" where the last leader released the Lease and no other has acquired it.
    holder: str
    renewed: datetime | None
    duration: timedelta

    def is_active(self, now: datetime) -> bool:
        """Whether the Lease is held and has not expired."""
        return bool(self.holder) and self.renewed is not None and now - self.renewed <= self.duration


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event that Forebay recorded on an object."""

    #: The object, as namespace/name.
    about: str
    at: datetime
    type: str
    reason: str
    note: str
    times: int = 1


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a Job that an explanation needs."""

    namespace: str
    name: str
    annotations: Mapping[str, str] = {}
    suspended: bool = False
    #: How many pods must succeed.
    completions: int = 1
    succeeded: int = 0
    failed: int = 0


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an explanation is computed from, read at `now`."""

    now: datetime
    #: None: Forebay's kinds are not installed.
    records: Sequence[GPUInstance] | None = ()
    pools: Sequence[GPUNodePool] = ()
    #: Empty where this user may not list them.
    classes: Sequence[GPUNodeClass] = ()
    nodes: Mapping[str, Node] = {}
    #: Pods that occupy each node, by the node's name.
    pods_by_node: Mapping[str, Collection[Pod]] = {}
    #: Whether an operator holds a valid Lease; None where this user may not read Leases.
    operator_running: bool | None = None
    gpu_resources: Collection[str] | None = None
    #: What its budgets say about each waiting pod, by the pod's UID.
    budget_waits: Mapping[str, BudgetWait] = {}
    #: What this user may not list, as `INSTANCES`; it counts as empty above.
    hidden: tuple[str, ...] = ()


def pods_by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Pods that occupy a node, by the node's name."""
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.node is not None and pod.occupies_node:
            found[pod.node].append(pod)
    return found


def operator_running(leaders: Sequence[Leader] | None, now: datetime) -> bool | None:
    """Whether any operator holds a valid Lease; None where Leases could not be read."""
    return None if leaders is None else any(leader.is_active(now) for leader in leaders)


def cluster_now(leaders: Sequence[Leader] | None, now: datetime) -> datetime:
    """The later of `now` and the last Lease renewal.

    The cluster's clock may be ahead of ours, and ages must not be negative.
    """
    return max([now, *(leader.renewed for leader in leaders or () if leader.renewed is not None)])
