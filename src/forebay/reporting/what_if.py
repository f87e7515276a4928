"""Dry runs: what the operator would buy now, and with other prices, providers or budgets (--what-if)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.budgets.admission import Held
from forebay.demand.assessment import Assessment
from forebay.demand.reservation import Reservations
from forebay.model.gpu_models import canonical, matching_models
from forebay.model.quantities import GpuHours, Usd, UsdPerHour
from forebay.model.sources import USUAL_DELIVERY, Capabilities, Delivery, Offer, Source, SourceKey
from forebay.planning.plan import Cap, Plan, PoolKey, Preferences
from forebay.planning.pool_policies import NO_POOL
from forebay.reconcile.budgeting import admit, assess_budgets, gates
from forebay.reconcile.buying import plan_for, within_dollars
from forebay.reconcile.decisions import PodEvent
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.unmet_demand import assess_demand, reserve_existing

_FORMS: Final = "price=NAME:FACTOR, without=PROVIDER, budget=USD_PER_HOUR or budget=NAMESPACE/NAME:GPU_HOURS"
#: A person would rather wait for a proven bound than read that there is none.
_PREFERENCES: Final = Preferences(deadline=timedelta(seconds=15))
#: Class name of offers that belong to no GPUNodeClass: every pod may use them.
_NO_CLASS: Final = ""


NO_PLAN: Final = Plan(cost=UsdPerHour.zero(), bound=UsdPerHour.zero(), price=UsdPerHour.zero())


class WhatIfError(ValueError):
    """An invalid --what-if, as one sentence: what is wrong, and which forms are valid."""


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that a tick would make for the waiting pods."""

    assessment: Assessment
    reservations: Reservations
    plan: Plan
    #: Pods that budgets hold, including those with the budget's scheduling gate.
    held: tuple[Held | PodEvent, ...] = ()


class PriceChange(msgspec.Struct, frozen=True):
    """Multiplies the prices of a provider, an instance type, an owned machine or a GPU model."""

    name: str
    factor: Fraction

    def applied(self, snapshot: Snapshot) -> Snapshot:
        if not any(self._matches(offer) for source in snapshot.sources.values() for offer in source.offers or ()):
            raise WhatIfError(f'no offer matches "{self.name}"; give a provider, an instance type or a GPU model')
        sources = {
            key: replace(source, offers=source.offers and tuple(map(self._priced, source.offers)))
            for key, source in snapshot.sources.items()
        }
        return replace(snapshot, sources=sources)

    def _matches(self, offer: Offer) -> bool:
        name = self.name.casefold()
        if name in (offer.provider.casefold(), offer.instance_type.casefold()):
            return True
        if offer.gpu_type is None:
            return False
        return canonical(offer.gpu_type, offer.gpu_memory_gib) in matching_models(self.name)

    def _priced(self, offer: Offer) -> Offer:
        if not self._matches(offer):
            return offer
        return replace(offer, price=UsdPerHour.from_units(round(offer.price.units * self.factor)))


class WithoutProvider(msgspec.Struct, frozen=True):
    name: str

    def applied(self, snapshot: Snapshot) -> Snapshot:
        kept = {key: each for key, each in snapshot.sources.items() if key.provider != self.name}
        if len(kept) == len(snapshot.sources):
            known = ", ".join(sorted({key.provider for key in snapshot.sources})) or "none"
            raise WhatIfError(f'there is no provider "{self.name}"; providers are: {known}')
        return replace(snapshot, sources=kept)


class SpendingCap(msgspec.Struct, frozen=True):
    """Limits the hourly cost of everything that is bought now."""

    most: UsdPerHour

    def cap(self, snapshot: Snapshot) -> Cap:
        pools = frozenset({NO_POOL, *(PoolKey(*pool.key) for pool in snapshot.pools)})
        return Cap(name="the budget of --what-if", pools=pools, hourly_cost=self.most)


class QuotaChange(msgspec.Struct, frozen=True):
    """Replaces one quota of a GPUWorkloadBudget; its other quota stays."""

    namespace: str
    name: str
    gpu_hours: str | None = None
    usd: str | None = None

    def applied(self, snapshot: Snapshot) -> Snapshot:
        key = (self.namespace, self.name)
        if key not in {budget.key for budget in snapshot.budgets}:
            known = ", ".join(sorted("/".join(budget.key) for budget in snapshot.budgets)) or "none"
            raise WhatIfError(f'there is no GPUWorkloadBudget "{"/".join(key)}"; budgets are: {known}')
        budgets = tuple(self._changed(each) if each.key == key else each for each in snapshot.budgets)
        return replace(snapshot, budgets=budgets)

    def _changed(self, budget: GPUWorkloadBudget) -> GPUWorkloadBudget:
        changed = {"gpu_hours": self.gpu_hours} if self.gpu_hours is not None else {"usd": self.usd}
        quota = replace(budget.spec.quota, **changed)
        return replace(budget, spec=replace(budget.spec, quota=quota))


WhatIfChange = PriceChange | WithoutProvider | SpendingCap | QuotaChange


def parse_supposition(text: str) -> WhatIfChange:
    """The change that a --what-if option describes. Raises `WhatIfError`."""
    kind, _, value = text.partition("=")
    match kind:
        case "price":
            name, _, factor = value.rpartition(":")
            if not name:
                raise WhatIfError(f'"{text}" has no factor; give price=NAME:FACTOR, such as price=H100:0.5')
            return PriceChange(name, _factor(factor, text))
        case "without" if value:
            return WithoutProvider(value)
        case "budget" if "/" in value:
            return _quota(value, text)
        case "budget":
            return SpendingCap(_budget(value, text))
        case _:
            raise WhatIfError(f'"{text}" is not a valid change; give {_FORMS}')


def suppose(snapshot: Snapshot, changes: Iterable[WhatIfChange]) -> tuple[Snapshot, tuple[Cap, ...]]:
    """The snapshot with the changes applied, and the caps that they add. Raises `WhatIfError`."""
    caps: list[Cap] = []
    for change in changes:
        if isinstance(change, SpendingCap):
            caps.append(change.cap(snapshot))
        else:
            snapshot = change.applied(snapshot)
    return snapshot, tuple(caps)


def dry_run(snapshot: Snapshot, extra_caps: Sequence[Cap] = ()) -> DryRun:
    assessment = assess_demand(snapshot)
    reservations = reserve_existing(snapshot, assessment)
    made = NO_PLAN
    if reservations.left:
        made = plan_for(snapshot, reservations.left, _PREFERENCES, extra_caps=extra_caps, reserved=reservations.placed)
    if snapshot.budget_state is None or not snapshot.budgets:
        return DryRun(assessment=assessment, reservations=reservations, plan=made)
    found = within_budgets(snapshot, reservations, made, extra_caps)
    return DryRun(assessment=assessment, reservations=reservations, plan=found.plan, held=found.held)


class _BudgetedPlan(NamedTuple):
    plan: Plan
    held: tuple[Held | PodEvent, ...]


def within_budgets(
    snapshot: Snapshot, reservations: Reservations, made: Plan, extra_caps: Sequence[Cap]
) -> _BudgetedPlan:
    """The plan for the pods that budgets admit, and the pods that they hold.

    Pods that no capacity can be bought for use up no quota that others need, and nothing is bought for pods whose
    budget has no dollars left.
    """
    unplannable = made.left_out
    not_served = {each.pod.uid for each in unplannable}
    refused: list[Held] = []
    while True:
        budgeting = assess_budgets(snapshot)
        others = tuple(pod for pod in reservations.left if pod.uid not in not_served)
        admitted = admit(snapshot, budgeting, replace(reservations, left=others))
        if admitted.held or refused:
            made = NO_PLAN
            if admitted.pods:
                made = plan_for(
                    snapshot, admitted.pods, _PREFERENCES, extra_caps=extra_caps, reserved=reservations.placed
                )
        _, found = within_dollars(made.purchases, budgeting.admission)
        if not found:
            break
        refused += found
        not_served.update(each.pod.uid for each in found)
    waiting = gates(snapshot, budgeting).held
    left_out = made.left_out if made.left_out == unplannable else (*unplannable, *made.left_out)
    return _BudgetedPlan(replace(made, left_out=left_out), (*admitted.held, *refused, *waiting))


def with_table(
    snapshot: Snapshot, offers: Iterable[Offer], deliveries: Mapping[str, Delivery], *, spot: bool = False
) -> Snapshot:
    """The snapshot with these offers in place of those of the same providers.

    The offers go to the pools of the classes that name the provider. Where there is no GPUNodeClass at all, every pod
    may use them, and `spot` says whether spot offers are allowed. `deliveries` says what each provider delivers; one
    that is not in it rents machines.
    """
    by_provider: dict[str, list[Offer]] = {}
    for offer in offers:
        by_provider.setdefault(offer.provider, []).append(offer)
    sources = dict(snapshot.sources)
    if not snapshot.classes:
        for provider, own in by_provider.items():
            key = SourceKey(_NO_CLASS, provider)
            sources[key] = _source(key, [offer for offer in own if spot or not offer.spot], deliveries)
    for node_class in snapshot.classes:
        for entry in node_class.spec.providers:
            key = SourceKey(node_class.metadata.name, entry.name)
            if entry.name in by_provider:
                made = _source(key, by_provider[entry.name], deliveries)
                sources[key] = replace(made, priority=entry.priority, enabled=entry.enabled)
    unusable = {key: why for key, why in snapshot.unusable.items() if key not in sources}
    return replace(snapshot, sources=sources, unusable=unusable)


def _source(key: SourceKey, offers: Sequence[Offer], deliveries: Mapping[str, Delivery]) -> Source:
    delivers = deliveries.get(key.provider, USUAL_DELIVERY)
    return Source(key=key, capabilities=Capabilities(deliveries=(delivers,)), offers=tuple(offers))


def _factor(text: str, whole: str) -> Fraction:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number <= 10**6:
        raise WhatIfError(f'"{whole}": "{text}" is not a factor; give a number of at least 0, such as 0.5 or 1.2')
    return Fraction(number)


def _quota(value: str, whole: str) -> QuotaChange:
    key, colon, amount = value.rpartition(":")
    namespace, slash, name = key.partition("/")
    if not colon or not slash or not name or not namespace:
        raise WhatIfError(
            f'"{whole}" has no quota; give budget=NAMESPACE/NAME:GPU_HOURS, such as budget=team/quota:200, or dollars, '
            "such as budget=team/quota:50usd"
        )
    dollars = amount.removesuffix("usd")
    in_dollars = dollars != amount
    try:
        positive = Usd(dollars) > Usd.zero() if in_dollars else GpuHours.parse(amount) > GpuHours.zero()
    except ValueError:
        positive = False
    if not positive:
        raise WhatIfError(f'"{whole}": "{amount}" is not a quota; give GPU-hours such as 200, or dollars such as 50usd')
    return QuotaChange(namespace, name, usd=dollars) if in_dollars else QuotaChange(namespace, name, gpu_hours=amount)


def _budget(text: str, whole: str) -> UsdPerHour:
    try:
        most = UsdPerHour(text)
    except ValueError:
        most = UsdPerHour(-1)
    if most < UsdPerHour.zero():
        raise WhatIfError(f'"{whole}": "{text}" is not a budget; give dollars an hour, such as budget=12.50')
    return most
