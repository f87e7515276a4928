"""The bill for machines: who pays, what dollar budgets admit, and that the bill survives machines and operators."""

from datetime import timedelta
from fractions import Fraction

import pytest

from forebay.model.quantities import Usd
from forebay.net import clock
from forebay.simulate.power import Powered
from tests.engine.budget_world import operator, passing, world
from tests.net.faults import Answer, Faulty, Reset

#: A cent every ten seconds.
BOX = Powered(name="box-1", gpus=2, boot=60, hourly_price="3.60")
FREE = Powered(name="free", gpus=2, boot=60)


def dollars(text):
    return float(Fraction(str(text)))


def costs(made):
    """Dollars by namespace, as the operator has them."""
    bill = made.budget_accounting.bill_accounting.bill
    found = {}
    for key, each in bill.costs(clock.now()).items():
        found[key.namespace] = found.get(key.namespace, 0.0) + float(each.amount.dollars)
    return {name: amount for name, amount in found.items() if amount}


def _refusing(transport, switch):
    """Transport that fails all calls about ConfigMaps while the switch is on."""
    return Faulty(transport, lambda request: Answer(500) if switch["on"] and "configmaps" in request.url else None)


async def test_a_budget_counts_what_its_pods_cost_boot_and_idle_included():
    async with world(BOX, nodes=()) as it, operator(it) as made:
        it.budget(hours=None, quota={"usd": "10"})
        it.pod("train", 2, runs="20m")
        await passing(1300)
        assert it.phase("train") == "Succeeded"
        await passing(300)
        assert it.state("box-1") == "Gone"
        billed = it.record("box-1")["status"]
        status = it.status()
        length = it.seconds(billed["billedFrom"], billed["billedUntil"])
        assert length > 1260
        assert dollars(status["consumedUsd"]) == pytest.approx(length / 1000, abs=1e-6)
        assert dollars(status["remainingUsd"]) == pytest.approx(10 - length / 1000, abs=1e-6)
        assert costs(made) == {"default": pytest.approx(length / 1000)}


async def test_pods_that_share_a_machine_share_its_price():
    async with world(BOX, nodes=()) as it, operator(it):
        it.budget("a", hours=None, quota={"usd": "10"})
        it.budget("b", hours=None, quota={"usd": "10"}, labels={"team": "b"})
        it.pod("one", 1)
        it.pod("two", 1, labels={"team": "b"})
        await passing(600)
        assert it.asked("start") == ["box-1"]
        a, b = (dollars(it.status(name)["consumedUsd"]) for name in ("a", "b"))
        assert a == pytest.approx(b, rel=0.05)
        assert a + b == pytest.approx(0.6, rel=0.15)


async def test_a_record_is_deleted_after_its_cost_is_stored_and_the_cost_remains():
    async with world(BOX, nodes=()) as it:
        it.budget(hours=None, quota={"usd": "10"}, window=48)
        async with operator(it, "a") as made:
            it.pod("train", 1, runs="10m")
            await passing(1200)
            assert it.state("box-1") == "Gone"
            before = costs(made)
            consumed = it.status()["consumedUsd"]
        it.give_back("box-1")
        async with operator(it, "b") as made:
            await passing(60)
            assert it.records() == {}
            assert costs(made) == before
            assert it.status()["consumedUsd"] == consumed
        it.delete_pod("train")
        async with operator(it, "c") as made:
            await passing(3600)
            assert costs(made) == before
            assert dollars(it.status()["consumedUsd"]) == pytest.approx(dollars(consumed))


async def test_a_record_waits_while_its_cost_cannot_be_stored():
    async with world(BOX, nodes=()) as it:
        refusing = {"on": False}
        async with operator(it, "a", wrap=lambda transport: _refusing(transport, refusing)):
            it.pod("train", 1, runs="10m")
            await passing(300)
            refusing["on"] = True
            await passing(900)
            assert it.state("box-1") == "Gone"
            it.give_back("box-1")
            await passing(120)
            assert it.state("box-1") == "Gone"
            refusing["on"] = False
            await passing(30)
            assert it.records() == {}


async def test_a_restarted_operator_bills_the_time_it_was_down():
    async with world(BOX, nodes=()) as it:
        it.budget(hours=None, quota={"usd": "10"})
        async with operator(it, "a"):
            it.pod("train", 1)
            await passing(600)
        await passing(600)
        async with operator(it, "b") as made:
            await passing(120)
            begun = it.record("box-1")["status"]["billedFrom"]
            assert costs(made)["default"] == pytest.approx(it.seconds(begun) / 1000, abs=0.002)
            assert dollars(it.status()["consumedUsd"]) == pytest.approx(it.seconds(begun) / 1000, abs=0.1)


@pytest.mark.parametrize("dies", [2, 59, 63, 660, 662, 3700])
async def test_the_bill_adds_up_to_what_was_billed_whenever_the_operator_dies(dies):
    """The operator dies without a shutdown, and pods come and go while it is down."""
    async with world(BOX, nodes=()) as it:
        it.budget(hours=None, quota={"usd": "50"}, window=48)
        switch = {"on": False}
        async with operator(it, "a", wrap=lambda transport: _cut(transport, switch)):
            it.pod("short", 1, runs="10m")
            it.pod("long", 1, runs="2h", labels={"team": "b"})
            await passing(dies)
            switch["on"] = True
        await passing(40)
        if dies > 600:
            it.delete_pod("short", grace=0)
        async with operator(it, "b") as made:
            await passing(8500 - dies)
            assert it.state("box-1") == "Gone"
            status = it.record("box-1")["status"]
            cost = it.seconds(status["billedFrom"], status["billedUntil"]) / 1000
            assert sum(costs(made).values()) == pytest.approx(cost, abs=1e-9)
            assert dollars(it.status()["consumedUsd"]) <= cost


def _cut(transport, switch):
    return Faulty(transport, lambda _: Reset() if switch["on"] else None)


async def test_the_cost_of_a_machine_that_no_pod_needs_is_unallocated():
    async with world(BOX, nodes=()) as it, operator(it, idle_delay=timedelta(minutes=30)) as made:
        it.budget(hours=None, quota={"usd": "10"})
        it.power.power_on_by_hand("box-1")
        await passing(900)
        assert it.state("box-1") == "Ready"
        found = costs(made)
        assert list(found) == [""]
        assert found[""] > 0.5
        assert dollars(it.status()["consumedUsd"]) == 0


async def test_no_machine_is_powered_on_when_the_dollars_are_used_up():
    boxes = [Powered(name=f"box-{number}", gpus=1, boot=60, hourly_price="3.60") for number in (1, 2)]
    async with world(*boxes, nodes=()) as it, operator(it):
        it.budget(hours=None, quota={"usd": "0.5"}, window=1, action="Pause", grace=100_000)
        it.pod("first", 1, runs="8m")
        await passing(700)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        it.pod("second", 1, runs="5m")
        await passing(300)
        assert it.asked("start") == ["box-1"]
        (said,) = it.told("second", "HeldByBudget")
        assert "$0.50" in said
        assert "not before" in said
        assert it.labels() == {"forebay.dev/exceeded": "true"}
        await passing(3700)
        assert len(it.asked("start")) == 2


async def test_a_launching_machine_counts_before_it_is_billed():
    boxes = [Powered(name=f"box-{number}", gpus=1, boot=60, hourly_price="3.60") for number in (1, 2, 3)]
    async with world(*boxes, nodes=()) as it, operator(it):
        it.budget(hours=None, quota={"usd": "4"})
        it.pod("first", 1)
        await passing(1)
        it.pod("second", 1)
        it.pod("third", 1)
        await passing(200)
        # The quota has no headroom for an hour of both, but for five minutes of the second.
        assert len(it.asked("start")) == 2
        await passing(1200)
        assert len(it.asked("start")) == 2


async def test_the_forecast_covers_dollars():
    async with world(BOX, nodes=()) as it, operator(it):
        it.budget(hours=None, quota={"usd": "5"}, action="AlertOnly")
        it.pod("train", 2)
        await passing(3800)
        began = it.record("box-1")["status"]["billedFrom"]
        assert it.seconds(began, it.status()["forecastExhaustedAt"]) == pytest.approx(5000, abs=2)
        await passing(1300)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        assert it.told("team-a", "QuotaForecast")


async def test_machines_without_a_price_are_not_billed():
    async with world(FREE, nodes=()) as it, operator(it) as made:
        it.pod("train", 1, runs="10m")
        await passing(1500)
        assert it.state("free") == "Gone"
        assert it.ledgers() == []
        assert made.budget_accounting.bill_accounting.bill.ledgers == {}


def test_a_status_is_in_decimals():
    assert Usd.from_units(Usd(1).units // 3).decimals() == "0.333333"
    assert Usd("12.5").decimals() == "12.5"
    assert Usd(0).decimals() == "0"
