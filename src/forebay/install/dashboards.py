"""Grafana dashboards of the operator, as JSON models: operator, money and budgets.

Every replica exports what its informers show, so that queries take the maximum over replicas before they add up.
"""

from typing import Any, Final

import msgspec

Json = dict[str, Any]

_COLUMNS: Final = 24
HOURLY_COST: Final = "sum(max by (provider) (forebay_hourly_cost_usd))"
#: Labels of `forebay_spend_usd_per_hour` and its kin.
_BILL: Final = "namespace, pool, class"


class PlotQuery(msgspec.Struct, frozen=True):
    expression: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    queries: tuple[PlotQuery, ...]
    #: As Grafana names it.
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    stacked: bool = False


class BoardModel(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    title: str
    panels: tuple[Panel, ...]


def _stat(title: str, expression: str, unit: str = "short") -> Panel:
    return Panel(title=title, queries=(PlotQuery(expression),), unit=unit, kind="stat", width=6)


def _quantiles(metric: str) -> tuple[PlotQuery, ...]:
    return tuple(
        PlotQuery(f"histogram_quantile({part}, sum by (le) (rate({metric}_bucket[5m])))", f"p{part * 100:g}")
        for part in (0.5, 0.9, 0.99)
    )


BOARDS: Final = (
    BoardModel(
        uid="forebay-operator",
        title="Forebay / Operator",
        panels=(
            _stat("Leaders", "sum(forebay_leader)"),
            _stat("Pods waiting", "max(forebay_pending_pods)"),
            _stat("Machines", 'sum(max by (provider, state) (forebay_instances{state!="Gone"}))'),
            _stat("Terminations failing", "sum(max by (provider) (forebay_terminations_failing))"),
            Panel(
                title="Machines by state",
                queries=(PlotQuery("sum by (state) (max by (provider, state) (forebay_instances))", "{{state}}"),),
                stacked=True,
            ),
            Panel(title="Pods waiting", queries=(PlotQuery("max(forebay_pending_pods)", "pods"),)),
            Panel(
                title="From a change to its decisions",
                queries=_quantiles("forebay_reconcile_latency_seconds"),
                unit="s",
            ),
            Panel(title="Duration of a tick", queries=_quantiles("forebay_reconcile_duration_seconds"), unit="s"),
            Panel(
                title="Decisions",
                queries=(PlotQuery("sum by (decision) (rate(forebay_decisions_total[5m]))", "{{decision}}"),),
                unit="ops",
            ),
            Panel(
                title="Calls to providers",
                queries=(
                    PlotQuery(
                        "sum by (provider, call, outcome) (rate(forebay_provider_calls_total[5m]))",
                        "{{provider}} {{call}} {{outcome}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(title="Queues", queries=(PlotQuery("max by (queue) (forebay_queue_depth)", "{{queue}}"),)),
            Panel(
                title="Age of the views",
                queries=(PlotQuery("max by (resource) (forebay_informer_staleness_seconds)", "{{resource}}"),),
                unit="s",
            ),
            Panel(
                title="Errors",
                queries=(
                    PlotQuery("sum(rate(forebay_failed_decisions_total[5m]))", "decisions not applied"),
                    PlotQuery("sum(rate(forebay_internal_errors_total[5m]))", "bugs"),
                    PlotQuery("sum(rate(forebay_informer_failures_total[5m]))", "watches"),
                ),
                unit="ops",
            ),
            Panel(
                title="Instance groups",
                queries=(
                    PlotQuery("max by (provisioner) (forebay_group_nodes)", "{{provisioner}} nodes"),
                    PlotQuery("max by (provisioner) (forebay_group_target_nodes)", "{{provisioner}} target"),
                ),
            ),
        ),
    ),
    BoardModel(
        uid="forebay-money",
        title="Forebay / Money",
        panels=(
            _stat("Now", HOURLY_COST, "currencyUSD"),
            _stat("In 31 days", f"sum(max by ({_BILL}) (forebay_spent_usd))", "currencyUSD"),
            # A sum, not a mean: there is no series while a provider has no machines, and a mean leaves these times out.
            _stat("In 24 hours", f"sum_over_time({HOURLY_COST}[24h:5m]) / 12", "currencyUSD"),
            _stat("Machines billed", 'sum(max by (provider, state) (forebay_instances{state!~"Requested|Gone"}))'),
            Panel(
                title="Dollars per hour by pool",
                queries=(PlotQuery(f"sum by (pool) (max by ({_BILL}) (forebay_spend_usd_per_hour))", "{{pool}}"),),
                unit="currencyUSD",
                stacked=True,
            ),
            Panel(
                title="Dollars per hour by namespace",
                queries=(
                    PlotQuery(f"sum by (namespace) (max by ({_BILL}) (forebay_spend_usd_per_hour))", "{{namespace}}"),
                ),
                unit="currencyUSD",
                stacked=True,
            ),
            Panel(
                title="Dollars per hour by provider",
                queries=(PlotQuery("max by (provider) (forebay_hourly_cost_usd)", "{{provider}}"),),
                unit="currencyUSD",
                stacked=True,
            ),
            Panel(
                title="Dollars in 31 days by namespace",
                queries=(PlotQuery(f"sum by (namespace) (max by ({_BILL}) (forebay_spent_usd))", "{{namespace}}"),),
                unit="currencyUSD",
            ),
        ),
    ),
    BoardModel(
        uid="forebay-budgets",
        title="Forebay / Budgets",
        panels=(
            _stat("Budgets used up", "sum(max by (namespace, name) (gwb_exceeded))"),
            _stat("GPUs in use by budgets", "sum(max by (namespace, name) (gwb_burn_gpus))"),
            _stat(
                "Dollars per hour of budgets", "sum(max by (namespace, name) (gwb_burn_usd_per_hour))", "currencyUSD"
            ),
            _stat("Ledger not stored for", "max(forebay_ledger_lag_seconds)", "s"),
            Panel(
                title="GPU-hours in the window",
                queries=(PlotQuery("max by (namespace, name) (gwb_consumed_gpu_hours)", "{{namespace}}/{{name}}"),),
            ),
            Panel(
                title="GPU-hours left",
                queries=(PlotQuery("max by (namespace, name) (gwb_remaining_gpu_hours)", "{{namespace}}/{{name}}"),),
            ),
            Panel(
                title="Dollars in the window",
                queries=(PlotQuery("max by (namespace, name) (gwb_consumed_usd)", "{{namespace}}/{{name}}"),),
                unit="currencyUSD",
            ),
            Panel(
                title="Used up in",
                queries=(
                    PlotQuery(
                        "max by (namespace, name) (gwb_forecast_exhausted_timestamp_seconds) - time()",
                        "{{namespace}}/{{name}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                title="Evictions, pauses and alerts",
                queries=(
                    PlotQuery(
                        "sum by (namespace, name, action) (increase(gwb_enforcement_actions_total[1h]))",
                        "{{namespace}}/{{name}} {{action}}",
                    ),
                ),
            ),
            Panel(
                title="Accuracy of the ledger",
                queries=(
                    PlotQuery("min by (namespace, name) (gwb_accounting_accuracy_ratio)", "{{namespace}}/{{name}}"),
                ),
                unit="percentunit",
            ),
        ),
    ),
)


def board_json(board: BoardModel) -> Json:
    """The dashboard as Grafana imports it; its data source is chosen at the top of the page."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels: list[Json] = []
    column = row = 0
    height = 0
    for number, panel in enumerate(board.panels, 1):
        if column + panel.width > _COLUMNS:
            column, row = 0, row + height
        height = 4 if panel.kind == "stat" else 8
        panels.append(_panel(panel, number, source, {"h": height, "w": panel.width, "x": column, "y": row}))
        column += panel.width
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["forebay"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }


def _panel(panel: Panel, number: int, source: Json, place: Json) -> Json:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place_),
                "expr": each.expression,
                "legendFormat": each.legend,
                "datasource": source,
            }
            for place_, each in enumerate(panel.queries)
        ],
    }
