"""What planning is asked, and what it answers."""

import math
from collections.abc import Mapping
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


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is not to be bought now. Pods that nothing else takes are told why."""

    candidate: Candidate
    reason: Reason
    #: To be read after "..., but": `it is cooling down until 12:00 after a failed launch`.
    sentence: str


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that runs, as the rules of others about zones see it."""

    namespace: str
    labels: Mapping[str, str]
    node_labels: Mapping[str, str]


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """What would have taken the same pods, and was not chosen."""

    candidate: Candidate
    #: Expected dollars an hour more than what was chosen.
    more: UsdPerHour


class Purchase(msgspec.Struct, frozen=True, kw_only=True):
    """One instance to ask for, and the pods it is for."""

    candidate: Candidate
    pods: tuple[Pod, ...]
    reason: Reason
    #: Why this one: "L40S in us-east at $0.86/h was chosen over A100 at $1.29/h: same pods, 33 % cheaper."
    sentence: str
    #: Cheapest first; a few of them.
    alternatives: tuple[Alternative, ...] = ()


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that nothing can be bought for, why, and what would help."""

    pod: Pod
    reason: Reason
    sentence: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    purchases: tuple[Purchase, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    #: Expected dollars an hour: effective prices, what minimum billing and reclaims add to them, and what unmet
    #: preferences of pods count for.
    cost: UsdPerHour
    #: What no plan for the same pods under the same rules can cost less than.
    bound: UsdPerHour
    #: What the providers will bill for an hour.
    price: UsdPerHour

    @property
    def gap(self) -> float:
        """Which share of the bound the cost may be above it, at most."""
        return float((self.cost - self.bound) / self.bound) if self.bound else 0.0 if not self.cost else math.inf


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """Small charges that decide between equals, and how long to think."""

    seed: int = 0
    #: A guard only. Work is bounded by counts, so that the same input gives the same plan on any machine that is fast
    #: enough to finish in time; where this cuts it short, the plan is the best so far.
    deadline: timedelta = timedelta(seconds=1)
    #: Whether to refine what the first quick answer leaves open.
    refine: bool = True
    #: For how long capacity is expected to be used: over this, minimum billing is reckoned.
    expected_run: timedelta = timedelta(hours=1)
    #: Work that is done again when the provider takes an instance back.
    redo: timedelta = timedelta(minutes=30)
    #: Providers already in use. None: all count as known. Between equals, the known ones are taken.
    known_providers: frozenset[str] | None = None
    #: What one point of an unmet preferred node affinity counts for, per pod.
    per_preference_point: UsdPerHour = UsdPerHour("0.0005")
