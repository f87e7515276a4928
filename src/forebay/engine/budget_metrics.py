"""Prometheus metrics of budgets, under the names of the predecessor, and of the bill; computed at each scrape."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay.budgets.assessment import Assessor, Standing
from forebay.budgets.budget_accounts import BudgetKey
from forebay.engine.ledger.budget_accounting import BudgetAccounting

#: Names without the prefix `gwb_`, and help texts. All have the labels namespace and name.
GAUGES: Final[tuple[tuple[str, str], ...]] = (
    ("consumed_gpu_hours", "GPU-hours used in the window that ends now."),
    ("remaining_gpu_hours", "GPU-hours left of the quota, never less than 0."),
    ("tracked_pods", "Pods that have used GPUs in the window or use them now."),
    ("exceeded", "1 while the quota is used up."),
    ("burn_gpus", "GPUs in use now, which is GPU-hours per hour."),
    (
        "forecast_exhausted_timestamp_seconds",
        "Unix time at which the quota is used up at the present rate. Absent: not within one window.",
    ),
    ("consumed_usd", "US dollars that the pods of the budget have cost in the window."),
    ("remaining_usd", "US dollars left of the quota, never less than 0."),
    ("burn_usd_per_hour", "US dollars per hour that the pods of the budget cost now."),
    (
        "accounting_accuracy_ratio",
        "Usage of existing pods in the ledger, divided by what a list of the API server shows; every 10 minutes.",
    ),
)
ACTIONS: Final = (
    "enforcement_actions",
    "Evicted pods, suspended Jobs and alerts of AlertOnly, also by `action`. Only successful actions count.",
)
LAG: Final = ("forebay_ledger_lag_seconds", "Age of the oldest ledger change that is not stored yet.")
#: Metrics of the bill for all machines.
SPENT: Final = (
    "forebay_spent_usd",
    "US dollars that machines have cost in 31 days, by namespace (empty: unallocated), pool and class.",
)
RATE: Final = (
    "forebay_spend_usd_per_hour",
    "US dollars per hour that machines cost now, by namespace (empty: unallocated), pool and class.",
)
BILL_LABELS: Final = ("namespace", "pool", "class")
_LABELS: Final = ("namespace", "name")


class BudgetCollector(Collector):
    """Collects the metrics of budgets and bill. There are none while this process does not lead."""

    def __init__(self, accounting: Callable[[], BudgetAccounting | None], clock: Callable[[], datetime]) -> None:
        self._accounting = accounting
        self._clock = clock
        # A separate assessor, because a scrape may run in another thread than the tick.
        self._assessor = Assessor()

    def collect(self) -> Iterator[Metric]:
        accounting, now = self._accounting(), self._clock()
        known = accounting.budgets if accounting is not None else {}
        accounts = accounting.accounts if accounting is not None else None
        standings = {} if accounts is None else self._assessor.assess(known.values(), accounts, now)
        accuracy = {} if accounting is None else accounting.accuracy
        for name, text in GAUGES:
            gauge = GaugeMetricFamily(f"gwb_{name}", text, labels=_LABELS)
            for key, standing in standings.items():
                if (amount := _amount(name, standing, accuracy)) is not None:
                    gauge.add_metric(key, amount)
            yield gauge
        counter = CounterMetricFamily(f"gwb_{ACTIONS[0]}", ACTIONS[1], labels=(*_LABELS, "action"))
        for (key, action), count in accounting.actions.counts.items() if accounting is not None else ():
            counter.add_metric((*key, action.value), count)
        yield counter
        yield from _bill(accounting, now)
        since = None if accounting is None else accounting.sync.waiting_since
        lag = GaugeMetricFamily(*LAG)
        lag.add_metric((), 0.0 if since is None else (now - since).total_seconds())
        yield lag


def _bill(accounting: BudgetAccounting | None, now: datetime) -> Iterator[Metric]:
    spent, rate = (GaugeMetricFamily(*each, labels=BILL_LABELS) for each in (SPENT, RATE))
    for key, each in accounting.bill_accounting.bill.costs(now).items() if accounting is not None else ():
        spent.add_metric(key, float(each.amount.dollars))
        rate.add_metric(key, float(each.rate.amount))
    yield spent
    yield rate


def _amount(name: str, standing: Standing, accuracy: dict[BudgetKey, float]) -> float | None:
    """Value of a gauge; None if the budget has none. Exact numbers become floats only here, for Prometheus."""
    match name:
        case "consumed_gpu_hours":
            return float(standing.consumed.hours)
        case "remaining_gpu_hours":
            return None if standing.remaining is None else float(standing.remaining.hours)
        case "tracked_pods":
            return standing.tracked
        case "exceeded":
            return float(standing.exceeded)
        case "burn_gpus":
            return float(standing.burn)
        case "forecast_exhausted_timestamp_seconds":
            return None if standing.exhausted is None else standing.exhausted.timestamp()
        case "consumed_usd":
            return float(standing.consumed_usd.dollars)
        case "burn_usd_per_hour":
            return float(standing.burn_usd.amount)
        case "remaining_usd":
            return None if standing.remaining_usd is None else float(standing.remaining_usd.dollars)
        case _:
            return accuracy.get(standing.key)
