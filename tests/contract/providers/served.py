"""A simulated world behind HTTP, in process or on a socket, and the provider that calls it."""

from contextlib import asynccontextmanager

from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.net.serve import serving
from tests.net.faults import Faulty, Reset, When


class Served:
    """Base of the harnesses. Subclasses set `world`, and build the provider."""

    #: Where the world is in process.
    base = "http://cloud"
    #: Whether listings tell when instances ended that the provider was asked to terminate.
    tells_ends = False
    #: Operation of the world, beside its listing, that tells it.
    end_operation = None
    #: Whether machines have disks that may outlive them.
    has_disks = False

    def __init__(self, *, sockets):
        self.sockets = sockets
        self.redactor = Redactor()
        #: Faults between the provider and the world.
        self.plan = When(lambda _: False, Reset())

    def build(self, base, make_transport):
        """The provider of the world at `base`."""
        raise NotImplementedError

    @asynccontextmanager
    async def open(self):
        if self.sockets:
            async with serving(self.world.answer) as base, self._provider(base, AiohttpTransport()):
                yield self
        else:
            async with self._provider(self.base, InProcess(self.world.answer)):
                yield self
        self.world.stop()

    @asynccontextmanager
    async def _provider(self, base, wire):
        self.provider = self.build(base, lambda _tls: Faulty(wire, self._faults))
        try:
            yield
        finally:
            await self.provider.close()

    def _faults(self, request):
        return self.plan(request)
