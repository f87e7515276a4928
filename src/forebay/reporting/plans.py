"""The result of `forebay plan` as values: printed as JSON for scripts, drawn by `cli/plan/view.py` for people."""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from forebay.api.names import BUDGET_GATE
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.planning.plan import Candidate, LeftOut, Plan, Purchase
from forebay.reporting.defragmentation import PlannedMove
from forebay.reporting.what_if import DryRun


class MachineKind(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that would be bought or powered on."""

    provider: str
    instance_type: str
    #: Name of the node, for an owned machine.
    machine: str | None
    region: str | None
    zone: str | None
    spot: bool
    gpu_type: str | None
    gpu_count: int
    #: Dollars an hour, exact.
    price: str
    #: `namespace/name` of the GPUNodePool; None for machines without a pool.
    pool: str | None
    node_class: str | None

    @property
    def title(self) -> str:
        return f"machine {self.machine}" if self.machine is not None else f"{self.provider} {self.instance_type}"

    @property
    def gpus(self) -> str:
        return f"{self.gpu_count} x {self.gpu_type}" if self.gpu_type else str(self.gpu_count)

    @property
    def where(self) -> str:
        return self.zone or self.region or "-"


class RejectedOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that would have taken the same pods and was not chosen."""

    kind: MachineKind
    #: Expected dollars an hour more than the chosen machine, exact.
    more: str


class PlannedPurchase(msgspec.Struct, frozen=True, kw_only=True):
    kind: MachineKind
    pods: list[str]
    reason: str
    sentence: str
    alternatives: list[RejectedOffer]


class LeftOutPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod for which nothing is bought, with the reason."""

    pod: str
    reason: str
    sentence: str


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    #: Number of waiting pods that count as demand.
    pods: int
    machines: list[PlannedPurchase]
    #: Dollars an hour that providers will bill, exact.
    price: str
    #: Expected dollars an hour: the price with provider priorities, minimum billing, reclaims and unmet preferences.
    cost: str
    #: Lower bound: no plan for the same pods costs less.
    bound: str
    #: How far the cost is above the lower bound, as a share of the bound; None where the bound is 0.
    gap: float | None
    left_out: list[LeftOutPod]
    #: Pods that fit on existing or launching capacity.
    placed: list[LeftOutPod]
    #: Pods that do not count as demand (yet).
    others: list[LeftOutPod]


class MachineChange(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines of one type both plans have."""

    kind: MachineKind
    before: int
    after: int


class PlanDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What changes from the present plan to the what-if plan."""

    price: str
    cost: str
    machines: list[MachineChange]
    served: list[str]
    no_longer_served: list[str]


class WhatIfReport(msgspec.Struct, frozen=True, kw_only=True):
    supposed: list[str]
    plan: PlanReport
    difference: PlanDifference


class Report(msgspec.Struct, frozen=True, kw_only=True):
    where: str
    now: datetime
    plan: PlanReport
    what_if: WhatIfReport | None
    #: Nodes of NodeProvisioners that defragmentation would free.
    moves: list[PlannedMove]
    notes: list[str]

    @property
    def answer(self) -> PlanReport:
        """The plan that the user asked for: with --what-if, the what-if plan."""
        return self.plan if self.what_if is None else self.what_if.plan


def _why(left: LeftOut, containers: Sequence[str]) -> str:
    """Why nothing is planned for a pod. Where nothing but containers is configured, the operator knows more."""
    if left.reason is not Reason.NO_CAPACITY_CONFIGURED or not containers:
        return left.sentence
    names, told = ", ".join(containers), left.pod.capacity
    if told is not None and told.startswith(f"{left.reason}: "):
        return told.removeprefix(f"{left.reason}: ")
    left_out = f"No machines are configured, and a plan leaves out remote containers ({names})"
    if told is None:
        return f"{left_out}, which run pods of Jobs that are marked runpod.io/managed."
    return f"{left_out}. {told}"


def plan_report(dry_run: DryRun, containers: Sequence[str] = ()) -> PlanReport:
    """`containers`: providers that run containers, which a plan leaves out."""
    plan, reservations, names = dry_run.plan, dry_run.reservations, {}
    for pod in dry_run.assessment.demand:
        names[pod.uid] = _name(pod)
    notes = reservations.notes
    left = [
        *(LeftOutPod(pod=_name(each.pod), reason=each.reason, sentence=each.sentence) for each in reservations.refused),
        *(
            LeftOutPod(
                pod=_name(each.pod),
                reason=each.reason,
                sentence=" ".join(part for part in (notes.get(each.pod.uid), _why(each, containers)) if part),
            )
            for each in plan.left_out
        ),
        *(
            LeftOutPod(pod=_name(each.pod), reason=each.reason, sentence=each.sentence)
            for each in dry_run.held
            if BUDGET_GATE not in each.pod.shape.scheduling_gates
        ),
    ]
    gated = {each.pod.uid: each for each in dry_run.held if BUDGET_GATE in each.pod.shape.scheduling_gates}
    return PlanReport(
        pods=len(dry_run.assessment.demand),
        machines=[_bought(each) for each in plan.purchases],
        price=plan.price.exact(),
        cost=plan.cost.exact(),
        bound=plan.bound.exact(),
        gap=_gap(plan),
        left_out=left,
        placed=[
            LeftOutPod(pod=names[uid], reason=each.reason, sentence=each.sentence)
            for uid, each in reservations.placed.items()
        ],
        others=[
            LeftOutPod(pod=_name(each.pod), reason=shown.reason, sentence=shown.sentence)
            for each in dry_run.assessment.not_demand
            for shown in (gated.get(each.pod.uid, each),)
        ],
    )


def what_if_report(supposed: Sequence[str], before: PlanReport, after: PlanReport) -> WhatIfReport:
    counts = Counter(each.kind for each in before.machines), Counter(each.kind for each in after.machines)
    # The same machine at another price is no change of machines.
    changes: dict[tuple[object, ...], MachineChange] = {}
    for at, counted in enumerate(counts):
        for kind, number in counted.items():
            known = changes.get(identity(kind), MachineChange(kind=kind, before=0, after=0))
            changes[identity(kind)] = MachineChange(
                kind=kind, before=known.before + number * (at == 0), after=known.after + number * (at == 1)
            )
    waiting = [{each.pod for each in plan.left_out} for plan in (before, after)]
    return WhatIfReport(
        supposed=list(supposed),
        plan=after,
        difference=PlanDifference(
            price=(UsdPerHour(after.price) - UsdPerHour(before.price)).exact(),
            cost=(UsdPerHour(after.cost) - UsdPerHour(before.cost)).exact(),
            machines=[each for each in changes.values() if each.before != each.after],
            served=sorted(waiting[0] - waiting[1]),
            no_longer_served=sorted(waiting[1] - waiting[0]),
        ),
    )


def identity(kind: MachineKind) -> tuple[object, ...]:
    return (kind.provider, kind.instance_type, kind.machine, kind.region, kind.zone, kind.spot, kind.pool)


def _bought(purchase: Purchase) -> PlannedPurchase:
    return PlannedPurchase(
        kind=_kind(purchase.candidate),
        pods=[_name(pod) for pod in purchase.pods],
        reason=purchase.reason,
        sentence=purchase.sentence,
        alternatives=[
            RejectedOffer(kind=_kind(other.candidate), more=other.more.exact()) for other in purchase.alternatives
        ],
    )


def _kind(candidate: Candidate) -> MachineKind:
    offer, pool = candidate.offer, candidate.pool
    return MachineKind(
        provider=offer.provider,
        instance_type=offer.instance_type,
        machine=offer.node_name,
        region=offer.region,
        zone=offer.zone,
        spot=offer.spot,
        gpu_type=offer.gpu_type,
        gpu_count=offer.gpu_count,
        price=offer.price.exact(),
        pool=f"{pool.namespace}/{pool.name}" if pool.name else None,
        node_class=candidate.source.node_class or None,
    )


def _gap(plan: Plan) -> float | None:
    return plan.gap if math.isfinite(plan.gap) else None


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"
