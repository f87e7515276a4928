"""A dry run: decides what an operator would, says it, keeps a receipt, and changes nothing."""

import asyncio
import base64
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
import structlog

from forebay.budgets.usage import microseconds
from forebay.embedded.api import kinds
from forebay.embedded.controllers import register_node
from forebay.engine.shadow import ShadowOperator
from forebay.kube.client import Client
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.read_only import ReadOnly
from forebay.net.redaction import Redactor
from forebay.net.transport import NeverSent, Request, Response
from forebay.reconcile.snapshot import OperatorRules
from forebay.simulate.market_goods import Sku
from forebay.simulate.power import Powered
from forebay.web.dashboard import Dashboard
from tests.contract.providers.gcp.tokens import key_file
from tests.engine.group_world import KIND
from tests.engine.market_world import clouds, market
from tests.engine.power_world import POWER, SERVER, environment
from tests.engine.test_queued_members import KEY, engine

CLOUD = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", region="west", boot=60, driver=10)
OWN = Powered(name="own", gpus=1, boot=30, shutdown=5, hourly_price="0.60")


def _path(url):
    return url.partition("?")[0].rpartition("/")[2]


class Calls:
    """Every request that reaches a server, by method and, unless it is a GET, the last part of its path."""

    def __init__(self, handler):
        self._handler = handler
        self.methods = []

    async def __call__(self, request):
        self.methods.append(request.method if request.method == "GET" else f"{request.method} {_path(request.url)}")
        return await self._handler(request)


@asynccontextmanager
async def dry_run(cloud, *, run_time=timedelta(hours=1), now=clock.now, reads=(), **rules):
    """A dry run, all requests of which must be GETs; those to providers may also be in `reads`."""
    api, providers = Calls(cloud.world.cluster.handler), Calls(cloud.answer)
    async with AsyncExitStack() as stack:
        client = Client(InProcess(api), SERVER)
        stack.push_async_callback(client.close)
        made = ShadowOperator(
            client,
            client,
            SERVER,
            namespace="kube-system",
            identity="shadow",
            clock=now,
            make_transport=lambda _: InProcess(providers),
            environment=environment(cloud.world.power.configured(POWER, status=True)),
            rules=OperatorRules(**rules),
            run_time=run_time,
        )
        await stack.enter_async_context(made)
        work = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            work.cancel()
            await asyncio.wait({work})
    assert set(api.methods) == {"GET"}
    assert {each for each in providers.methods if each not in reads} == {"GET"}


def names(operator):
    return [each.name for each in operator.fleet.purchases]


async def test_nothing_is_written_or_started_and_the_receipt_says_what_would_have_been_bought():
    async with clouds(market("alpha", CLOUD), machines=(OWN,)) as cloud:
        cloud.pool("alpha")
        async with dry_run(cloud) as operator:
            await asyncio.sleep(10)
            before = cloud.store.version
            cloud.world.pod("small", 1)
            cloud.world.pod("large", 4)
            written = cloud.store.version
            await asyncio.sleep(1800)
            # The scheduler's message on the two pods is all that was written since, and not by Forebay.
            assert cloud.store.version - written <= 8, (before, written, cloud.store.version)
            assert cloud.world.records() == {}
            assert cloud.world.asked("start") == []
            assert cloud.running == frozenset()
            assert [(each.instance_type, each.pods) for each in operator.fleet.purchases] == [
                ("own", 1),
                ("l40s.4x", 1),
            ]
            today = operator.receipts()[0]
            assert (today.bought, today.pods) == (2, 2)
            # Half an hour of both, at $0.60 and $2.40 an hour.
            assert today.cost.startswith("1.49") or today.cost.startswith("1.50"), today.cost
            assert "Would have bought 2 machines for 2 pods" in today.sentence


async def test_the_usage_of_budgets_is_counted_without_a_ledger_that_is_written():
    async with clouds(market("alpha", CLOUD)) as cloud:
        cloud.pool("alpha")
        register_node(cloud.store, "n1", allocatable={"cpu": "8", "memory": "8Gi", "pods": 9, "nvidia.com/gpu": 1})
        spec = {
            "selector": {"matchLabels": {"team": "a"}},
            "quota": {"gpuHours": "100", "windowHours": 24},
            "enforcement": {"action": "Evict"},
            "accounting": "Exact",
        }
        budgets = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        cloud.store.create(budgets, {"metadata": {"name": "team-a", "namespace": "default"}, "spec": spec})
        cloud.world.pod("train", 1, runs="60s", metadata={"labels": {"team": "a"}})
        with structlog.testing.capture_logs() as lines:
            async with dry_run(cloud) as operator:
                await asyncio.sleep(300)
                (account,) = operator.budget_accounting.accounts
                assert account.ledger.tracked(microseconds(clock.now()), 10**9) == 1
        assert [line for line in lines if line["event"] == "ledger sync failed"] == []
        assert not [each for each in cloud.store.list(kinds.CONFIG_MAP_KIND) if "ledger" in each["metadata"]["name"]]


async def test_a_purchase_is_decided_once_and_ends_when_the_pod_would_have():
    async with clouds(market("alpha", CLOUD)) as cloud:
        cloud.pool("alpha")
        async with dry_run(cloud, run_time=timedelta(minutes=20)) as operator:
            cloud.world.pod("train", 4)
            await asyncio.sleep(2 * 3600)
            (bought,) = operator.fleet.purchases
            assert bought.until is not None
            # The assumed run time, and then consolidateAfter of the pool.
            assert timedelta(minutes=20) < bought.until - bought.since < timedelta(minutes=23)
            assert operator.receipts()[0].cost.startswith("0.8"), "about 21 minutes at $2.40 an hour"


async def test_pods_share_a_machine_of_the_dry_run_as_they_would():
    async with clouds(market("alpha", CLOUD)) as cloud:
        cloud.pool("alpha")
        async with dry_run(cloud) as operator:
            cloud.world.pod("first", 2)
            await asyncio.sleep(30)
            cloud.world.pod("second", 2)
            await asyncio.sleep(30)
            assert len(names(operator)) == 1
            cloud.world.pod("third", 1)
            await asyncio.sleep(30)
            assert len(names(operator)) == 2


async def test_a_pod_that_is_deleted_in_reality_ends_its_machine():
    async with clouds(market("alpha", CLOUD)) as cloud:
        cloud.pool("alpha")
        async with dry_run(cloud) as operator:
            cloud.world.pod("train", 4)
            await asyncio.sleep(600)
            assert operator.fleet.purchases[0].until is None
            cloud.store.delete(kinds.POD_KIND, "default", "train")
            await asyncio.sleep(120)
            bought = operator.fleet.purchases[0]
            assert bought.until is not None
            assert bought.until - bought.since < timedelta(minutes=12)


async def test_an_idle_machine_that_stays_on_is_counted_as_saved_until_it_is_used_again():
    async with clouds(machines=(OWN,)) as cloud:
        cloud.world.power.power_on_by_hand("own")
        async with dry_run(cloud, idle_delay=timedelta(minutes=5)) as operator:
            await asyncio.sleep(3600)
            assert cloud.world.asked("stop") == []
            (saved,) = operator.fleet.savings
            assert saved.name == "own"
            assert saved.until is None
            cost = operator.receipts()[0].saved
            assert "0.3" < cost < "0.6", cost
            cloud.world.pod("train", 1, runs="600s")
            await asyncio.sleep(60)
            assert cloud.world.where("train") == "own"
            assert operator.fleet.savings[0].until is not None
            # And idle again, it would be powered off again.
            await asyncio.sleep(1800)
            assert len(operator.fleet.savings) == 2
            assert names(operator) == []


async def test_the_dashboard_of_a_dry_run_says_so():
    async with clouds(market("alpha", CLOUD)) as cloud:
        cloud.pool("alpha")
        async with dry_run(cloud) as operator:
            cloud.world.pod("train", 4)
            await asyncio.sleep(60)
            page = await Dashboard(operator.observation, Redactor()).handle(Request(method="GET", url="http://d/"))
            text = (await page.read()).decode()
            assert "Dry run: nothing on this page was done" in text
            assert "would be spent now" in text
            assert "Would have bought 1 machine for 1 pod" in text


async def test_instance_groups_of_google_are_read_and_not_resized():
    async with clouds(engine) as cloud:
        key = base64.b64encode(key_file(KEY, "http://gcp")).decode()
        meta = {"name": "google", "namespace": "kube-system"}
        cloud.store.create(kinds.SECRET_KIND, {"metadata": meta, "data": {"key": key}})
        group = cloud.markets["gcp"].add_group("pool", "a3-highgpu-8g")
        provider = {"name": "gcp", "endpoint": "http://gcp", "location": "us-central1-a"}
        provider["credentialsRef"] = {"name": "google", "key": "key"}
        spec = {"existingInstanceGroupNames": ["pool"], "provider": provider, "minUnutilizedGPUNodes": 2}
        cloud.store.create(cloud.store.kinds.named(*KIND), {"metadata": {"name": "pool"}, "spec": spec})
        async with dry_run(cloud, reads=("POST listManagedInstances", "POST token")) as operator:
            await asyncio.sleep(600)
            assert [each.provider for each in operator.fleet.purchases] == ["gcp", "gcp"]
            assert (len(group.members), group.target) == (0, 0)


async def test_each_day_ends_with_a_receipt_in_the_log():
    with structlog.testing.capture_logs() as lines:
        async with clouds(market("alpha", CLOUD)) as cloud:
            cloud.pool("alpha")
            # The day begins at midnight: half an hour of the first and of the next.
            async with dry_run(cloud, now=lambda: clock.now() + timedelta(hours=23, minutes=30)) as operator:
                cloud.world.pod("train", 4)
                await asyncio.sleep(2400)
                _, first = operator.receipts()
                await asyncio.sleep(1200)
                assert operator.receipts()[1] == first, "a day that is over does not change"
                assert (first.day.isoformat(), first.bought) == ("2030-01-01", 1)
    found = [each for each in lines if each["event"] == "receipt of the dry run"]
    assert [each["bought"] for each in found] == [1, 0]
    assert [each["day"] for each in found] == ["2030-01-01", "2030-01-02"]
    assert all(each["cost_usd"].startswith("1.1") or each["cost_usd"].startswith("1.2") for each in found)
    assert len([each for each in lines if each["event"] == "would launch"]) == 1


async def test_a_read_only_transport_refuses_what_changes_something_and_sends_a_post_that_reads():
    sent = []

    async def server(request):
        sent.append(request.method)
        return Response(200)

    transport = ReadOnly(InProcess(server))
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(NeverSent, match="dry run"):
            await transport.request(Request(method=method, url="http://x/y"))
    await transport.request(Request(method="GET", url="http://x/y"))
    await transport.request(Request(method="POST", url="http://x/list", safe=True))
    assert sent == ["GET", "POST"]
