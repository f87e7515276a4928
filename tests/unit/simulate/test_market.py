"""The simulated market by itself: stock, faults, containers and its own bill."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest

from forebay.model.sources import Delivery, InstancePhase
from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerLost, Request
from forebay.providers.simulated.wire import (
    INSTANCES,
    OFFERS,
    MarketContainer,
    MarketInstance,
    MarketListing,
    MarketLog,
    MarketOffers,
    MarketOrder,
    MarketRefusal,
)
from forebay.simulate import market_faults as faults
from forebay.simulate.market import Market
from forebay.simulate.market_bill import BillLine, Tariff
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SKU = Sku(instance_type="a", gpus=4, hourly_price="3.60", stock=2, boot=10, shutdown=5)
ORDER = MarketOrder(instance_type="a", cluster="c", owner="uid-1", name="gpu-1")


async def call(market, method, path, body=None):
    sent = None if body is None else msgspec.json.encode(body)
    request = Request(method=method, url=f"http://{market.name}{path}", body=sent)
    response = await InProcess(market.answer).request(request)
    return response.status, response.buffered


async def listed(market):
    _, body = await call(market, "GET", f"{INSTANCES}?cluster=c")
    return msgspec.json.decode(body, type=MarketListing)


@pytest.mark.parametrize(
    ("lasted", "minimum", "increment", "billed"),
    [
        (0, 60, 1, 60),
        (59.9, 60, 1, 60),
        (61.9, 60, 1, 61),
        (61, 0, 60, 120),
        (120, 0, 60, 120),
        (30, 90, 60, 120),
    ],
)
def test_the_bill_has_whole_seconds_a_minimum_and_steps(lasted, minimum, increment, billed):
    tariff = Tariff(hourly_price=Decimal("3.60"), minimum=minimum, increment=increment)
    line = BillLine(instance="i", owner="u", tariff=tariff, created=NOON, ended=NOON + timedelta(seconds=lasted))
    assert line.billed_seconds(NOON) == billed
    assert line.dollars(NOON) == Fraction(billed, 1000)


async def test_stock_is_taken_and_comes_back():
    market = Market("m", [SKU])
    first, second, third = [await call(market, "POST", INSTANCES, ORDER) for _ in range(3)]
    assert (first[0], second[0], third[0]) == (201, 201, 409)
    assert msgspec.json.decode(third[1], type=MarketRefusal).code == "no-capacity"
    await call(market, "DELETE", f"{INSTANCES}/m-1")
    await asyncio.sleep(6)
    _, body = await call(market, "GET", OFFERS)
    assert [each.stock for each in msgspec.json.decode(body, type=MarketOffers).offers] == [1]


async def test_an_ended_machine_leaves_the_listing_and_the_listing_tells_when():
    market = Market("m", [SKU])
    await call(market, "POST", INSTANCES, ORDER)
    await asyncio.sleep(100)
    assert (await call(market, "DELETE", f"{INSTANCES}/m-1"))[0] == 202
    assert [each.phase for each in (await listed(market)).instances] == [InstancePhase.ENDING]
    await asyncio.sleep(6)
    found = await listed(market)
    assert (found.instances, set(found.ended)) == ((), {"m-1"})
    assert (await call(market, "DELETE", f"{INSTANCES}/m-1"))[0] == 404
    assert market.bill() == Fraction(105, 1000)


async def test_a_listing_that_lags_shows_neither_what_is_new_nor_what_has_gone():
    market = Market("m", [SKU], list_lag=20)
    await asyncio.sleep(1)
    await call(market, "POST", INSTANCES, ORDER)
    assert (await listed(market)).instances == ()
    await asyncio.sleep(21)
    assert len((await listed(market)).instances) == 1
    market.vanish("m-1")
    assert len((await listed(market)).instances) == 1
    await asyncio.sleep(21)
    assert await listed(market) == MarketListing()


async def test_a_listing_has_pages():
    market = Market("m", [msgspec.structs.replace(SKU, stock=None)], page_size=2)
    for _ in range(3):
        await call(market, "POST", INSTANCES, ORDER)
    first = await listed(market)
    _, body = await call(market, "GET", f"{INSTANCES}?cluster=c&page={first.next}")
    rest = msgspec.json.decode(body, type=MarketListing)
    assert [each.id for each in (*first.instances, *rest.instances)] == ["m-1", "m-2", "m-3"]
    assert rest.next is None


async def test_a_launch_may_act_and_lose_its_answer_or_rent_twice():
    market = Market("m", [msgspec.structs.replace(SKU, stock=None)])
    market.script(MarketCall.LAUNCH, faults.answer_lost(), faults.rents_twice(), faults.request_lost())
    with pytest.raises(AnswerLost):
        await call(market, "POST", INSTANCES, ORDER)
    assert market.running == {"m-1"}
    assert (await call(market, "POST", INSTANCES, ORDER))[0] == 201
    assert market.running == {"m-1", "m-2", "m-3"}
    with pytest.raises(AnswerLost):
        await call(market, "POST", INSTANCES, ORDER)
    assert len(market.instances) == 3


async def test_a_reclaimed_machine_is_stopped_and_not_billed_any_longer():
    market = Market("m", [SKU])
    await call(market, "POST", INSTANCES, ORDER)
    await asyncio.sleep(100)
    market.reclaim("m-1", notice=30)
    assert (await listed(market)).instances[0].reclaim_at is not None
    await asyncio.sleep(500)
    (machine,) = (await listed(market)).instances
    assert (machine.phase, machine.message) == (InstancePhase.STOPPED, "preempted")
    assert market.bill() == Fraction(130, 1000)


async def test_the_dead_man_switch_ends_a_machine():
    market = Market("m", [SKU])
    await call(market, "POST", INSTANCES, msgspec.structs.replace(ORDER, max_run_seconds=60))
    await asyncio.sleep(61)
    assert market.running == frozenset()


async def test_a_container_runs_exits_and_has_a_log():
    sku = msgspec.structs.replace(SKU, delivers=Delivery.CONTAINER)
    market = Market("m", [sku])
    container = MarketContainer(image="work:1", env={"SIMULATED_RUN_TIME": "90s", "SIMULATED_EXIT_CODE": "3"})
    _, body = await call(market, "POST", INSTANCES, msgspec.structs.replace(ORDER, container=container))
    assert msgspec.json.decode(body, type=MarketInstance).phase is InstancePhase.STARTING
    await asyncio.sleep(11)
    assert (await listed(market)).instances[0].phase is InstancePhase.RUNNING
    await asyncio.sleep(90)
    (ended,) = (await listed(market)).instances
    assert (ended.phase, ended.exit_code) == (InstancePhase.FINISHED, 3)
    _, body = await call(market, "GET", f"{INSTANCES}/m-1/logs")
    log = msgspec.json.decode(body, type=MarketLog)
    assert ([line.text for line in log.lines], log.open) == (["started", "exited with 3"], False)


async def test_an_order_of_the_wrong_kind_or_of_nothing_is_refused():
    market = Market("m", [SKU])
    wrong = msgspec.structs.replace(ORDER, container=MarketContainer(image="work:1"))
    assert (await call(market, "POST", INSTANCES, wrong))[0] == 422
    assert (await call(market, "POST", INSTANCES, msgspec.structs.replace(ORDER, instance_type="b")))[0] == 422
    assert (await call(market, "POST", INSTANCES, {"instanceType": 7}))[0] == 400
    assert (await call(market, "GET", "/v2/offers"))[0] == 404
