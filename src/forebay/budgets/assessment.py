"""Assessment of budgets: usage, what remains, when the quota is used up, and the headroom for new pods."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

import msgspec

from forebay.api.gpu_workload_budget import EnforcementAction, GPUWorkloadBudget, Quota
from forebay.budgets.budget_accounts import BudgetAccount, BudgetAccounts, BudgetKey
from forebay.budgets.ledger.profile import UsageProfile
from forebay.budgets.usage import described, from_microseconds, microseconds
from forebay.model.boundary import Boundary
from forebay.model.quantities import GpuHours, Usd, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import hours

_MICROSECOND: Final = timedelta(microseconds=1)
#: Running pods, and pods that capacity is launching for, are assumed to run for this long. Their real run time is not
#: known, and to assume the whole window would leave no headroom for other pods.
ASSUMED_RUNTIME: Final = timedelta(hours=1)
#: A pod is admitted only with headroom for this long: with less, enforcement would stop it as soon as it runs.
MINIMUM_RUNTIME: Final = timedelta(minutes=5)
#: Longest time over which the rate of the forecast is averaged.
_SMOOTHING: Final = timedelta(hours=1)
NO_DOLLARS: Final = Usd.zero()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Usage, quota, rate and forecast of one budget at one moment."""

    key: BudgetKey
    uid: str
    window: timedelta
    action: EnforcementAction
    #: Resource that is counted.
    resource: str
    consumed: GpuHours
    #: None: the budget does not limit GPU-hours (below: dollars).
    quota: GpuHours | None
    consumed_usd: Usd
    quota_usd: Usd | None
    #: Number of pods that have used anything in the window or run now.
    tracked: int
    #: Present use: GPU-hours per hour, and dollars per hour.
    burn: Fraction
    burn_usd: UsdPerHour
    #: Whether usage leaves the window at this moment, so that figures change although nothing is used.
    leaving: bool
    #: When the first of the quotas is used up at the mean rate of the last hour, or at the present rate if that is
    #: lower: at the start of a burst the present rate alone would be a false alarm. None: not within one window.
    exhausted: datetime | None
    #: The same at the present rate: by when at the earliest to look again.
    earliest: datetime | None

    @property
    def remaining(self) -> GpuHours | None:
        return None if self.quota is None else max(self.quota - self.consumed, GpuHours.zero())

    @property
    def remaining_usd(self) -> Usd | None:
        return None if self.quota_usd is None else max(self.quota_usd - self.consumed_usd, Usd.zero())

    @property
    def exceeded(self) -> bool:
        """Whether a quota is used up: usage at the quota is enough, it need not be beyond."""
        return (self.quota is not None and self.consumed >= self.quota) or (
            self.quota_usd is not None and self.consumed_usd >= self.quota_usd
        )

    @property
    def holds(self) -> bool:
        """Whether new pods wait while the budget has no headroom."""
        return self.action is not EnforcementAction.ALERT_ONLY

    @property
    def reason(self) -> Reason:
        """Reason for the condition QuotaExceeded."""
        return Reason.QUOTA_REACHED if self.exceeded else Reason.WITHIN_BUDGET

    @property
    def sentence(self) -> str:
        figures = []
        if self.quota is not None:
            figures.append(f"{described(self.consumed, self.resource)} of {described(self.quota, self.resource)}")
        if self.quota_usd is not None:
            figures.append(f"{self.consumed_usd} of {self.quota_usd}")
        return f"{' and '.join(figures)} used in the last {hours(self.window)}."


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """Quota less the most that the window will hold while running pods go on: what new pods may use."""

    #: None: no limit.
    gpu_hours: GpuHours | None
    usd: Usd | None
    #: Until when running pods were assumed to run.
    until: datetime


class QuotaLimits(msgspec.Struct, frozen=True):
    """Parsed quota of a budget."""

    gpu_hours: GpuHours | None
    usd: Usd | None
    window: timedelta

    @classmethod
    def of(cls, quota: Quota) -> "QuotaLimits":
        return cls(
            None if quota.gpu_hours is None else GpuHours.parse(quota.gpu_hours),
            None if quota.usd is None else Usd(quota.usd),
            timedelta(hours=quota.window_hours),
        )


#: When a quota is used up, in microseconds: at the smoothed rate, and at the present one.
_Forecast = tuple[int | None, int | None]


class Assessments(msgspec.Struct, frozen=True, kw_only=True):
    """What the next assessment need not compute again: parsed quotas, and forecasts, which hold for a minute."""

    limits: Mapping[BudgetKey, tuple[Quota, QuotaLimits]] = {}
    #: By budget: what the forecast follows from, the forecast, and until when it holds.
    forecasts: Mapping[BudgetKey, tuple[tuple[int, int, QuotaLimits], _Forecast, int]] = {}


class Assessor:
    """Assesses budgets, and caches parsed quotas and forecasts until the quota or the ledgers change."""

    def __init__(self, before: Assessments | None = None) -> None:
        self._limits = {} if before is None else dict(before.limits)
        self._forecasts = {} if before is None else dict(before.forecasts)
        #: Budgets that the last `assess` could not assess, and why.
        self.errors: Mapping[BudgetKey, Exception] = {}

    @property
    def assessments(self) -> Assessments:
        """For the assessor of the next tick."""
        return Assessments(limits=dict(self._limits), forecasts=dict(self._forecasts))

    def assess(
        self, budgets: Iterable[GPUWorkloadBudget], accounts: BudgetAccounts[BudgetAccount], now: datetime
    ) -> Mapping[BudgetKey, Standing]:
        """Standing of every budget that has an account and can be assessed; `errors` names the others."""
        at = microseconds(now)
        found: dict[BudgetKey, Standing] = {}
        boundary: Boundary[BudgetKey] = Boundary()
        for budget in budgets:
            account = accounts.get(budget.key)
            if account is None:
                continue
            with boundary.of(budget.key):
                found[budget.key] = self._standing(budget, account, at)
        self.errors = boundary.errors
        if len(self._limits) > len(found):
            self._limits = {key: kept for key, kept in self._limits.items() if key in found}
            self._forecasts = {key: kept for key, kept in self._forecasts.items() if key in found}
        return found

    def standing(self, budget: GPUWorkloadBudget, account: BudgetAccount, now: datetime) -> Standing:
        """Standing of one budget."""
        return self._standing(budget, account, microseconds(now))

    def limits(self, budget: GPUWorkloadBudget) -> QuotaLimits:
        quota = budget.spec.quota
        known = self._limits.get(budget.key)
        if known is None or (known[0] is not quota and known[0] != quota):
            known = self._limits[budget.key] = (quota, QuotaLimits.of(quota))
        return known[1]

    def _standing(self, budget: GPUWorkloadBudget, account: BudgetAccount, at: int) -> Standing:
        limits = self.limits(budget)
        window = limits.window // _MICROSECOND
        ledger, money = account.ledger, account.money
        exhausted, earliest = self._forecast(account, limits, at, window)
        return Standing(
            key=budget.key,
            uid=budget.uid,
            window=limits.window,
            action=budget.spec.enforcement.action,
            resource=account.resource,
            consumed=GpuHours.from_units(ledger.consumed(at, window)),
            quota=limits.gpu_hours,
            consumed_usd=Usd.from_units(money.consumed(at, window)),
            quota_usd=limits.usd,
            tracked=ledger.tracked(at, window),
            burn=Fraction(ledger.profile.rate(at), 1000),
            burn_usd=UsdPerHour.from_units(money.profile.rate(at)),
            leaving=bool(ledger.profile.rate(at - window) or money.profile.rate(at - window)),
            exhausted=None if exhausted is None else from_microseconds(exhausted),
            earliest=None if earliest is None else from_microseconds(earliest),
        )

    def _forecast(self, account: BudgetAccount, limits: QuotaLimits, at: int, window: int) -> _Forecast:
        profile, dollars = account.ledger.profile, account.money.profile
        state = (profile.version, dollars.version, limits)
        known = self._forecasts.get(account.key)
        if known is None or known[0] != state or at >= known[2]:
            # Smoothed rates change without a change of the ledger, and runs that a fast clock dated into the future
            # begin so: recompute each minute.
            found = _first(profile, dollars, limits, at, smoothing(window)), _first(profile, dollars, limits, at, 0)
            known = self._forecasts[account.key] = (state, found, at + 60 * 10**6)
        smoothed, present = (each if each is None else max(each, at) for each in known[1])
        return smoothed, present


def smoothing(window: int) -> int:
    """Time over which the rate is averaged for the forecast: an hour, or a tenth of the window if that is less."""
    return min(_SMOOTHING // _MICROSECOND, window // 10)


def _first(profile: UsageProfile, dollars: UsageProfile, limits: QuotaLimits, at: int, span: int) -> int | None:
    """When the first of the quotas is used up."""
    window = limits.window // _MICROSECOND
    moments = (
        None if limits.gpu_hours is None else profile.reaches(limits.gpu_hours.units, at, window, span),
        None if limits.usd is None else dollars.reaches(limits.usd.units, at, window, span),
    )
    return min((each for each in moments if each is not None), default=None)


def headroom(
    account: BudgetAccount, limits: QuotaLimits, now: datetime, runtime: timedelta = ASSUMED_RUNTIME
) -> Headroom:
    """Headroom of a budget if running pods go on for `runtime`."""
    at, window, span = microseconds(now), limits.window // _MICROSECOND, runtime // _MICROSECOND
    hours = usd = None
    if limits.gpu_hours is not None:
        hours = GpuHours.from_units(limits.gpu_hours.units - account.ledger.profile.peak(at, window, span))
    if limits.usd is not None:
        usd = Usd.from_units(limits.usd.units - account.money.profile.peak(at, window, span))
    return Headroom(
        gpu_hours=None if hours is None else max(hours, GpuHours.zero()),
        usd=None if usd is None else max(usd, Usd.zero()),
        until=now + min(runtime, limits.window),
    )


def earliest_headroom(
    account: BudgetAccount, limits: QuotaLimits, need: GpuHours, now: datetime, need_usd: Usd = NO_DOLLARS
) -> datetime:
    """Earliest time at which enough usage has left the window for `need`, if nothing more is used from now on."""
    at, window = microseconds(now), limits.window // _MICROSECOND
    moments = [at]
    if limits.gpu_hours is not None:
        most = max(limits.gpu_hours.units - need.units, 0) + 1
        moments.append(account.ledger.profile.falls_below(most, at, window))
    if limits.usd is not None:
        most = max(limits.usd.units - need_usd.units, 0) + (1 if need_usd else 0)
        moments.append(account.money.profile.falls_below(most, at, window))
    return from_microseconds(max(moments))
