"""What explanations and the status are made from: one consistent look at a cluster, as values."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.reporting.budget_waits import BudgetWait


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts, as the Lease says. Its age is reckoned between two clocks."""

    namespace: str
    #: "" where the last one has left and nobody has come.
    holder: str
    renewed: datetime | None
    duration: timedelta

    def acts(self, now: datetime) -> bool:
        return bool(self.holder) and self.renewed is not None and now - self.renewed <= self.duration


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """What Forebay wrote on an object."""

    #: As namespace/name.
    about: str
    at: datetime
    type: str
    reason: str
    note: str
    times: int = 1


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A Job, as far as it says what its pods are for."""

    namespace: str
    name: str
    annotations: Mapping[str, str] = {}
    suspended: bool = False
    #: How many pods must succeed.
    completions: int = 1
    succeeded: int = 0
    failed: int = 0


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """What all stories are told from."""

    now: datetime
    #: None: Forebay's kinds are not installed.
    records: Sequence[GPUInstance] | None = ()
    pools: Sequence[GPUNodePool] = ()
    nodes: Mapping[str, Node] = {}
    #: By node.
    pods_by_node: Mapping[str, Collection[Pod]] = {}
    #: An operator is at work; None where that cannot be known.
    acting: bool | None = None
    gpu_resources: Collection[str] | None = None
    #: Of pods that wait, by UID: what their budgets say.
    waits: Mapping[str, BudgetWait] = {}


def pods_by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.node is not None and pod.occupies_node:
            found[pod.node].append(pod)
    return found


def acting(leaders: Sequence[Leader] | None, now: datetime) -> bool | None:
    """Whether an operator is at work; None where that cannot be known."""
    return None if leaders is None else any(leader.acts(now) for leader in leaders)


def present(leaders: Sequence[Leader] | None, now: datetime) -> datetime:
    """Now, by the clock of the cluster where that is ahead of ours: ages must not be negative."""
    return max([now, *(leader.renewed for leader in leaders or () if leader.renewed is not None)])
