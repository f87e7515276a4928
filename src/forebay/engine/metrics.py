"""The operator's facts for Prometheus, read when they are asked for."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay.api.gpu_instance import GPUInstance
from forebay.engine.counts import Counts
from forebay.engine.views import Views
from forebay.kube.pods import PENDING_GPU
from forebay.model.reasons import Reason
from forebay.reconcile.reports import hourly_cost

#: Name without the prefix, labels, and what it means.
GAUGES: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("leader", (), "1 while this process leads."),
    ("pending_pods", (), "Pods that ask for a GPU and have no node."),
    ("instances", ("provider", "state"), "GPUInstances, from intent to proof of absence."),
    ("hourly_cost_usd", ("provider",), "What all machines cost per hour now, in US dollars."),
    (
        "terminations_failing",
        ("provider",),
        "GPUInstances that their provider did not end although it was asked: they may still cost money.",
    ),
)
COUNTERS: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("ticks", (), "Times the operator has thought."),
    ("thinking_seconds", (), "Seconds it has thought."),
    ("decisions", ("decision",), "Decisions, by their type."),
    ("failed_decisions", (), "Decisions that could not be carried out, and were made anew."),
    ("faults", (), "Faults of Forebay itself. The log has each with its traceback; please report them."),
    ("provider_calls", ("provider", "call", "outcome"), "Launches and terminations asked for, and what came of them."),
)


class OperatorCollector(Collector):
    def __init__(self, views: Callable[[], Views | None], leads: Callable[[], bool], counts: Counts) -> None:
        self._views = views
        self._leads = leads
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        views = self._views()
        records = list(views.instances.values()) if views is not None else []
        failing = [each for each in records if each.status is not None and each.status.reason == _FAILING]
        gauges: dict[str, dict[tuple[str, ...], float]] = {
            "leader": {(): float(self._leads())},
            "pending_pods": {(): float(views.pods.index(PENDING_GPU).count(True)) if views is not None else 0.0},
            "instances": dict(Counter((_provider(each), each.state.value) for each in records)),
            "hourly_cost_usd": _costs(records),
            "terminations_failing": dict(Counter((_provider(each),) for each in failing)),
        }
        counters: dict[str, dict[tuple[str, ...], float]] = {
            "ticks": {(): self._counts.ticks},
            "thinking_seconds": {(): self._counts.thinking},
            "decisions": {(name,): count for name, count in self._counts.decisions.items()},
            "failed_decisions": {(): self._counts.failed},
            "faults": {(): self._counts.broken},
            "provider_calls": {call: float(count) for call, count in self._counts.calls.items()},
        }
        for name, labels, text in GAUGES:
            gauge = GaugeMetricFamily(f"forebay_{name}", text, labels=labels)
            for values, amount in gauges[name].items():
                gauge.add_metric(values, amount)
            yield gauge
        for name, labels, text in COUNTERS:
            counter = CounterMetricFamily(f"forebay_{name}", text, labels=labels)
            for values, amount in counters[name].items():
                counter.add_metric(values, amount)
            yield counter


_FAILING: Final = Reason.TERMINATION_FAILED


def _provider(record: GPUInstance) -> str:
    return record.spec.provider.value


def _costs(records: list[GPUInstance]) -> dict[tuple[str, ...], float]:
    """A float only here: Prometheus knows nothing else."""
    totals: dict[tuple[str, ...], float] = {}
    for provider in {_provider(record) for record in records}:
        prices = [hourly_cost(record).amount for record in records if _provider(record) == provider]
        totals[provider,] = float(sum(prices))
    return totals
