"""The operator's own Prometheus metrics (`forebay_*`), computed at each scrape."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.node_provisioner import NodeProvisioner
from forebay.engine.counts import Counts
from forebay.engine.views import Views
from forebay.kube.pod_indexes import PENDING_GPU
from forebay.model.reasons import Reason
from forebay.reconcile.machine_costs import hourly_cost

#: Name without the prefix `forebay_`, labels, help text.
GAUGES: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("leader", (), "1 while this process is the leader, else 0."),
    ("dry_run", (), "1 in a dry run, which never leads, else 0."),
    ("pending_pods", (), "Pending pods that request GPUs and have no node."),
    ("instances", ("provider", "state"), "GPUInstances by provider and state."),
    ("hourly_cost_usd", ("provider",), "Current cost of all machines in US dollars per hour."),
    (
        "terminations_failing",
        ("provider",),
        "GPUInstances whose last terminate call failed. Their machines may still cost money.",
    ),
    ("queue_depth", ("queue",), "What waits to be done: provider_calls, pod_conditions, events. 0 unless it leads."),
    ("group_nodes", ("provisioner",), "Nodes in the instance groups of a NodeProvisioner."),
    ("group_target_nodes", ("provisioner",), "Nodes that the groups of a NodeProvisioner should have."),
    ("group_utilized_nodes", ("provisioner",), "Nodes of the groups whose GPUs pods use."),
    ("group_tainted_nodes", ("provisioner",), "Empty nodes of the groups that are tainted and will be deleted."),
)
#: Names of `forebay_queue_depth`, and what waits there.
QUEUES: Final = {
    "provider_calls": "launch and terminate calls under way",
    "pod_conditions": "conditions of waiting pods to write",
    "events": "events to record",
}
HISTOGRAMS: Final[tuple[tuple[str, str], ...]] = (
    (
        "reconcile_latency_seconds",
        "Seconds from a change in the cluster until the decisions that follow from it are applied.",
    ),
    ("reconcile_duration_seconds", "Seconds of one tick of the reconcile loop: observing, deciding and applying."),
)
COUNTERS: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("ticks", (), "Ticks of the reconcile loop."),
    ("tick_duration_seconds", (), "Seconds spent in ticks: observing and deciding, without applying decisions."),
    ("decisions", ("decision",), "Decisions by type, such as CreateInstance, ReserveNode or OpenNode."),
    ("failed_decisions", (), "Decisions that could not be applied. The next tick decides again."),
    (
        "internal_errors",
        (),
        "Bugs of Forebay in ticks and in the accounting of budgets. The log has a traceback of each: please report it.",
    ),
    ("provider_calls", ("provider", "call", "outcome"), "Launch and terminate calls to providers, by outcome."),
    ("provider_call_seconds", ("provider", "call"), "Seconds spent in launch and terminate calls to providers."),
    ("instances_ready", ("provider",), "Machines that became Ready with their GPUs."),
    ("instance_ready_seconds", ("provider",), "Seconds from the request of machines until they were Ready."),
    ("terminations", ("reason",), "Machines that began to leave, by reason, such as Idle or Underutilized."),
)
#: Metrics of tgp-operator, and what says the same here: a metric, with a selector or rate where needed.
PREDECESSORS: Final[tuple[tuple[str, str], ...]] = (
    ("gpu_requests_total", 'forebay_decisions_total{decision="CreateInstance"}'),
    ("gpu_request_duration_seconds", "forebay_instance_ready_seconds_total / forebay_instances_ready_total"),
    ("instance_launch_duration_seconds", 'forebay_provider_call_seconds_total{call="launch"}'),
    ("instances_active", 'forebay_instances{state!="Gone"}'),
    ("instance_hourly_cost_usd", "forebay_hourly_cost_usd"),
    ("provider_requests_total", "forebay_provider_calls_total"),
    ("provider_request_duration_seconds", "forebay_provider_call_seconds_total / forebay_provider_calls_total"),
    ("health_checks_total", 'forebay_terminations_total{reason="Unhealthy"}'),
    ("idle_timeouts_total", 'forebay_terminations_total{reason="Idle"}'),
)


class OperatorCollector(Collector):
    """Reads the views and counters of an operator. `views` returns None until the operator has started."""

    def __init__(
        self,
        views: Callable[[], Views | None],
        leads: Callable[[], bool],
        counts: Counts,
        *,
        dry_run: bool = False,
    ) -> None:
        self._dry_run = dry_run
        self._views = views
        self._leads = leads
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        views = self._views()
        records = list(views.instances.values()) if views is not None else []
        failing = [each for each in records if _is_not_terminated(each)]
        gauges: dict[str, dict[tuple[str, ...], float]] = {
            "leader": {(): float(self._leads())},
            "dry_run": {(): float(self._dry_run)},
            "pending_pods": {(): float(views.pods.index(PENDING_GPU).count(True)) if views is not None else 0.0},
            "instances": dict(Counter((_provider(each), each.state.value) for each in records)),
            "hourly_cost_usd": _costs(records),
            "terminations_failing": dict(Counter((_provider(each),) for each in failing)),
            "queue_depth": {(name,): float(self._depth(name)) for name in QUEUES},
            **_groups([] if views is None else list(views.provisioners.values())),
        }
        counters: dict[str, dict[tuple[str, ...], float]] = {
            "ticks": {(): self._counts.ticks},
            "tick_duration_seconds": {(): self._counts.tick_seconds},
            "decisions": {(name,): count for name, count in self._counts.decisions.items()},
            "failed_decisions": {(): self._counts.failed},
            "internal_errors": {(): self._counts.internal_errors},
            "provider_calls": {call: float(count) for call, count in self._counts.calls.items()},
            "provider_call_seconds": dict(self._counts.call_seconds),
            "instances_ready": {(name,): float(count) for name, count in self._counts.ready.items()},
            "instance_ready_seconds": {(name,): spent for name, spent in self._counts.ready_seconds.items()},
            "terminations": {(reason,): float(count) for reason, count in self._counts.terminations.items()},
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
        for (name, text), observed in zip(HISTOGRAMS, (self._counts.latency, self._counts.durations), strict=True):
            yield HistogramMetricFamily(f"forebay_{name}", text, buckets=observed.buckets(), sum_value=observed.sum)

    def _depth(self, queue: str) -> int:
        count = self._counts.queues.get(queue)
        return 0 if count is None else count()


def _groups(provisioners: list[NodeProvisioner]) -> dict[str, dict[tuple[str, ...], float]]:
    """Sizes of instance groups, as last reported."""
    found = {(each.metadata.name,): each.status for each in provisioners if each.status is not None}
    sizes = {
        "group_nodes": {key: status.current_size for key, status in found.items()},
        "group_target_nodes": {key: status.target_size for key, status in found.items()},
        "group_utilized_nodes": {key: status.utilized_nodes for key, status in found.items()},
        "group_tainted_nodes": {key: status.tainted_nodes for key, status in found.items()},
    }
    return {
        name: {key: float(size) for key, size in values.items() if size is not None} for name, values in sizes.items()
    }


def _is_not_terminated(record: GPUInstance) -> bool:
    """Whether the machine has to go and does not: its provider fails to end it, or is not configured any more."""
    reason = record.status.reason if record.status is not None else None
    if reason == Reason.PROVIDER_NOT_CONFIGURED:
        return record.state is InstanceState.TERMINATING or record.metadata.deletion_timestamp is not None
    return reason == Reason.TERMINATION_FAILED


def _provider(record: GPUInstance) -> str:
    return record.spec.provider


def _costs(records: list[GPUInstance]) -> dict[tuple[str, ...], float]:
    """Cost per hour by provider. Money becomes a float only here: Prometheus has no other number."""
    totals: dict[tuple[str, ...], float] = {}
    for provider in {_provider(record) for record in records}:
        prices = [hourly_cost(record).amount for record in records if _provider(record) == provider]
        totals[provider,] = float(sum(prices))
    return totals
