"""Two replicas on one control plane, which has seen who did what: one acts at a time, and soon after it no longer can,
the other.

Time is the API server's, from its audit log; the processes share the machine and so its clock.
"""

import asyncio
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from itertools import groupby

import pytest

from forebay.kube.lease import Terms
from tests.cluster import audit
from tests.cluster.operators import until
from tests.cluster.proxy import Proxy
from tests.cluster.starvation import Starvation
from tests.cluster.worlds import world

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]

#: As it runs for users: there is no setting for these.
TERMS = Terms()
TAKEOVER = TERMS.duration + 2


class Pair:
    """`a` leads, `b` stands by, and users make pools all the time: reasons to act."""

    def __init__(self, world, a, b) -> None:
        self.world = world
        self.a, self.b = a, b
        self.uids: dict[str, str] = {}
        #: When `b` took the lease.
        self.claimed = 0.0
        self.making: asyncio.Task[None] | None = None
        self._enough = False

    async def users(self) -> None:
        while not self._enough:
            name = f"pool-{len(self.uids)}"
            self.uids[name] = await self.world.create_pool(name)
            await asyncio.sleep(0.2)

    def requests(self, *who) -> list[audit.Entry]:
        return audit.entries(self.world.rig.audit_log, *(each.user for each in who or (self.a, self.b)))

    def acts(self, *who) -> list[audit.Entry]:
        return [each for each in self.requests(*who) if each.is_act]

    async def looks(self, who) -> None:
        """Only when it has seen the lease does it wait one duration, and not one from its own start."""

        async def looked() -> bool:
            return any(each.resource == "leases" for each in self.requests(who))

        await until(looked, f"{who.user} looks at the lease")

    async def renews(self, who) -> None:
        """Returns just after it has: nobody waits longer for the end of a lease than from here."""
        before = sum(each.is_claim for each in self.requests(who))

        async def renewed() -> bool:
            return sum(each.is_claim for each in self.requests(who)) > before

        await until(renewed, f"{who.user} renews the lease")

    async def acts_on_the_newest(self, who) -> None:
        """What was made after this call is told by `who`."""
        known = len(self.uids)

        async def acted() -> bool:
            newer = set(list(self.uids)[known:])
            return any(act.name in newer for act in self.acts(who))

        await until(acted, f"{who.user} acts")

    async def succeeded(self, since: float) -> None:
        """`b` has taken over, in time, and nothing of `a` came between."""
        processes = [part.pid for part in self.world.rig._processes.values()]
        starvation = Starvation(self.b.pid, *processes)
        await self.acts_on_the_newest(self.b)
        starved = starvation.seconds()

        first = self.acts(self.b)[0].began
        self.claimed = claimed = next(each.began for each in self.requests(self.b) if each.is_claim)
        last = self.acts(self.a)[-1].ended
        sys.stderr.write(
            f"takeover: act {first - since:.2f} s, lease {claimed - since:.2f} s after the fault "
            f"(of {TAKEOVER:g} s, and {starved:.2f} s in the queue for a processor)\n"
        )
        assert last < claimed <= first
        assert first - since <= TAKEOVER + starved
        # The lease was honoured: from its holder's last sign of life to its end.
        renewed = [each.began for each in self.requests(self.a) if each.is_claim][-1]
        assert claimed - renewed >= TERMS.duration

    async def everyone_was_told_once(self, *reigns) -> None:
        """One leader after the other, and no pool forgotten or told by two."""
        self._enough = True
        await self.making
        for name, uid in self.uids.items():
            await self.world.told(name, uid)

        def broken_off() -> set[str]:
            return {each.name for each in self.requests() if each.is_broken_off}

        async def logged() -> bool:
            return {act.name for act in self.acts()} | broken_off() >= self.uids.keys()

        await until(logged, "every act is in the audit log")
        acts = self.acts()
        assert [user for user, _ in groupby(act.user for act in acts)] == [each.user for each in reigns]
        # A leader that goes may break off its last word, which the server took. Nobody then has to say it again.
        # It may add how many offers there are, when its provider has answered.
        told = Counter(act.name for act in acts)
        assert max(told.values()) <= 2
        assert len({(act.name, act.user) for act in acts}) == len(told)
        assert self.uids.keys() - told.keys() <= broken_off()
        assert not [each for each in self.requests() if each.refused]


@asynccontextmanager
async def pair(rig, port=None):
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(world(rig))
        await made.create_class()
        a = await stack.enter_async_context(made.leading("a", port))
        b = await stack.enter_async_context(made.operator("b"))
        await until(b.is_ready, "b is ready")
        both = Pair(made, a, b)
        await both.looks(b)
        both.making = asyncio.create_task(both.users())
        try:
            await both.acts_on_the_newest(a)
            await both.renews(a)
            yield both
        finally:
            both.making.cancel()
            await asyncio.wait({both.making})


async def stands_by_again(operator) -> dict:
    """The log line with which it stopped."""

    async def told() -> list[dict]:
        assert operator.pid
        return operator.said("leadership lost")

    await until(told, f"{operator.user} stands by")
    return operator.said("stopped leading")[0]


async def test_the_leader_is_killed(own_rig):
    async with pair(own_rig) as both:
        killed = both.a.kill()

        await both.succeeded(since=killed)
        await both.everyone_was_told_once(both.a, both.b)


async def test_the_leader_is_paused_and_wakes_up_in_a_world_that_has_moved_on(own_rig):
    async with pair(own_rig) as both:
        paused = both.a.pause()
        await both.succeeded(since=paused)

        both.a.resume()
        await stands_by_again(both.a)
        await both.acts_on_the_newest(both.b)
        # It is none the worse for it, and leads when it is its turn.
        await both.b.leave()
        await both.acts_on_the_newest(both.a)
        await both.everyone_was_told_once(both.a, both.b, both.a)
        await both.a.leave()


async def test_the_leader_alone_is_cut_off(own_rig):
    async with Proxy(int(own_rig.url.rpartition(":")[2])) as proxy, pair(own_rig, proxy.port) as both:
        proxy.hold()
        held = time.time()
        await both.succeeded(since=held)
        assert "the Lease cannot be read or renewed" in await both.a.why_not_ready()
        # It stopped by its own clock, before anybody could take over.
        stopped = (await stands_by_again(both.a))["timestamp"]
        assert datetime.fromisoformat(stopped).timestamp() < both.claimed

        # Now arrives what was under way: too late to do anything.
        proxy.release()
        await until(both.a.is_ready, "a is ready again")
        await both.acts_on_the_newest(both.b)
        await both.b.leave()
        await both.acts_on_the_newest(both.a)
        await both.everyone_was_told_once(both.a, both.b, both.a)
        await both.a.leave()
