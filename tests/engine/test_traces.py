"""A whole operator with traces: what a tick decided is found by it, from the purchase to the write."""

import asyncio

import pytest

from forebay.net.redaction import Redactor
from forebay.simulate.power import Powered
from forebay.wiring.telemetry import Telemetry
from tests.engine.power_world import lab, operator

pytestmark = pytest.mark.telemetry


async def test_the_power_on_call_and_its_record_belong_to_the_tick_that_decided_them():
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from forebay.wiring.traces import Traces

    exporter = InMemorySpanExporter()
    traces = Traces(exporter, Redactor())
    telemetry = Telemetry(traces)
    async with (
        lab(Powered(name="box", gpus=1, boot=30)) as world,
        operator(world, wrap=telemetry.to_kubernetes, traced=telemetry.tick),
    ):
        await asyncio.sleep(5)
        world.pod("train", 1, runs="60s")
        async with asyncio.timeout(600):
            while world.phase("train") != "Succeeded":  # noqa: ASYNC110 (of several things that change)
                await asyncio.sleep(1)
    traces.end()
    spans = exporter.get_finished_spans()
    ticks = {each.context.span_id for each in spans if each.name == "tick"}
    assert len(ticks) > 3
    (power_on,) = [each for each in spans if each.attributes.get("url.path") == "/box/start"]
    assert power_on.parent.span_id in ticks
    created = [each for each in spans if each.attributes.get("url.path", "").endswith("/gpuinstances")]
    writes = [each for each in created if each.attributes["http.request.method"] == "POST"]
    assert [each.parent.span_id in ticks for each in writes] == [True]
