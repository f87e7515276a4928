"""Input and result of planning: candidates, caps, preferences; purchases and pods left out."""

import math
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from forebay.model.nodes import Node
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.model.sources import Offer, SourceKey
from forebay.model.workloads import Pod


class PoolKey(msgspec.Struct, frozen=True, order=True):
    """Namespace and name of a GPUNodePool; both "" for offers without a GPUNodeClass."""

    namespace: str
    name: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An offer as one GPUNodePool would buy it."""

    pool: PoolKey
    source: SourceKey
    offer: Offer
    #: The node that it would become: labels and taints of pool and offer, allocatable less DaemonSets. Named after the
    #: owned machine, or "" where the name is chosen at purchase.
    node: Node
    #: Price for comparison: price x (1 + 0.1 x priority of the source). What is paid is `offer.price`.
    effective_price: UsdPerHour
    #: How many can be bought: stock, or None where the provider states no limit.
    available: int | None = None
    #: Pools with more weight are used first.
    weight: int = 10
    #: Namespaces that the pool serves; None: all.
    namespaces: frozenset[str] | None = None
    #: The pool names the architecture of its nodes, so that pods which name none may run there.
    any_architecture: bool = False
    #: What to say where it is bought: `its price is 0.6 % of what A100-80GB usually costs`.
    warning: str | None = None


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """What some pools may still buy together: the limits of a pool or class less what runs and is launching."""

    #: Name for sentences, such as `limits.maxNodes of GPUNodePool team/a`.
    name: str
    #: Pools whose candidates count.
    pools: frozenset[PoolKey]
    nodes: int | None = None
    hourly_cost: UsdPerHour | None = None
    resources: Resources | None = None


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that must not be bought now. Its sentence goes to pods that nothing else fits."""

    candidate: Candidate
    reason: Reason
    #: Continues "L4 at $0.80/h (gcp) would fit, but ...": `is cooling down until 12:00:00 UTC: launch failed`.
    sentence: str


class RunningPod(msgspec.Struct, frozen=True, kw_only=True):
    """A running pod, as far as rules about zones look at it."""

    namespace: str
    labels: Mapping[str, str]
    node_labels: Mapping[str, str]
    node_name: str = ""
    node_taints: tuple[Taint, ...] = ()


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that would have taken the same pods and was not chosen."""

    candidate: Candidate
    #: Expected cost of an hour, less that of the chosen candidate.
    more: UsdPerHour


class Purchase(msgspec.Struct, frozen=True, kw_only=True):
    """One instance to launch, and the pods it is for."""

    candidate: Candidate
    pods: tuple[Pod, ...]
    reason: Reason
    #: Why this candidate: "L40S in us-east at $0.86/h was chosen over A100 at $1.29/h: same pods, 33 % cheaper."
    sentence: str
    #: The cheapest few, cheapest first.
    alternatives: tuple[Alternative, ...] = ()


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that no capacity is bought for, with the reason and what would help."""

    pod: Pod
    reason: Reason
    sentence: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    purchases: tuple[Purchase, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    #: Expected cost of an hour: effective prices, what minimum billing and reclaims add, and unmet preferences of pods.
    cost: UsdPerHour
    #: Lower bound: no plan for the same pods under the same rules costs less.
    bound: UsdPerHour
    #: What providers will bill for an hour.
    price: UsdPerHour

    @property
    def gap(self) -> float:
        """How far the cost is above the lower bound, as a share of the bound."""
        return float((self.cost - self.bound) / self.bound) if self.bound else 0.0 if not self.cost else math.inf


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """What decides between candidates besides the price, and how long the search may take."""

    seed: int = 0
    #: Work is counted in seconds of a usual machine that is idle, so that equal input gives an equal plan on a busy one
    #: too. Only after several times this long does the clock end the search, with the best plan so far.
    deadline: timedelta = timedelta(seconds=1)
    #: Whether to refine the greedy plan.
    refine: bool = True
    #: Expected use of new capacity: minimum billing is spread over this.
    expected_run: timedelta = timedelta(hours=1)
    #: Work that is repeated when the provider reclaims an instance.
    redo: timedelta = timedelta(minutes=30)
    #: Providers already in use, which win ties. None: all count as in use.
    known_providers: frozenset[str] | None = None
    #: Cost of one point of an unmet preferred node affinity, per pod.
    per_preference_point: UsdPerHour = UsdPerHour("0.0005")
