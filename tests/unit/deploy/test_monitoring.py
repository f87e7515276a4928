"""Alerts, runbooks and Grafana dashboards: every query is about series that exist, and Prometheus tries every rule."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from docs.alerts import ALERTS, RUNBOOKS, rule_groups
from docs.metrics_reference import series
from forebay.install.dashboards import BOARDS, board_json
from tests.needs import of_prometheus
from tests.unit.deploy.helm import rendered, the

ROOT = Path(__file__).parents[3]
QUERIES = [
    *((each.name, each.expression) for each in ALERTS),
    *(
        (f"{board.uid} {panel.title}", each.expression)
        for board in BOARDS
        for panel in board.panels
        for each in panel.queries
    ),
]
#: Labels that Prometheus or a query adds.
_GIVEN = {"instance", "job", "le"}


@pytest.mark.parametrize(("name", "query"), QUERIES, ids=[name for name, _ in QUERIES])
def test_a_query_is_about_series_and_labels_that_exist(name, query):
    known = series()
    used = set(re.findall(r"\b(?:forebay|gwb)_\w+", query))
    assert used
    assert used - known.keys() == set()
    labels = {label for found in re.findall(r"\bby \(([^)]*)\)", query) for label in re.split(r",\s*", found)}
    labels |= {label for found in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)[!=]", found)}
    assert labels - set().union(*(known[each] for each in used)) - _GIVEN == set()


def test_legends_show_labels_that_the_query_keeps():
    for board in BOARDS:
        for panel in board.panels:
            for each in panel.queries:
                kept = {
                    label for found in re.findall(r"\bby \(([^)]*)\)", each.expression) for label in found.split(", ")
                }
                assert set(re.findall(r"\{\{(\w+)\}\}", each.legend)) <= kept, panel.title


def test_dashboards_are_what_grafana_imports():
    uids = set()
    for board in BOARDS:
        made = board_json(board)
        uids.add(made["uid"])
        places = [panel["gridPos"] for panel in made["panels"]]
        taken = [
            (x, y)
            for place in places
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(taken) == len(set(taken)), "panels overlap"
        assert all(place["x"] + place["w"] <= 24 for place in places)
        assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
    assert len(uids) == 3


def test_every_alert_has_a_runbook_with_steps():
    for each in rule_groups()["groups"][0]["rules"]:
        page = (ROOT / each["annotations"]["runbook_url"]).read_text()
        assert "## What to do\n\n1. " in page
    pages = {path.stem for path in (ROOT / RUNBOOKS).glob("*.md")}
    assert pages - {"README"} == {each.name for each in ALERTS}


@pytest.mark.helm
def test_the_chart_brings_the_rules_and_the_dashboards():
    manifests = rendered(
        {"prometheusRule": {"enabled": True, "labels": {"release": "p"}}, "dashboards": {"enabled": True}}
    )
    rule = the("PrometheusRule", manifests)
    assert rule["metadata"]["labels"]["release"] == "p"
    assert rule["spec"] == rule_groups()
    boards = next(each for each in manifests if each["metadata"]["name"].endswith("-dashboards"))
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert {name: json.loads(text) for name, text in boards["data"].items()} == {
        f"{board.uid}.json": board_json(board) for board in BOARDS
    }
    assert not {each["kind"] for each in rendered()} & {"PrometheusRule", "ConfigMap"}


#: For each alert: series that make it fire, series that do not, and when to look.
LEADER = 'forebay_leader{pod="a"}'
STORIES = {
    "ForebayDown": ({}, {LEADER: "1x60"}, "15m"),
    "ForebayNoLeader": ({LEADER: "0x60"}, {LEADER: "1x60"}, "10m"),
    "ForebaySeveralLeaders": ({LEADER: "1x60", 'forebay_leader{pod="b"}': "1x60"}, {LEADER: "1x60"}, "10m"),
    "ForebayReconcileStalled": (
        {LEADER: "1x60", 'forebay_ticks_total{pod="a"}': "7x60"},
        {LEADER: "1x60", 'forebay_ticks_total{pod="a"}': "0+2x60"},
        "20m",
    ),
    "ForebayTerminationFailing": (
        {'forebay_terminations_failing{provider="x",pod="a"}': "1x60"},
        {'forebay_terminations_failing{provider="x",pod="a"}': "0x60"},
        "20m",
    ),
    "ForebaySpendSpike": (
        {'forebay_hourly_cost_usd{provider="x"}': "4x1440 40x60"},
        {'forebay_hourly_cost_usd{provider="x"}': "30x1440 40x60"},
        "24h20m",
    ),
    "ForebayPodsWaiting": ({"forebay_pending_pods": "3x120"}, {"forebay_pending_pods": "3x30 0x90"}, "70m"),
    "ForebayReconcileSlow": (
        {
            'forebay_reconcile_latency_seconds_bucket{le="5.0"}': "0x60",
            'forebay_reconcile_latency_seconds_bucket{le="10.0"}': "0+9x60",
            'forebay_reconcile_latency_seconds_bucket{le="+Inf"}': "0+9x60",
        },
        {
            'forebay_reconcile_latency_seconds_bucket{le="0.1"}': "0+9x60",
            'forebay_reconcile_latency_seconds_bucket{le="+Inf"}': "0+9x60",
        },
        "30m",
    ),
    "ForebayInternalErrors": (
        {"forebay_internal_errors_total": "0x5 1x20"},
        {"forebay_internal_errors_total": "4x30"},
        "10m",
    ),
    "ForebayDecisionsFailing": (
        {"forebay_failed_decisions_total": "0+30x60"},
        {"forebay_failed_decisions_total": "0x30 5x30"},
        "40m",
    ),
    "ForebayProviderFailing": (
        {'forebay_provider_calls_total{provider="x",call="launch",outcome="Unavailable"}': "0+1x90"},
        {
            'forebay_provider_calls_total{provider="x",call="launch",outcome="Unavailable"}': "0+1x90",
            'forebay_provider_calls_total{provider="x",call="launch",outcome="Accepted"}': "0+1x90",
        },
        "60m",
    ),
    "ForebayInformerStale": (
        {'forebay_informer_stale{resource="pods"}': "1x60"},
        {'forebay_informer_stale{resource="pods"}': "0x60"},
        "10m",
    ),
    "ForebayLedgerNotStored": (
        {"forebay_ledger_lag_seconds": "0+60x60"},
        {"forebay_ledger_lag_seconds": "20x60"},
        "20m",
    ),
    "ForebayBudgetExhaustedSoon": (
        {'gwb_forecast_exhausted_timestamp_seconds{namespace="n",name="b"}': "3000x60"},
        {
            'gwb_forecast_exhausted_timestamp_seconds{namespace="n",name="b"}': "3000x60",
            'gwb_exceeded{namespace="n",name="b"}': "1x60",
        },
        "10m",
    ),
    "ForebayBudgetExceeded": (
        {'gwb_exceeded{namespace="n",name="b"}': "1x60"},
        {'gwb_exceeded{namespace="n",name="b"}': "0x60"},
        "20m",
    ),
}


#: Further series, as above.
MORE_STORIES = (
    (
        "ForebayNoLeader",
        # A dry run beside an operator whose replicas do not lead, and a dry run alone.
        {
            LEADER: "0x60",
            'forebay_leader{pod="b"}': "0x60",
            'forebay_dry_run{pod="a"}': "0x60",
            'forebay_dry_run{pod="b"}': "1x60",
        },
        {LEADER: "0x60", 'forebay_dry_run{pod="a"}': "1x60"},
        "10m",
    ),
    (
        "ForebaySpendSpike",
        # Nothing ran for a day, and then much; or what runs for an hour of each day ran again.
        {'forebay_hourly_cost_usd{provider="x"}': "_x1440 40x60"},
        {'forebay_hourly_cost_usd{provider="x"}': "_x600 40x59 0x59 stale _x719 40x60"},
        "24h20m",
    ),
)


def test_every_alert_has_a_story():
    assert STORIES.keys() == {each.name for each in ALERTS}


@pytest.mark.prometheus
def test_prometheus_fires_each_alert_when_it_should_and_not_else(tmp_path):
    """By promtool, which evaluates the rules as Prometheus does."""
    tests = []
    for name, bad, good, at in (*((name, *story) for name, story in STORIES.items()), *MORE_STORIES):
        for values, fires in ((bad, True), (good, False)):
            given = [{"series": each, "values": text} for each, text in values.items()]
            expression = f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)'
            tests.append(
                {
                    "name": f"{name} {'fires' if fires else 'does not fire'}",
                    "interval": "1m",
                    "input_series": given,
                    "promql_expr_test": [
                        {"expr": expression, "eval_time": at, "exp_samples": [{"labels": "{}", "value": int(fires)}]}
                    ],
                }
            )
    tried_by_promtool(tmp_path, tests)


@pytest.mark.prometheus
def test_grafana_shows_what_was_spent_in_a_day_also_where_there_were_no_machines_for_most_of_it(tmp_path):
    """The cost of a provider has no series while there is no record of a machine there."""
    (query,) = next(
        each.queries
        for board in BOARDS
        for each in board.panels
        if (board.uid, each.title) == ("forebay-money", "In 24 hours")
    )
    ten_dollars_for_an_hour = {
        "series": 'forebay_hourly_cost_usd{provider="x",pod="a"}',
        "values": "_x120 10x59 0x59 stale _x1200",
    }
    samples = [{"labels": "{}", "value": 10}]
    tests = [
        {
            "interval": "1m",
            "input_series": [ten_dollars_for_an_hour],
            "promql_expr_test": [{"expr": query.expression, "eval_time": at, "exp_samples": samples}],
        }
        for at in ("4h", "23h")
    ]
    tried_by_promtool(tmp_path, tests)


def tried_by_promtool(directory, tests):
    rules = ROOT / "deploy/prometheus/rules.yaml"
    (directory / "stories.yaml").write_text(yaml.safe_dump({"rule_files": [str(rules)], "tests": tests}))

    answer = subprocess.run(
        [of_prometheus("promtool"), "test", "rules", "stories.yaml"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr
