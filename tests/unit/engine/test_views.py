"""Whether what the watches show may be acted on, and why not."""

import asyncio
from contextlib import asynccontextmanager

from forebay.embedded.api.kinds import CRD_KIND
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.views import watching
from forebay.install.crds import custom_resource_definitions
from forebay.net.clock import now
from forebay.net.in_process import InProcess
from forebay.net.transport import Response
from tests.net.faults import Answer, Faulty


class Server:
    """An API server that answers, refuses everything, or keeps watches open and says nothing."""

    def __init__(self, cluster):
        self._inner = Faulty(InProcess(cluster.handler), lambda _: Answer(503) if self.refuses else None)
        self.refuses = self.silent = False

    async def request(self, request):
        answer = await self._inner.request(request)
        if not (self.silent and "watch=" in request.url):
            return answer
        return Response(answer.status, answer.headers, self._nothing(), on_close=answer.close)

    async def _nothing(self):
        await asyncio.sleep(10**6)
        yield b""

    async def close(self):
        await self._inner.close()


@asynccontextmanager
async def watched():
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        for definition in custom_resource_definitions():
            cluster.store.create(CRD_KIND, definition)
        server = Server(cluster)
        async with watching(server, "http://embedded", clock=now) as views:
            yield server, views


async def test_views_are_acted_on_once_every_kind_is_listed():
    async with watched() as (_, views):
        assert views.error() == "nodes are not listed yet: listing"
        await asyncio.sleep(10)
        assert views.error() is None


async def test_views_are_not_acted_on_when_the_server_refuses_or_is_silent_for_minutes():
    async with watched() as (server, views):
        await asyncio.sleep(10)
        server.silent = True
        await asyncio.sleep(120)
        assert views.error() is None, "nothing may have happened"
        await asyncio.sleep(1200)
        assert views.error().endswith(" s old: the server sent nothing for too long")
        server.silent, server.refuses = False, True
        await asyncio.sleep(600)
        assert "503 ServiceUnavailable" in views.error()
        server.refuses = False
        await asyncio.sleep(600)
        assert views.error() is None


async def test_a_process_that_was_suspended_knows_that_its_views_are_old_before_it_has_tried_to_read():
    async with watched() as (_, views):
        await asyncio.sleep(10)
        asyncio.get_running_loop()._now += 3600
        assert views.error().endswith(" s old: nothing received from the API server")
        await asyncio.sleep(600)
        assert views.error() is None
