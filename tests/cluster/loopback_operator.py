"""`forebay run`, but for the names of hosts: those in LOOPBACK_HOSTS (JSON, by name) are servers on this machine.

So what users apply is applied as it is, with the public addresses of clouds. No other host is called.
"""

import asyncio
import json
import os
from urllib.parse import urlsplit

from msgspec.structs import replace

from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.tls import TlsOptions
from forebay.net.transport import NeverSent, Request, Response
from forebay.settings import read_settings
from forebay.wiring.logs import configure_logging
from forebay.wiring.operator import run_operator


class LoopbackHosts:
    """The transport to providers and tailnets."""

    def __init__(self, hosts: dict[str, str], tls: TlsOptions | None) -> None:
        self._hosts = hosts
        self._inner = AiohttpTransport(tls=tls or TlsOptions())

    async def request(self, request: Request) -> Response:
        parts = urlsplit(request.url)
        base = self._hosts.get(parts.hostname or "")
        if base is None:
            raise NeverSent(f"{request}: nobody plays {parts.hostname} here", request, lasting=True)
        return await self._inner.request(replace(request, url=base + request.url.partition(parts.netloc)[2]))

    async def close(self) -> None:
        await self._inner.close()


if __name__ == "__main__":
    hosts = json.loads(os.environ["LOOPBACK_HOSTS"])
    settings = read_settings({}, os.environ)
    redactor = configure_logging(settings, level="info")
    asyncio.run(run_operator(settings, os.environ, redactor, make_transport=lambda tls: LoopbackHosts(hosts, tls)))
