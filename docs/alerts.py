"""Alerts of the operator: each is a rule for Prometheus and a runbook page, generated from this table."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from forebay.install.dashboards import HOURLY_COST

RUNBOOKS: Final = "docs/runbooks"


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """One alert. The texts are for whoever is woken by it."""

    name: str
    expression: str
    #: How long the expression must hold.
    holds: str
    #: critical: wake somebody; warning: look at it today; info: know it.
    severity: str
    summary: str
    meaning: str
    impact: str
    steps: tuple[str, ...]


ALERTS: Final = (
    AlertRule(
        name="ForebayDown",
        expression="absent(forebay_leader)",
        holds="10m",
        severity="critical",
        summary="No replica of Forebay is scraped.",
        meaning="Prometheus has no metrics of any replica: the pods are gone, or Prometheus may not read them.",
        impact="Machines that run go on running and cost money; nothing is launched or terminated.",
        steps=(
            "`kubectl -n forebay-system get pods`: are there replicas, and are they ready?",
            "`kubectl -n forebay-system logs deploy/forebay --previous`: why did the last one end?",
            (
                "If the pods are well, ask Prometheus for the error of its scrape. 401 or 403: bind the ClusterRole "
                "`forebay-metrics-reader` to the ServiceAccount of Prometheus. A timeout: add its namespace to "
                "`networkPolicy.scrapers`."
            ),
            "Until it is mended, `kubectl get gpuinstances` names every machine that costs money.",
        ),
    ),
    AlertRule(
        name="ForebayNoLeader",
        # A dry run takes no Lease; all replicas are dry runs where nobody is to lead.
        expression="sum(forebay_leader) == 0 unless sum(forebay_dry_run) == count(forebay_leader)",
        holds="5m",
        severity="critical",
        summary="No replica of Forebay leads.",
        meaning="Replicas run, and none holds the Lease: the API server refuses or does not answer its renewal.",
        impact="Nothing is launched or terminated. Machines that run cost money.",
        steps=(
            "`forebay status`: the line Leader names the holder of the Lease and its age.",
            "`kubectl -n forebay-system get lease forebay-operator -o yaml`: does the holder exist?",
            "`/readyz` of a replica says why it cannot renew the Lease.",
        ),
    ),
    AlertRule(
        name="ForebaySeveralLeaders",
        expression="sum(forebay_leader) > 1",
        holds="2m",
        severity="critical",
        summary="More than one replica of Forebay says that it leads.",
        meaning="Two operators act in the cluster: two releases in different namespaces, or a replica whose clock or "
        "network was stopped.",
        impact="Machines are not bought twice (the record is a compare-and-swap), but two releases undo each other.",
        steps=(
            "`kubectl get lease -A | grep forebay`: is there one Lease, or one for each of two releases?",
            "Uninstall the release that should not be there.",
        ),
    ),
    AlertRule(
        name="ForebayReconcileStalled",
        expression="(forebay_leader == 1) unless (increase(forebay_ticks_total[10m]) > 0)",
        holds="5m",
        severity="critical",
        summary="The leader of Forebay has not completed a tick for 10 minutes.",
        meaning="The reconcile loop fails, hangs, or waits for views that are not complete.",
        impact="Nothing is launched or terminated. Machines that run cost money.",
        steps=(
            "`/readyz` of the leader says what is missing, or which error ended the last ticks.",
            "The log has `reconcile failed` with a traceback: please report it, with `forebay support-bundle`.",
            "Delete the leader's pod: the standby takes over within seconds.",
        ),
    ),
    AlertRule(
        name="ForebayTerminationFailing",
        expression="max by (provider) (forebay_terminations_failing) > 0",
        holds="15m",
        severity="critical",
        summary="A machine of {{ $labels.provider }} cannot be terminated.",
        meaning=(
            "The provider has refused or not answered terminate calls for 15 minutes, and Forebay goes on trying; or "
            "the provider of the machine is not configured any more, or with another account (`ProviderNotConfigured`)."
        ),
        impact="The machine may cost money until it is gone.",
        steps=(
            "`kubectl get gpuinstances | grep Terminating`: which machine?",
            "`forebay explain gi/NAME`: what the provider answers.",
            "`forebay providers check`: do the credentials still work?",
            "Terminate it in the provider's console. Forebay sees that it is gone, and the alert ends.",
        ),
    ),
    AlertRule(
        name="ForebaySpendSpike",
        # The mean is over the times with machines: there is no series without any. A day that had none allows nothing.
        expression=f"{HOURLY_COST} > 5 unless {HOURLY_COST} <= 2 * avg_over_time({HOURLY_COST}[1d:5m] offset 1h)",
        holds="15m",
        severity="warning",
        summary="Machines cost {{ $value | humanize }} dollars an hour, more than twice the mean of the day before.",
        meaning="Much more capacity runs than usual: than in the hours of the day before in which there were machines; "
        "or there were none all day.",
        impact="The bill grows.",
        steps=(
            "The dashboard's page Money, or `forebay status`: which pool and namespace?",
            "`forebay explain gi/NAME` says for which pods a machine was launched.",
            "Limit it: `spec.limits.maxHourlyCost` of the pool or class, or a GPUWorkloadBudget for the team.",
        ),
    ),
    AlertRule(
        name="ForebayPodsWaiting",
        expression="max(forebay_pending_pods) > 0",
        holds="1h",
        severity="warning",
        summary="GPU pods have been waiting for an hour.",
        meaning="There is demand that Forebay does not, or may not, serve.",
        impact="Jobs do not start.",
        steps=(
            (
                "`forebay status` lists the pods with the reason of each; `forebay explain pod/NAME -n NAMESPACE` says "
                "what comes next."
            ),
            "The [reasons](../reference/reasons.md) say what to do for each.",
        ),
    ),
    AlertRule(
        name="ForebayReconcileSlow",
        expression="histogram_quantile(0.99, sum by (le) (rate(forebay_reconcile_latency_seconds_bucket[10m]))) > 5",
        holds="15m",
        severity="warning",
        summary="Forebay acts on changes only after {{ $value | humanizeDuration }}.",
        meaning="Ticks take long, or decisions wait for the API server.",
        impact="Pods get their machines later.",
        steps=(
            "Compare `forebay_reconcile_duration_seconds` with the latency: is the tick itself slow?",
            "`forebay_queue_depth`: what waits? The log has `decision not applied` where the API server refuses.",
            "Give the operator more CPU, and no CPU limit.",
        ),
    ),
    AlertRule(
        name="ForebayInternalErrors",
        expression="increase(forebay_internal_errors_total[15m]) > 0",
        holds="0s",
        severity="warning",
        summary="Forebay has met a bug of its own.",
        meaning="A tick or the accounting of budgets raised an unexpected error. It cost one object its turn.",
        impact="That object is not served until the cause has passed; others are.",
        steps=(
            "The condition or event ReconcileFailed names the object; the log has the traceback.",
            "Please report it, with `forebay support-bundle`.",
        ),
    ),
    AlertRule(
        name="ForebayDecisionsFailing",
        expression="rate(forebay_failed_decisions_total[10m]) > 0.1",
        holds="15m",
        severity="warning",
        summary="Decisions of Forebay cannot be applied.",
        meaning="The API server refuses writes again and again: permissions, admission policies or webhooks of others.",
        impact="What was decided does not happen.",
        steps=(
            "The log has `decision not applied` with the answer of the API server.",
            "Forbidden: apply the roles of this version (`forebay manifests rbac`).",
        ),
    ),
    AlertRule(
        name="ForebayProviderFailing",
        expression='sum by (provider) (increase(forebay_provider_calls_total{outcome!="Accepted"}[30m])) > 5 unless '
        'sum by (provider) (increase(forebay_provider_calls_total{outcome="Accepted"}[30m])) > 0',
        holds="10m",
        severity="warning",
        summary="Every call to {{ $labels.provider }} fails.",
        meaning="No launch or terminate call to the provider succeeded in half an hour.",
        impact="Its capacity is not used, and its machines cannot be terminated.",
        steps=(
            "`forebay providers check`: credentials, permissions, quota.",
            "`forebay explain gi/NAME`: what the provider answers.",
        ),
    ),
    AlertRule(
        name="ForebayInformerStale",
        expression="max by (resource) (forebay_informer_stale) > 0",
        holds="5m",
        severity="warning",
        summary="Forebay does not see changes of {{ $labels.resource }}.",
        meaning="The watch fails: the API server is not reachable, or refuses it.",
        impact="Forebay does not act while what it sees is old.",
        steps=(
            "`/readyz` of the replica says why.",
            "Forbidden: apply the roles of this version (`forebay manifests rbac`).",
        ),
    ),
    AlertRule(
        name="ForebayLedgerNotStored",
        expression="max(forebay_ledger_lag_seconds) > 300",
        holds="5m",
        severity="warning",
        summary="Usage of budgets has not been stored for {{ $value | humanizeDuration }}.",
        meaning="ConfigMaps in the operator's namespace cannot be written.",
        impact="Pods with the usage finalizer stay until their usage is stored. Nothing is lost unless the operator "
        "ends before.",
        steps=(
            "The log has `ledger write failed` with the answer of the API server.",
            "Is there a ResourceQuota for ConfigMaps in the namespace? Is etcd full?",
        ),
    ),
    AlertRule(
        name="ForebayBudgetExhaustedSoon",
        expression="max by (namespace, name) (gwb_forecast_exhausted_timestamp_seconds) - time() < 3600 "
        "unless max by (namespace, name) (gwb_exceeded) > 0",
        holds="5m",
        severity="info",
        summary="Budget {{ $labels.namespace }}/{{ $labels.name }} is used up in {{ $value | humanizeDuration }}.",
        meaning="At the rate of the last hour the quota is used up within an hour.",
        impact="Then its pods are evicted, paused or only reported, as the budget says.",
        steps=(
            "`forebay budgets NAME -n NAMESPACE` shows usage, forecast and how many pods count.",
            "Raise `spec.quota`, or stop what is not needed.",
        ),
    ),
    AlertRule(
        name="ForebayBudgetExceeded",
        expression="max by (namespace, name) (gwb_exceeded) > 0",
        holds="10m",
        severity="info",
        summary="Budget {{ $labels.namespace }}/{{ $labels.name }} is used up.",
        meaning="The quota of the window is used up.",
        impact="New pods of the budget wait; running ones are evicted, paused or only reported.",
        steps=(
            "`forebay explain pod/NAME -n NAMESPACE`, for a pod that waits: when may it start at the earliest?",
            "`forebay budgets NAME -n NAMESPACE` plots the usage of the window.",
            "Raise `spec.quota` to start pods now.",
        ),
    ),
)


def rule_groups() -> dict[str, Any]:
    """The rules as Prometheus reads them."""
    rules = [
        {
            "alert": each.name,
            "expr": each.expression,
            **({} if each.holds == "0s" else {"for": each.holds}),
            "labels": {"severity": each.severity},
            "annotations": {
                "summary": each.summary,
                "description": f"{each.meaning} {each.impact}",
                "runbook_url": f"{RUNBOOKS}/{each.name}.md",
            },
        }
        for each in ALERTS
    ]
    return {"groups": [{"name": "forebay", "rules": rules}]}


def rules_yaml() -> str:
    head = "# Generated by `make generate` from docs/alerts.py: change it there.\n"
    return head + yaml.safe_dump(rule_groups(), sort_keys=False, width=10_000)


def runbook(alert: AlertRule) -> str:
    return "\n".join(_runbook(alert)) + "\n"


def _runbook(alert: AlertRule) -> Iterator[str]:
    yield f"# {alert.name}"
    yield ""
    yield "<!-- Generated by `make generate` from docs/alerts.py: change it there. -->"
    yield ""
    yield f"Severity: {alert.severity}. {alert.meaning}"
    yield ""
    yield f"**Impact**: {alert.impact}"
    yield ""
    yield "## What to do"
    yield ""
    for number, step in enumerate(alert.steps, 1):
        yield f"{number}. {step}"
    yield ""
    yield "## Rule"
    yield ""
    held = "" if alert.holds == "0s" else f", for {alert.holds}"
    yield f"    {alert.expression}"
    yield ""
    yield f"As long as this has a value{held}. All alerts: [README.md](README.md)."


def runbook_index() -> str:
    lines = [
        "# Runbooks",
        "",
        "<!-- Generated by `make generate` from docs/alerts.py: change it there. -->",
        "",
        (
            "One page for each alert of `deploy/prometheus/rules.yaml`; with the Prometheus operator, set "
            "`prometheusRule.enabled` of the [chart](../reference/helm.md). `make test` has Prometheus try each rule."
        ),
        "",
        "| alert | severity | meaning |",
        "|---|---|---|",
        *(f"| [{each.name}]({each.name}.md) | {each.severity} | {each.meaning} |" for each in ALERTS),
    ]
    return "\n".join(lines) + "\n"
