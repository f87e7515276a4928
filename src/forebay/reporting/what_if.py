"""What would be bought, and what would be if prices, providers or the budget were others."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.providers import RUNS_CONTAINERS
from forebay.budgets.admission import Held
from forebay.demand.assessment import Assessment
from forebay.demand.reservation import Reservations
from forebay.model.gpu_models import canonical, matching_models
from forebay.model.quantities import GpuHours, Usd, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.planning.candidates import NO_POOL
from forebay.planning.plan import Cap, Plan, PoolKey, Preferences
from forebay.reconcile.budgeting import account, admit, gates
from forebay.reconcile.buying import plan_for, within_dollars
from forebay.reconcile.decisions import PodEvent
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import demand, reserve_existing

_FORMS: Final = "price=NAME:FACTOR, without=PROVIDER, budget=USD_PER_HOUR or budget=NAMESPACE/NAME:GPU_HOURS"
#: Whoever asks would rather wait for the proof than read that there is none.
_AT_LEISURE: Final = Preferences(deadline=timedelta(seconds=15))
#: Class of offers that no class names: anybody may have them.
_NO_CLASS: Final = ""


NOTHING: Final = Plan(cost=UsdPerHour.zero(), bound=UsdPerHour.zero(), price=UsdPerHour.zero())


class WhatIfError(ValueError):
    """One sentence: what cannot be supposed, and what can."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What a tick would think of the pods that wait."""

    assessment: Assessment
    reservations: Reservations
    plan: Plan
    #: Pods that budgets keep waiting, those at their gates included.
    held: tuple[Held | PodEvent, ...] = ()


class PriceChange(msgspec.Struct, frozen=True):
    """Of a provider, an instance type or machine, or a GPU model."""

    name: str
    factor: Fraction

    def applied(self, snapshot: Snapshot) -> Snapshot:
        if not any(self._means(offer) for source in snapshot.sources.values() for offer in source.offers or ()):
            raise WhatIfError(f'no offer is of "{self.name}"; give a provider, an instance type or a GPU model')
        sources = {
            key: replace(source, offers=source.offers and tuple(map(self._priced, source.offers)))
            for key, source in snapshot.sources.items()
        }
        return replace(snapshot, sources=sources)

    def _means(self, offer: Offer) -> bool:
        name = self.name.casefold()
        if name in (offer.provider.casefold(), offer.instance_type.casefold()):
            return True
        return offer.gpu_type is not None and canonical(offer.gpu_type, offer.gpu_memory_gib) in matching_models(self.name)

    def _priced(self, offer: Offer) -> Offer:
        if not self._means(offer):
            return offer
        return replace(offer, price=UsdPerHour.from_units(round(offer.price.units * self.factor)))


class WithoutProvider(msgspec.Struct, frozen=True):
    name: str

    def applied(self, snapshot: Snapshot) -> Snapshot:
        kept = {key: each for key, each in snapshot.sources.items() if key.provider != self.name}
        if len(kept) == len(snapshot.sources):
            known = ", ".join(sorted({key.provider for key in snapshot.sources})) or "none"
            raise WhatIfError(f'nothing comes from a provider "{self.name}"; providers are: {known}')
        return replace(snapshot, sources=kept)


class SpendingCap(msgspec.Struct, frozen=True):
    """For everything that is bought now."""

    most: UsdPerHour

    def cap(self, snapshot: Snapshot) -> Cap:
        pools = frozenset({NO_POOL, *(PoolKey(*pool.key) for pool in snapshot.pools)})
        return Cap(name="the budget of --what-if", pools=pools, hourly_cost=self.most)


class QuotaChange(msgspec.Struct, frozen=True):
    """Another one for a GPUWorkloadBudget; what it does not name stays."""

    namespace: str
    name: str
    gpu_hours: str | None = None
    usd: str | None = None

    def applied(self, snapshot: Snapshot) -> Snapshot:
        key = (self.namespace, self.name)
        if key not in {budget.key for budget in snapshot.budgets}:
            known = ", ".join(sorted("/".join(budget.key) for budget in snapshot.budgets)) or "none"
            raise WhatIfError(f'there is no GPUWorkloadBudget "{"/".join(key)}"; budgets are: {known}')
        budgets = tuple(self._of(each) if each.key == key else each for each in snapshot.budgets)
        return replace(snapshot, budgets=budgets)

    def _of(self, budget: GPUWorkloadBudget) -> GPUWorkloadBudget:
        changed = {"gpu_hours": self.gpu_hours} if self.gpu_hours is not None else {"usd": self.usd}
        quota = replace(budget.spec.quota, **changed)
        return replace(budget, spec=replace(budget.spec, quota=quota))


Supposition = PriceChange | WithoutProvider | SpendingCap | QuotaChange


def parse(text: str) -> Supposition:
    """Raises `WhatIfError`."""
    kind, _, value = text.partition("=")
    match kind:
        case "price":
            name, colon, factor = value.rpartition(":")
            if not colon or not name:
                raise WhatIfError(f'"{text}" has no factor; give price=NAME:FACTOR, such as price=H100:0.5')
            return PriceChange(name, _factor(factor, text))
        case "without" if value:
            return WithoutProvider(value)
        case "budget" if "/" in value:
            return _quota(value, text)
        case "budget":
            return SpendingCap(_budget(value, text))
        case _:
            raise WhatIfError(f'"{text}" cannot be supposed; give {_FORMS}')


def suppose(snapshot: Snapshot, changes: Iterable[Supposition]) -> tuple[Snapshot, tuple[Cap, ...]]:
    """The world as it would be, and the limits that come with it. Raises `WhatIfError`."""
    caps: list[Cap] = []
    for change in changes:
        if isinstance(change, SpendingCap):
            caps.append(change.cap(snapshot))
        else:
            snapshot = change.applied(snapshot)
    return snapshot, tuple(caps)


def outlook(snapshot: Snapshot, beside: Sequence[Cap] = ()) -> Outlook:
    assessment = demand(snapshot)
    reservations = reserve_existing(snapshot, assessment)
    made = NOTHING
    if reservations.left:
        made = plan_for(snapshot, reservations.left, _AT_LEISURE, beside=beside)
    if snapshot.books is None or not snapshot.budgets:
        return Outlook(assessment=assessment, reservations=reservations, plan=made)
    found = within_budgets(snapshot, reservations, made, beside)
    return Outlook(assessment=assessment, reservations=reservations, plan=found.plan, held=found.held)


class _Within(NamedTuple):
    plan: Plan
    held: tuple[Held | PodEvent, ...]


def within_budgets(snapshot: Snapshot, reservations: Reservations, made: Plan, beside: Sequence[Cap]) -> _Within:
    """The plan for those whom budgets let through. Whom nothing can be bought for takes no room from others; and for
    whom there are no dollars, nothing is bought.
    """
    hopeless = made.left_out
    beyond = {each.pod.uid for each in hopeless}
    refused: list[Held] = []
    while True:
        budgeting = account(snapshot)
        others = tuple(pod for pod in reservations.left if pod.uid not in beyond)
        admitted = admit(snapshot, budgeting, replace(reservations, left=others))
        if admitted.held or refused:
            made = plan_for(snapshot, admitted.pods, _AT_LEISURE, beside=beside) if admitted.pods else NOTHING
        _, found = within_dollars(made.purchases, budgeting.admission)
        if not found:
            break
        refused += found
        beyond.update(each.pod.uid for each in found)
    waiting = gates(snapshot, budgeting).held
    left_out = made.left_out if made.left_out == hopeless else (*hopeless, *made.left_out)
    return _Within(replace(made, left_out=left_out), (*admitted.held, *refused, *waiting))


def with_table(snapshot: Snapshot, offers: Iterable[Offer], *, spot: bool = False) -> Snapshot:
    """With these offers in place of what is known of their providers.

    They are for the pools of the classes that name the provider. Where there is no class at all, they are for every
    pod, and `spot` says what a class would: whether capacity may be taken that the provider can reclaim.
    """
    by_provider: dict[str, list[Offer]] = {}
    for offer in offers:
        by_provider.setdefault(offer.provider, []).append(offer)
    sources = dict(snapshot.sources)
    if not snapshot.classes:
        for provider, own in by_provider.items():
            key = SourceKey(_NO_CLASS, provider)
            sources[key] = _source(key, [offer for offer in own if spot or not offer.spot])
    for node_class in snapshot.classes:
        for entry in node_class.spec.providers:
            key = SourceKey(node_class.metadata.name, entry.name)
            if entry.name in by_provider:
                made = _source(key, by_provider[entry.name])
                sources[key] = replace(made, priority=entry.priority, enabled=entry.enabled)
    unusable = {key: why for key, why in snapshot.unusable.items() if key not in sources}
    return replace(snapshot, sources=sources, unusable=unusable)


def _source(key: SourceKey, offers: Sequence[Offer]) -> Source:
    delivers = Delivery.CONTAINER if key.provider in RUNS_CONTAINERS else Delivery.NODE
    return Source(key=key, capabilities=Capabilities(delivers=delivers), offers=tuple(offers))


def _factor(text: str, whole: str) -> Fraction:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number <= 10**6:
        raise WhatIfError(f'"{whole}": "{text}" is no factor; give a number from 0, such as 0.5 or 1.2')
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
        raise WhatIfError(f'"{whole}": "{amount}" is no quota; give GPU-hours such as 200, or dollars such as 50usd')
    return QuotaChange(namespace, name, usd=dollars) if in_dollars else QuotaChange(namespace, name, gpu_hours=amount)


def _budget(text: str, whole: str) -> UsdPerHour:
    try:
        most = UsdPerHour(text)
    except ValueError:
        most = UsdPerHour(-1)
    if most < UsdPerHour.zero():
        raise WhatIfError(f'"{whole}": "{text}" is no budget; give dollars an hour, such as budget=12.50')
    return most
