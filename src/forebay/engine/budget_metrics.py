"""The figures of budgets for Prometheus, under the names of the predecessor. Reckoned when they are asked for."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay.budgets.accounts import BudgetKey
from forebay.budgets.assessment import Assessor, Standing
from forebay.engine.ledger.budget_accounting import BudgetAccounting

#: Name without the prefix, and what it means. All have the labels namespace and name.
GAUGES: Final[tuple[tuple[str, str], ...]] = (
    ("consumed_gpu_hours", "GPU-hours used in the window that ends now."),
    ("remaining_gpu_hours", "GPU-hours left of the quota, never less than 0."),
    ("tracked_pods", "Pods that have used GPU time in the window or do so now."),
    ("exceeded", "1 while the quota is used up."),
    ("burn_gpus", "GPUs that are held now: GPU-hours per hour."),
    (
        "forecast_exhausted_timestamp_seconds",
        "When the quota is used up if everything goes on. Absent: not in a window.",
    ),
    ("consumed_usd", "US dollars that its pods have cost in the window."),
    ("remaining_usd", "US dollars left of the quota, never less than 0."),
    ("burn_usd_per_hour", "US dollars per hour that its pods cost now."),
    (
        "accounting_accuracy_ratio",
        "What the ledger holds of pods that can be seen, over what their statuses say: looked at every 10 minutes.",
    ),
)
ACTIONS: Final = (
    "enforcement_actions",
    "Pods that were evicted and Jobs that were suspended, by `action` too. Only what was done is counted.",
)
LAG: Final = ("forebay_ledger_lag_seconds", "Age of the oldest change of a ledger that is not stored yet.")
#: Of the bill for all machines, by who pays, pool and class.
SPENT: Final = (
    "forebay_spent_usd",
    "US dollars that machines have cost in 31 days, by who pays (namespace; none: nobody), pool and class.",
)
RATE: Final = ("forebay_spend_usd_per_hour", "US dollars per hour that machines cost now, by the same.")
LINES: Final = ("namespace", "pool", "class")
_LABELS: Final = ("namespace", "name")


class BudgetCollector(Collector):
    """Says nothing of budgets while this process does not lead: it keeps no books then."""

    def __init__(self, bookkeeper: Callable[[], BudgetAccounting | None], clock: Callable[[], datetime]) -> None:
        self._bookkeeper = bookkeeper
        self._clock = clock
        # Not the tick's, which may be at work in another thread.
        self._assessor = Assessor()

    def collect(self) -> Iterator[Metric]:
        keeper, now = self._bookkeeper(), self._clock()
        known = keeper.budgets if keeper is not None else {}
        accounts = keeper.accounts if keeper is not None else None
        standings = {} if accounts is None else self._assessor.assess(known.values(), accounts, now)
        accuracy = {} if keeper is None else keeper.accuracy
        for name, text in GAUGES:
            gauge = GaugeMetricFamily(f"gwb_{name}", text, labels=_LABELS)
            for key, standing in standings.items():
                if (amount := _amount(name, standing, accuracy)) is not None:
                    gauge.add_metric(key, amount)
            yield gauge
        counter = CounterMetricFamily(f"gwb_{ACTIONS[0]}", ACTIONS[1], labels=(*_LABELS, "action"))
        for (key, action), count in keeper.actions.counts.items() if keeper is not None else ():
            counter.add_metric((*key, action.value), count)
        yield counter
        yield from _bill(keeper, now)
        since = None if keeper is None else keeper.keeper.waiting_since
        lag = GaugeMetricFamily(*LAG)
        lag.add_metric((), 0.0 if since is None else (now - since).total_seconds())
        yield lag


def _bill(keeper: BudgetAccounting | None, now: datetime) -> Iterator[Metric]:
    spent, rate = (GaugeMetricFamily(*each, labels=LINES) for each in (SPENT, RATE))
    for line, each in keeper.spending.spend.spent(now).items() if keeper is not None else ():
        spent.add_metric(line, float(each.amount.dollars))
        rate.add_metric(line, float(each.rate.amount))
    yield spent
    yield rate


def _amount(name: str, standing: Standing, accuracy: dict[BudgetKey, float]) -> float | None:
    """A float only here: Prometheus knows nothing else."""
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
