"""Each metric of tgp-operator has one here that says the same."""

import re

from forebay.engine.metrics import COUNTERS, GAUGES, PREDECESSORS

#: All that tgp-operator exported under the prefix `tgp_operator_`, by its metrics package.
EXPORTED = {
    "gpu_requests_total",
    "gpu_request_duration_seconds",
    "instance_launch_duration_seconds",
    "instances_active",
    "instance_hourly_cost_usd",
    "provider_requests_total",
    "provider_request_duration_seconds",
    "health_checks_total",
    "idle_timeouts_total",
}


def test_every_metric_of_the_predecessor_is_mapped_to_metrics_and_labels_that_exist():
    assert {before for before, _ in PREDECESSORS} == EXPORTED
    ours = {f"forebay_{name}": set(labels) for name, labels, _ in GAUGES}
    ours |= {f"forebay_{name}_total": set(labels) for name, labels, _ in COUNTERS}
    for _, now in PREDECESSORS:
        for metric, _, label in re.findall(r"(forebay_\w+)(\{(\w+)[!=]+)?", now):
            assert metric in ours, metric
            assert not label or label in ours[metric], (metric, label)
