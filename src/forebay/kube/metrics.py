"""Prometheus metrics of informers, read from the informers at each scrape."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay.kube.informer import Informer

#: Name without prefix, help text, and how to read the value.
INFORMER_GAUGES: Final[tuple[tuple[str, str, Callable[[Informer[Any]], float]], ...]] = (
    (
        "staleness_seconds",
        "Seconds since the informer was last known to be up to date. Up to a minute is normal in a quiet cluster.",
        lambda informer: informer.staleness,
    ),
    ("stale", "1 while the informer is too stale for the operator to act.", lambda informer: informer.stale),
    ("synced", "1 once all objects have been listed. The operator does not act before.", lambda i: i.synced),
    ("objects", "Objects in the informer.", len),
    (
        "undecodable_objects",
        "Objects that exist but cannot be decoded. The log names each with the error.",
        lambda informer: len(informer.undecodable),
    ),
)
INFORMER_COUNTERS: Final[tuple[tuple[str, str, Callable[[Informer[Any]], float]], ...]] = (
    ("lists", "Paged lists started, on servers without WatchList.", lambda i: i.counters.lists),
    ("watches", "Watches started, WatchLists included.", lambda i: i.counters.watches),
    ("events", "Watch events received after the first list.", lambda i: i.counters.events),
    (
        "bookmarks",
        "Bookmarks received: the server is reachable and nothing has changed.",
        lambda i: i.counters.bookmarks,
    ),
    ("relists", "Relists, after watch events may have been missed.", lambda i: i.counters.relists),
    ("failures", "Lists and watches that failed or were cut off.", lambda i: i.counters.failures),
    ("decode_failures", "Times an object could not be decoded.", lambda i: i.counters.undecodable),
    ("unknown_events", "Watch events of an unknown type.", lambda i: i.counters.unknown_events),
)


class InformerCollector(Collector):
    """Prometheus collector. The label `resource` is `pods`, or `plural.group` outside the core group."""

    def __init__(self, informers: Iterable[Informer[Any]]) -> None:
        self._informers = {_name(informer): informer for informer in informers}

    def collect(self) -> Iterator[Metric]:
        for name, text, value in INFORMER_GAUGES:
            gauge = GaugeMetricFamily(f"forebay_informer_{name}", text, labels=["resource"])
            for resource, informer in self._informers.items():
                gauge.add_metric([resource], float(value(informer)))
            yield gauge
        for name, text, value in INFORMER_COUNTERS:
            counter = CounterMetricFamily(f"forebay_informer_{name}", text, labels=["resource"])
            for resource, informer in self._informers.items():
                counter.add_metric([resource], float(value(informer)))
            yield counter


def _name(informer: Informer[Any]) -> str:
    resource = informer.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
