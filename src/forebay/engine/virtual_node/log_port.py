"""The port of the virtual node while this process leads: its certificate, its authority, and its address."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, NoReturn, Protocol

import structlog

from forebay.api.names import VIRTUAL_NODE
from forebay.engine.virtual_node.port_access import PortAccess
from forebay.engine.virtual_node.remote_logs import RemoteLogs
from forebay.engine.virtual_node.serving_certificate import ServingCertificate, serving_certificate
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.net.tls import BadTlsOptions
from forebay.net.transport import TransportError
from forebay.offload.virtual_node import LogEndpoint

log = structlog.get_logger(__name__)

#: Seconds before the next attempt to open the port.
_RETRY: Final = 30.0
#: Seconds between two looks at the authority of clients.
_LOOK: Final = 300.0


class PortServer(Protocol):
    """Opens the port; made where the HTTP pages are known (`wiring`)."""

    #: The address at which the API server reaches this process; None: there is none.
    @property
    def address(self) -> str | None: ...

    def __call__(
        self, logs: RemoteLogs, access: PortAccess, context: ssl.SSLContext
    ) -> AbstractAsyncContextManager[int]:
        """Serves until the block ends. Yields the port."""
        ...


class LogPort:
    """Keeps the port open. `endpoint` is where the API server finds it, None while it is closed."""

    def __init__(
        self,
        client: Client,
        logs: RemoteLogs,
        server: PortServer,
        clock: Callable[[], datetime],
        opened: Callable[[], None],
    ) -> None:
        self._client = client
        self._logs = logs
        self._server = server
        self._clock = clock
        self._opened = opened
        self._access = PortAccess(client)
        self._certificate: ServingCertificate | None = None
        self._endpoint: LogEndpoint | None = None

    def endpoint(self) -> LogEndpoint | None:
        return self._endpoint

    async def run(self) -> NoReturn:
        while True:
            try:
                await self._serve()
            except (KubeError, TransportError, BadTlsOptions, OSError) as error:
                log.warning("logs of remote pods not served", node=VIRTUAL_NODE, error=str(error))
                await asyncio.sleep(_RETRY)
            finally:
                self._endpoint = None

    async def _serve(self) -> None:
        """Serves until the authority of clients has changed, or the certificate must be replaced."""
        address = self._server.address
        if address is None:
            raise OSError("no address of this machine is known by which the API server could reach it")
        authority = await self._access.client_authority()
        if authority is None:
            raise BadTlsOptions("the API server accepts no client certificates (no client-ca-file)")
        if self._certificate is None or self._is_old(self._certificate):
            self._certificate = await serving_certificate(self._client, address, self._clock())
        async with self._server(self._logs, self._access, self._certificate.context(authority)) as port:
            self._endpoint = LogEndpoint(address=address, port=port)
            log.info("logs of remote pods served", node=VIRTUAL_NODE, address=address, port=port)
            self._opened()
            while True:
                await asyncio.sleep(_LOOK)
                if self._is_old(self._certificate):
                    return
                try:
                    if await self._access.client_authority() != authority:
                        return
                except (KubeError, TransportError) as error:
                    log.warning("authority of clients not read", error=str(error))

    def _is_old(self, certificate: ServingCertificate) -> bool:
        return self._clock() > certificate.renew_at
