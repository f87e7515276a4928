"""Prometheus metrics of informers."""

import asyncio

from prometheus_client import CollectorRegistry, generate_latest

from forebay.kube.informer import Informer
from forebay.kube.metrics import INFORMER_COUNTERS, INFORMER_GAUGES, InformerCollector
from forebay.kube.pods import PODS
from forebay.net.in_process import InProcess
from tests.unit.kube.api_server_model import URL, ModelServer


async def test_every_metric_is_exported_with_a_help_text():
    server = ModelServer()
    server.create("a")
    registry = CollectorRegistry()
    informer = Informer(InProcess(server), URL, PODS)
    registry.register(InformerCollector([informer]))

    def value(name):
        return registry.get_sample_value(f"forebay_informer_{name}", {"resource": "pods"})

    assert value("staleness_seconds") == float("inf")
    assert value("synced") == 0
    async with informer:
        await informer.wait_synced()
        server.create("b", tolerations="none")
        await asyncio.sleep(10)
        assert await asyncio.to_thread(value, "staleness_seconds") == 10
        assert value("synced") == 1
        assert value("stale") == 0
        assert value("objects") == 1
        assert value("events_total") == 1
        assert value("undecodable_objects") == 1
        assert value("relists_total") == 0
    text = generate_latest(registry).decode()
    for name, help_text, _ in (*INFORMER_GAUGES, *INFORMER_COUNTERS):
        assert f"forebay_informer_{name}" in text
        assert help_text.endswith(".")
