"""An API server that refuses what the operator writes: it is asked again, and not stormed."""

import asyncio
from collections import Counter

import pytest

from forebay.embedded.api import kinds
from forebay.net.transport import Headers, Response
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

ONLY = Powered(name="only", gpus=1, boot=10)


class Refusing:
    """Answers writes to `path` with `status`, while `at_work`."""

    def __init__(self, path, status):
        self.path, self.status = path, status
        self.at_work = True
        self.refused = Counter()

    def __call__(self, inner):
        return _Refusing(inner, self)


class _Refusing:
    def __init__(self, inner, rule):
        self._inner, self._rule = inner, rule

    async def request(self, request):
        rule = self._rule
        if rule.at_work and request.method != "GET" and rule.path in request.url:
            rule.refused[request.method] += 1
            body = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":%d}' % rule.status
            return Response(rule.status, Headers({"Content-Type": "application/json"}), body)
        return await self._inner.request(request)

    async def close(self):
        await self._inner.close()


@pytest.mark.parametrize("status", [403, 500, 409])
async def test_a_launch_that_cannot_be_recorded_is_tried_again_now_and_then(status):
    rule = Refusing("/gpuinstances/only/status", status)
    async with lab(ONLY) as world, operator(world, wrap=rule):
        world.pod("train", 1, runs="30s")
        await asyncio.sleep(60)
        assert world.asked("start") == [], "nothing is asked of a machine before that is written down"
        assert sum(rule.refused.values()) <= 60
        rule.at_work = False
        await asyncio.sleep(60)
        assert world.phase("train") == "Succeeded"


async def test_a_node_that_cannot_be_labelled_is_given_back_all_the_same():
    """As where an admission policy of the cluster keeps labels as they are."""
    rule = Refusing("/nodes/only", 422)
    async with lab(ONLY) as world:
        async with operator(world, wrap=rule):
            world.pod("train", 1, runs="30s")
            await asyncio.sleep(60)
            assert world.phase("train") == "Succeeded"
            assert world.state("only") == "Draining"
        async with operator(world):
            await asyncio.sleep(60)
            assert world.power.on == frozenset()


async def test_a_pod_that_cannot_be_evicted_does_not_keep_the_others_from_leaving():
    """As where two disruption budgets are about the same pod, which the API server answers with 500."""
    wide = Powered(name="wide", gpus=2, boot=10)
    rule = Refusing("/pods/a/eviction", 500)
    async with lab(wide) as world, operator(world, wrap=rule):
        world.pod("a", 1, runs=None)
        world.pod("b", 1, runs=None)
        await asyncio.sleep(30)
        world.give_back("wide")
        await asyncio.sleep(60)
        left = {pod["metadata"]["name"] for pod in world.store.list(kinds.POD_KIND)}
        assert left == {"a"}
        assert world.asked("stop") == []
        blocked = "Pod default/a could not be evicted from node wide"
        assert any(blocked in said for said in world.told("wide", "EvictionBlocked"))
        assert sum(rule.refused.values()) <= 12
