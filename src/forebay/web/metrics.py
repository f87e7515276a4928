"""The metrics page: facts that other rooms keep, read when Prometheus asks."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector


def metrics_page(*collectors: Collector) -> Callable[[], tuple[bytes, str]]:
    """Makes the page and its content type. A registry of its own: nothing else in the process can slip in."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)
