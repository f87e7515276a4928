"""Counters of the operator, as Prometheus gets them, and the event that wakes the loop."""

import asyncio

import pytest

from forebay.engine.counts import Counts, DurationHistogram
from forebay.engine.metrics import COUNTERS, GAUGES, HISTOGRAMS, QUEUES, OperatorCollector
from forebay.engine.wake import WakeEvent


def test_a_histogram_counts_what_took_at_most_so_long():
    observed = DurationHistogram()
    for seconds in (0.001, 0.0011, 0.3, 31.0):
        observed.observe(seconds)

    counted = dict(observed.buckets())
    assert observed.sum == pytest.approx(31.3021)
    assert (counted["0.001"], counted["0.0025"], counted["0.2"], counted["0.5"]) == (1, 2, 2, 3)
    assert (counted["30.0"], counted["+Inf"]) == (3, 4)


def collected(counts, *, leads=True, dry_run=False):
    """Values of the metrics by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for metric in OperatorCollector(lambda: None, lambda: leads, counts, dry_run=dry_run).collect()
        for sample in metric.samples
    }


def test_every_counter_reaches_prometheus_under_its_name():
    counts = Counts(ticks=3, tick_seconds=1.5, failed=2, internal_errors=1)
    counts.decisions["CreateInstance"] += 4
    counts.calls["cloud", "launch", "ok"] += 5
    counts.call_seconds["cloud", "launch"] = 2.5
    counts.ready["cloud"] += 6
    counts.ready_seconds["cloud"] = 90.0
    counts.terminations["Idle"] += 7
    counts.durations.observe(0.3)
    counts.queues = {"events": lambda: 8}

    found = collected(counts)

    assert found["forebay_ticks_total",] == 3
    assert found["forebay_tick_duration_seconds_total",] == 1.5
    assert found["forebay_failed_decisions_total",] == 2
    assert found["forebay_internal_errors_total",] == 1
    assert found["forebay_decisions_total", "CreateInstance"] == 4
    assert found["forebay_provider_calls_total", "cloud", "launch", "ok"] == 5
    assert found["forebay_provider_call_seconds_total", "cloud", "launch"] == 2.5
    assert found["forebay_instances_ready_total", "cloud"] == 6
    assert found["forebay_instance_ready_seconds_total", "cloud"] == 90
    assert found["forebay_terminations_total", "Idle"] == 7
    assert found["forebay_reconcile_duration_seconds_count",] == 1
    assert found["forebay_reconcile_latency_seconds_count",] == 0
    assert {name: found["forebay_queue_depth", name] for name in QUEUES} == {
        "provider_calls": 0,
        "pod_conditions": 0,
        "events": 8,
    }


def test_before_it_has_started_and_without_the_lease_a_replica_says_so_and_has_no_pods():
    found = collected(Counts(), leads=False)

    assert (found["forebay_leader",], found["forebay_pending_pods",]) == (0, 0)
    assert collected(Counts())["forebay_leader",] == 1
    assert (found["forebay_dry_run",], collected(Counts(), dry_run=True)["forebay_dry_run",]) == (0, 1)
    families = [each.name for each in OperatorCollector(lambda: None, lambda: True, Counts()).collect()]
    assert len(families) == len(GAUGES) + len(COUNTERS) + len(HISTOGRAMS)


async def test_the_wake_event_knows_since_when_something_waits():
    wake, loop = WakeEvent(), asyncio.get_running_loop()
    assert wake.since is None
    wake.set()
    first = loop.time()
    await asyncio.sleep(5)
    wake.set()
    assert wake.since == first, "the first change counts"
    wake.clear()
    assert wake.since is None
    wake.set()
    assert wake.since == first + 5
