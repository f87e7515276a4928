"""The operator while control plane and network fail: it lives, tells the truth, and afterwards has missed nothing."""

import asyncio
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from forebay.engine.apply.records import MAX_CONCURRENT
from tests.cluster import audit
from tests.cluster.operators import until
from tests.cluster.proxy import Proxy
from tests.cluster.worlds import PATHS, world
from tests.rig import Part

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]


#: Pools made while it hurts: afterwards there is something to say about each of them, all at once.
CROWD = 60


def polite(seconds: float) -> int:
    """Connections that an operator may try in an outage so long.

    An informer waits 0.8 s and twice as long each time: the sixth try is 25 s after the first. The lease is asked for
    every two seconds at most, and what a leader could not write it tries as often for as long as it leads.
    """
    return len(PATHS) * 6 + int(seconds) + MAX_CONCURRENT


class FaultCase:
    """Objects of before, changes while it hurts, and what must be true afterwards."""

    def __init__(self, world, operator, proxy) -> None:
        self.world = world
        self.operator = operator
        self.proxy = proxy

    async def begin(self) -> None:
        world = self.world
        await world.create_class()
        uids = {name: await world.create_pool(name) for name in ("kept", "replaced", "gone")}
        await world.create_node("gone")
        await world.create_pod("gone")
        for name, uid in uids.items():
            await world.told(name, uid)
        self.uids = uids
        self.pid = self.operator.pid
        self.began = time.time()
        self.opened = self.proxy.opened

    async def change(self) -> None:
        """Everything that a view can miss: what came, what went, and what is another by the same name."""
        world = self.world
        await world.delete_pool("gone")
        await world.delete_pool("replaced")
        self.uids = {
            "kept": self.uids["kept"],
            "replaced": await world.create_pool("replaced"),
            "fresh": await world.create_pool("fresh"),
        }
        await world.delete_node("gone")
        await world.create_node("fresh")
        await world.delete_pod("gone")
        for name in ("fresh", "another"):
            await world.create_pod(name)
        for number in range(CROWD):
            self.uids[f"crowd-{number}"] = await world.create_pool(f"crowd-{number}")

    async def unready(self, because: str, within: float = 60.0) -> None:
        why = await until(self.operator.why_not_ready, "it says that it is not ready", within)
        assert because in why

    async def converges(self, since: float) -> None:
        for name, uid in self.uids.items():
            await self.world.told(name, uid)

        differing: dict[str, tuple[int | None, int]] = {}

        async def same() -> bool:
            views, server = await self.operator.objects(), await self.world.counts()
            differing.clear()
            differing.update(
                {kind: (views.get(kind), many) for kind, many in server.items() if views.get(kind) != many}
            )
            return views == server

        try:
            await until(same, "the views hold what the server has")
        except AssertionError as error:
            error.add_note(f"in the views, and at the server: {differing}")
            raise
        await until(self.operator.is_ready, "it is ready again")
        took = time.time() - since
        assert self.operator.pid == self.pid
        # A server that has only just started refuses what it has granted, until it has read the roles.
        assert not [each for each in self._requests() if each.refused and each.began > since]
        seconds = time.time() - self.began
        connections, requests = self.proxy.opened - self.opened, len(self._requests())
        sys.stderr.write(
            f"converged in {took:.1f} s; {connections} connections and {requests} requests in {seconds:.0f} s\n"
        )
        assert connections <= polite(seconds)
        # A status and an event for each pool, and what the outage cost.
        by_kind = Counter(f"{each.verb} {each.resource} {each.code}" for each in self._requests())
        assert requests <= 2 * (len(self.uids) + 2) + polite(seconds), by_kind.most_common()
        await self.operator.leave()

    def _requests(self) -> list[audit.Entry]:
        return audit.entries(self.world.rig.audit_log, self.operator.user)


@asynccontextmanager
async def story(rig):
    async with (
        world(rig) as made,
        Proxy(int(rig.url.rpartition(":")[2])) as proxy,
        made.leading("operator", proxy.port) as operator,
    ):
        scene = FaultCase(made, operator, proxy)
        await scene.begin()
        yield scene


async def test_the_api_server_is_killed_and_comes_back(own_rig):
    async with story(own_rig) as scene:
        own_rig.stop_part(Part.API_SERVER, kill=True)
        await scene.unready("the Lease cannot be read or renewed")

        own_rig.start_part(Part.API_SERVER, ready=False)
        await asyncio.to_thread(own_rig._await_ready, Part.API_SERVER)
        back = time.time()
        # The operator is still waiting for its next try: it sees none of this happen.
        await scene.change()

        await scene.converges(back)


async def test_etcd_stands_still_for_twenty_seconds(own_rig):
    async with story(own_rig) as scene:
        with own_rig.paused(Part.ETCD):
            stopped = time.monotonic()
            # The first of the requests waits at the server for as long as it lasts.
            changing = asyncio.create_task(scene.change())
            await scene.unready("the Lease cannot be read or renewed", within=20)
            await asyncio.sleep(stopped + 20 - time.monotonic())
            assert not changing.done()
        back = time.time()
        await changing

        await scene.converges(back)


async def test_the_network_is_slow_and_then_resets_everything_again_and_again(own_rig):
    async with story(own_rig) as scene:
        scene.proxy.delay = 0.4
        await scene.world.delete_pool("kept")
        scene.uids["kept"] = await scene.world.create_pool("kept")
        await scene.world.told("kept", scene.uids["kept"])
        assert await scene.operator.is_ready()

        for _ in range(3):
            scene.proxy.cut()
            await asyncio.sleep(0.5)
        scene.proxy.refuse()
        await scene.change()
        await scene.unready("the Lease cannot be read or renewed")
        scene.proxy.delay = 0.0
        scene.proxy.release()

        await scene.converges(time.time())


@pytest.mark.parametrize("afterwards", ["all of it arrives", "nobody knows the connections"])
async def test_the_network_is_a_black_hole(own_rig, afterwards):
    async with story(own_rig) as scene:
        scene.proxy.hold()
        await scene.change()
        await scene.unready("the Lease cannot be read or renewed")
        if afterwards == "nobody knows the connections":
            scene.proxy.cut()
        scene.proxy.release()

        await scene.converges(time.time())


async def test_the_operator_starts_before_its_server_can_be_reached(own_rig):
    async with world(own_rig) as made, Proxy(int(own_rig.url.rpartition(":")[2])) as proxy:
        uid = await made.create_pool("early")
        proxy.refuse()
        async with made.operator("operator", proxy.port) as operator:
            await operator.identity()
            assert "are not listed yet" in await operator.why_not_ready()

            proxy.release()

            await made.told("early", uid, "NodeClassNotFound")
            await until(operator.is_ready, "it is ready")
            await operator.leave()


async def test_the_operator_is_told_to_end_while_nobody_can_be_reached(own_rig):
    async with story(own_rig) as scene:
        scene.proxy.hold()
        asked = time.monotonic()
        await scene.operator.leave()
        took = time.monotonic() - asked
        sys.stderr.write(f"ended in {took:.1f} s\n")
        # A pod has 30 s before it is killed.
        assert took < 20
