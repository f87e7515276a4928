"""What the watches bring late: what is decided meanwhile must hurt nobody."""

import asyncio

from forebay.net.transport import Response
from forebay.simulate.power import Powered
from forebay.simulate.power_faults import Boot
from tests.engine.power_world import lab, operator

ONLY = Powered(name="only", gpus=1, boot=20)


class Late:
    """Holds back what watches of nodes and pods bring, while `held`."""

    def __init__(self):
        self.held = False

    def __call__(self, inner):
        return _Late(inner, self)


class _Late:
    def __init__(self, inner, rule):
        self._inner, self._rule = inner, rule

    async def request(self, request):
        answer = await self._inner.request(request)
        path, _, query = request.url.partition("?")
        if "watch=" not in query or not path.endswith(("/nodes", "/pods")):
            return answer
        return Response(answer.status, answer.headers, self._held(answer), on_close=answer.close)

    async def _held(self, answer):
        async for chunk in answer.chunks():
            while self._rule.held:  # noqa: ASYNC110 (virtual time)
                await asyncio.sleep(0.5)
            yield chunk

    async def close(self):
        await self._inner.close()


async def test_a_machine_that_came_up_in_the_last_moment_is_not_switched_off_under_its_pods():
    watches = Late()
    async with lab(ONLY) as world:
        world.power.script_boots("only", Boot(after=55))
        async with operator(world, machines=world.configured(every={"boot_timeout": "1m"}), wrap=watches):
            world.pod("train", 1, runs="1h")
            await asyncio.sleep(50)
            watches.held = True
            await asyncio.sleep(40)
            assert world.phase("train") == "Running", "which the operator cannot know: to it the node never came"
            assert world.state("only") == "Terminating"
            assert world.asked("stop") == []
            watches.held = False
            await asyncio.sleep(120)
            assert world.power.powered_off_in_use() == ()
            assert world.asked("stop") == ["only"], "its pods were asked to leave first"
