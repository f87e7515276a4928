"""A real Prometheus scrapes a real operator, and answers every query of the dashboards and of the rules."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from docs.alerts import ALERTS
from docs.metrics_reference import series
from forebay.cli.demo.world import running_demo
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.budget_metrics import BudgetCollector
from forebay.engine.metrics import OperatorCollector
from forebay.install.dashboards import BOARDS
from forebay.kube.metrics import InformerCollector
from forebay.net import clock
from forebay.net.serve import serving
from forebay.web.metrics import metrics_page
from forebay.web.pages import pages
from tests.needs import of_prometheus
from tests.rig.control_plane import free_ports

RULES = Path(__file__).parents[2] / "deploy/prometheus/rules.yaml"


@asynccontextmanager
async def prometheus(directory, target):
    """The base URL of a Prometheus that scrapes `target` every second."""
    port = free_ports("prometheus")["prometheus"]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "forebay", "static_configs": [{"targets": [target]}]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        of_prometheus("prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=sys.stderr,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.prometheus
@pytest.mark.real_time
async def test_prometheus_answers_every_query_and_finds_every_series(tmp_path):
    async with EmbeddedCluster(seed=1) as cluster, running_demo(cluster, 1) as demo:
        operator = demo.operator
        metrics = metrics_page(
            InformerCollector(operator.informers),
            OperatorCollector(lambda: operator.views, operator.elector.still_leader, operator.counts),
            BudgetCollector(lambda: operator.budget_accounting, clock.now),
        )
        submission = asyncio.create_task(demo.submit_jobs(1))
        async with (
            serving(pages(metrics=metrics)) as target,
            prometheus(tmp_path, target.removeprefix("http://")) as base,
            aiohttp.ClientSession() as session,
        ):

            async def ask(path, **parameters):
                async with session.get(f"{base}/api/v1/{path}", params=parameters) as answer:
                    return await answer.json()

            async def leads():
                try:
                    found = await ask("query", query="forebay_leader == 1 and forebay_ticks_total > 0")
                except aiohttp.ClientError:
                    return False
                return bool(found["data"]["result"])

            async with asyncio.timeout(60):
                while not await leads():  # noqa: ASYNC110 (polls another process)
                    await asyncio.sleep(0.2)

            queries = [each.expression for each in ALERTS]
            queries += [each.expression for board in BOARDS for panel in board.panels for each in panel.queries]
            for query in queries:
                answer = await ask("query", query=query)
                assert answer["status"] == "success", (query, answer)
            exported = {
                each for each in (await ask("label/__name__/values"))["data"] if each.startswith(("forebay_", "gwb_"))
            }
            assert exported - series().keys() - {f"{each}_created" for each in series()} == set(), "not documented"
            assert "forebay_reconcile_latency_seconds_bucket" in exported
            (found,) = (await ask("query", query="forebay_reconcile_duration_seconds_count"))["data"]["result"]
            assert float(found["value"][1]) > 0
            rules = (await ask("rules"))["data"]["groups"][0]["rules"]
            assert {each["name"]: each["health"] for each in rules} == {each.name: "ok" for each in ALERTS}
        submission.cancel()
        await asyncio.wait({submission})
