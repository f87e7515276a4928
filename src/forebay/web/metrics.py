"""The metrics page, collected anew at each scrape."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector


def metrics_page(*collectors: Collector) -> Callable[[], tuple[bytes, str]]:
    """Function that returns the page and its content type. Its own registry keeps out metrics of other libraries."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)
