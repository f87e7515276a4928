"""What planning is asked, and what it answers."""

from datetime import timedelta

import msgspec

from forebay.model.nodes import Node
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Offer, SourceKey
from forebay.model.workloads import Pod


class PoolKey(msgspec.Struct, frozen=True, order=True):
    """Namespace "" and name "": machines that the environment names, which belong to no pool."""

    namespace: str
    name: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An offer as one pool would buy it."""

    pool: PoolKey
    source: SourceKey
    offer: Offer
    #: The node it would be: labels and taints of pool and offer, allocatable less DaemonSets. Its name is the owned
    #: machine's, or "" where one is chosen with the purchase.
    node: Node
    #: price x (1 + 0.1 x priority of the source), of what is compared; what is paid is `offer.price`.
    effective_price: UsdPerHour
    #: How many may still be had: stock, or None for no known end.
    available: int | None = None
    #: Pools with more weight are used first.
    weight: int = 10
    #: Namespaces this pool serves; None: all.
    namespaces: frozenset[str] | None = None


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """What may still be bought of some candidates together: a pool's or class's limits less what runs and is coming."""

    #: For sentences: `limits.maxNodes of GPUNodePool team/a`.
    name: str
    #: Which candidates it counts.
    pools: frozenset[PoolKey]
    nodes: int | None = None
    hourly_cost: UsdPerHour | None = None
    resources: Resources | None = None


class Purchase(msgspec.Struct, frozen=True, kw_only=True):
    """One instance to ask for, and the pods it is for."""

    candidate: Candidate
    pods: tuple[Pod, ...]
    reason: Reason
    #: Why this one: "L40S in us-east at $0.86/h was chosen over A100 at $1.29/h: same pods, 33 % cheaper."
    sentence: str


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that nothing can be bought for, why, and what would help."""

    pod: Pod
    reason: Reason
    sentence: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    purchases: tuple[Purchase, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    #: Per hour, in effective prices; and what no plan for the same pods can cost less than.
    cost: UsdPerHour
    bound: UsdPerHour


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """Small charges that decide between equals, and how long to think."""

    seed: int = 0
    deadline: timedelta = timedelta(seconds=1)
