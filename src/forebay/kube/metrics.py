"""The informers' facts for Prometheus, read when they are asked for: nothing is counted twice."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay.kube.informer import Informer

#: Name without the prefix, help text, and the fact.
INFORMER_GAUGES: Final[tuple[tuple[str, str, Callable[[Informer[Any]], float]], ...]] = (
    (
        "staleness_seconds",
        "Seconds since the view was last known to be the server's state. Up to a minute in a quiet cluster is normal.",
        lambda informer: informer.staleness,
    ),
    ("stale", "1 while the view is too old to act upon.", lambda informer: informer.stale),
    ("synced", "1 once the view has been complete. Before, nothing is concluded from it.", lambda i: i.synced),
    ("objects", "Objects in the view.", len),
    (
        "undecodable_objects",
        "Objects that exist and could not be read. The log names each with the reason.",
        lambda informer: len(informer.undecodable),
    ),
)
INFORMER_COUNTERS: Final[tuple[tuple[str, str, Callable[[Informer[Any]], float]], ...]] = (
    ("lists", "Paged lists begun, where the server has no WatchList.", lambda i: i.counters.lists),
    ("watches", "Watches begun, WatchLists included.", lambda i: i.counters.watches),
    ("events", "Changes received after the view was complete.", lambda i: i.counters.events),
    ("bookmarks", "Bookmarks received: the server is there, and nothing has changed.", lambda i: i.counters.bookmarks),
    ("relists", "Times the view was read anew, because changes may have been missed.", lambda i: i.counters.relists),
    ("failures", "Lists and watches that failed or broke off.", lambda i: i.counters.failures),
    ("decode_failures", "Times an object could not be read.", lambda i: i.counters.undecodable),
    ("unknown_events", "Events of a type this version does not know.", lambda i: i.counters.unknown_events),
)


class InformerCollector(Collector):
    """For `registry.register`. One informer per resource; the label `resource` is `pods`, or `plural.group`."""

    def __init__(self, informers: Iterable[Informer[Any]]) -> None:
        self._informers = {_name(informer): informer for informer in informers}

    def collect(self) -> Iterator[Metric]:
        for name, text, fact in INFORMER_GAUGES:
            gauge = GaugeMetricFamily(f"forebay_informer_{name}", text, labels=["resource"])
            for resource, informer in self._informers.items():
                gauge.add_metric([resource], float(fact(informer)))
            yield gauge
        for name, text, fact in INFORMER_COUNTERS:
            counter = CounterMetricFamily(f"forebay_informer_{name}", text, labels=["resource"])
            for resource, informer in self._informers.items():
                counter.add_metric([resource], float(fact(informer)))
            yield counter


def _name(informer: Informer[Any]) -> str:
    resource = informer.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
