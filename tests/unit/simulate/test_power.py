"""The simulated machines with power switches. They must be right themselves: other tests are judged by them."""

import asyncio
from datetime import timedelta

import pytest

from forebay.api.values import duration
from forebay.embedded.api import kinds
from forebay.model.quantities import Gpus
from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerLost, Headers, Request, Timeouts
from forebay.providers.webhook.groups import read_groups
from forebay.simulate import power_faults as faults
from forebay.simulate.power import Power, PowerCall, Powered, PowerWorld
from forebay.simulate.power_faults import Boot
from forebay.simulate.power_nodes import EmbeddedNodes
from tests.engine.embedded_world import World

SMALL = Powered(name="small", gpus=2, boot=60)
LARGE = Powered(name="large", gpus=8, boot=120, driver=30)


async def call(world, machine, asked, *, key="k"):
    method = "GET" if asked is PowerCall.STATUS else "POST"
    body = None if asked is PowerCall.STATUS else b"{}"
    transport = InProcess(world.answer, timeouts=Timeouts(read=5.0))
    url = f"http://power/{machine}/{asked}"
    response = await transport.request(
        Request(method=method, url=url, headers=Headers({"Idempotency-Key": key}), body=body)
    )
    return response.status, await response.read()


async def test_a_machine_boots_runs_and_stops():
    world = PowerWorld([SMALL, LARGE])
    assert (await call(world, "small", PowerCall.ON))[0] == 200
    assert world.power("small") is Power.STARTING
    assert await call(world, "small", PowerCall.STATUS) == (200, b'{"state":"starting"}')
    await asyncio.sleep(60)
    assert world.power("small") is Power.ON
    assert world.on == {"small"}
    await call(world, "small", PowerCall.OFF)
    assert world.power("small") is Power.STOPPING
    await asyncio.sleep(5)
    assert world.on == frozenset()
    (period,) = world.periods
    assert period.until - period.since == timedelta(seconds=65)
    assert world.gpu_hours() == Gpus(2) * timedelta(seconds=65)


async def test_gpu_hours_are_counted_while_machines_are_on():
    world = PowerWorld([SMALL, LARGE])
    world.power_on_by_hand("small")
    world.power_on_by_hand("large")
    await asyncio.sleep(3600)
    assert world.gpu_hours() == Gpus(10) * timedelta(hours=1)


async def test_a_machine_powered_on_while_it_stops_boots_again():
    world = PowerWorld([SMALL])
    world.power_on_by_hand("small")
    await asyncio.sleep(60)
    await call(world, "small", PowerCall.OFF)
    await asyncio.sleep(1)
    await call(world, "small", PowerCall.ON)
    await asyncio.sleep(60)
    assert world.power("small") is Power.ON
    assert len(world.periods) == 1


async def test_powering_on_a_running_machine_under_another_key_is_recorded():
    world = PowerWorld([SMALL])
    await call(world, "small", PowerCall.ON, key="a")
    await call(world, "small", PowerCall.ON, key="a")
    assert world.powered_on_twice() == ()
    await call(world, "small", PowerCall.ON, key="b")
    assert [call.key for call in world.powered_on_twice()] == ["b"]


async def test_scripted_calls_fail_and_later_calls_succeed():
    world = PowerWorld([SMALL])
    world.script("small", PowerCall.ON, faults.refuses(503), faults.lies(), faults.fails_after_acting(500))
    assert (await call(world, "small", PowerCall.ON))[0] == 503
    assert (await call(world, "small", PowerCall.ON))[0] == 200
    assert world.on == frozenset()
    assert (await call(world, "small", PowerCall.ON))[0] == 500
    assert world.on == {"small"}
    assert (await call(world, "small", PowerCall.ON))[0] == 200
    assert [(call.status, call.acted) for call in world.calls] == [
        (503, False),
        (200, False),
        (500, True),
        (200, True),
    ]


@pytest.mark.parametrize("fault", [faults.silent(acts=True), faults.slow(60), faults.breaks_off(acts=True)])
async def test_calls_without_an_answer_have_an_unknown_outcome(fault):
    world = PowerWorld([SMALL])
    world.script("small", PowerCall.ON, fault)
    with pytest.raises(AnswerLost):
        await call(world, "small", PowerCall.ON)
    assert world.on == {"small"}


async def test_an_endpoint_that_remembers_keys_acts_once_for_each_key():
    world = PowerWorld([SMALL], remembers_keys=True)
    await call(world, "small", PowerCall.ON, key="a")
    world.lose_power("small")
    assert (await call(world, "small", PowerCall.ON, key="a"))[0] == 200
    assert world.on == frozenset()
    await call(world, "small", PowerCall.ON, key="b")
    assert world.on == {"small"}


async def test_scripted_boots_fail():
    world = PowerWorld([SMALL])
    world.script_boots("small", Boot(joins=False), Boot(after=1, loses_power_after=10))
    world.power_on_by_hand("small")
    await asyncio.sleep(3600)
    assert world.power("small") is Power.STARTING
    world.lose_power("small")
    world.power_on_by_hand("small")
    await asyncio.sleep(9)
    assert world.power("small") is Power.ON
    await asyncio.sleep(2)
    assert world.power("small") is Power.OFF


async def test_invalid_requests_are_refused():
    world = PowerWorld([SMALL])
    transport = InProcess(world.answer)
    for method, path, body, status in [
        ("POST", "/nobody/start", b"{}", 404),
        ("POST", "/small/explode", b"{}", 404),
        ("GET", "/small/start", None, 405),
        ("POST", "/small/start", b"", 400),
    ]:
        response = await transport.request(Request(method=method, url=f"http://power{path}", body=body))
        assert response.status == status
    assert world.on == frozenset()


async def test_machines_can_be_listed_by_a_class_and_by_the_environment():
    world = PowerWorld([SMALL, LARGE])
    listed = world.configured("http://power", status=False)
    assert read_groups(world.environment("http://power")).machines == listed
    assert [machine.status_endpoint for machine in world.configured("http://power")] == [
        "http://power/small/status",
        "http://power/large/status",
    ]
    assert all(duration(machine.boot_timeout) for machine in listed)


class Lab:
    """Machines in an embedded cluster."""

    def __init__(self, *machines, **options):
        self.cluster = World()
        self.power = PowerWorld(machines, EmbeddedNodes(self.cluster.store, **options))

    async def __aenter__(self):
        await self.cluster.__aenter__()
        return self

    async def __aexit__(self, *_):
        self.power.stop()
        await self.cluster.__aexit__()

    def node(self, name):
        return self.cluster.store.find(kinds.NODE_KIND, None, name)

    def ready(self, name):
        return self.cluster.condition(self.node(name), "Ready")["status"]

    def gpus(self, name):
        return self.node(name)["status"]["allocatable"]["nvidia.com/gpu"]


async def test_a_machine_becomes_a_node_and_its_gpus_follow():
    async with Lab(LARGE) as lab:
        lab.power.power_on_by_hand("large")
        await asyncio.sleep(119)
        assert lab.node("large") is None
        await asyncio.sleep(2)
        assert (lab.ready("large"), lab.gpus("large")) == ("True", "0")
        await asyncio.sleep(30)
        assert lab.gpus("large") == "8"


async def test_powering_off_a_machine_with_pods_is_recorded():
    async with Lab(SMALL) as lab:
        lab.power.power_on_by_hand("small")
        lab.cluster.pod("work", gpus=1)
        await asyncio.sleep(65)
        assert lab.cluster.where("work") == "small"
        await call(lab.power, "small", PowerCall.OFF)
        assert [call.pods for call in lab.power.powered_off_in_use()] == [("default/work",)]


async def test_a_machine_that_is_off_keeps_its_node_and_uses_it_again():
    async with Lab(SMALL) as lab:
        for _ in range(2):
            lab.power.power_on_by_hand("small")
            await asyncio.sleep(61)
            assert lab.ready("small") == "True"
            await call(lab.power, "small", PowerCall.OFF)
            await asyncio.sleep(1)
            assert lab.ready("small") == "False"
            await asyncio.sleep(600)
            assert lab.ready("small") == "Unknown"
        lab.cluster.pod("work", gpus=2)
        lab.power.power_on_by_hand("small")
        await asyncio.sleep(65)
        assert lab.cluster.phase("work") == "Running"


async def test_the_node_of_a_machine_that_loses_power_stays_ready_until_its_heartbeat_is_missed():
    async with Lab(SMALL, abrupt=True) as lab:
        lab.power.power_on_by_hand("small")
        await asyncio.sleep(61)
        lab.power.lose_power("small")
        await asyncio.sleep(30)
        assert lab.ready("small") == "True"
        await asyncio.sleep(30)
        assert lab.ready("small") == "Unknown"


async def test_a_node_can_be_deleted_with_its_machine():
    async with Lab(SMALL, keep=False) as lab:
        lab.power.power_on_by_hand("small")
        await asyncio.sleep(61)
        await call(lab.power, "small", PowerCall.OFF)
        assert lab.node("small") is None
