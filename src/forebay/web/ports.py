"""The ports that an operator serves: health in plain HTTP, metrics and dashboard by HTTPS and for token holders."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog

from forebay.api.names import DASHBOARD_URL, METRICS_URL
from forebay.kube.client import Client
from forebay.net.serve import PUBLIC, serving
from forebay.net.server_certificate import CertificateFiles, NoCertificate, self_signed
from forebay.net.transport import Handler
from forebay.web.access import TokenAccess, for_this_machine, for_token_holders, is_loopback
from forebay.web.pages import pages

log = structlog.get_logger(__name__)

#: Seconds between two looks at the files of the certificate.
_RELOAD_INTERVAL: Final = 60.0


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Where what is served. None: not at all."""

    health: Address
    metrics: Address | None = None
    #: None: unless the address is a loopback one.
    metrics_secure: bool | None = None
    web: Address | None = None
    #: Certificate and key; None: one that is signed by itself.
    certificate: tuple[Path, Path] | None = None

    @property
    def secures_metrics(self) -> bool:
        if self.metrics is None:
            return False
        return not self.metrics.loopback if self.metrics_secure is None else self.metrics_secure

    @property
    def secures_web(self) -> bool:
        return self.web is not None and not self.web.loopback

    @property
    def asks_for_tokens(self) -> bool:
        return self.secures_metrics or self.secures_web

    @property
    def metrics_with_health(self) -> bool:
        return self.metrics == self.health and not self.secures_metrics


@asynccontextmanager
async def serving_ports(
    ports: Ports,
    *,
    alive: Callable[[], str | None],
    ready: Callable[[], str | None],
    metrics: Callable[[], tuple[bytes, str]],
    dashboard: Handler,
    review_client: Callable[[], Client],
) -> AsyncIterator[None]:
    """Serves until the block ends. `review_client` makes the client that asks the API server about tokens."""
    async with AsyncExitStack() as stack:
        client, context = None, None
        if ports.asks_for_tokens:
            client = review_client()
            stack.push_async_callback(client.close)
            context = await stack.enter_async_context(_tls(ports.certificate))

        async def serve(handler: Handler, address: Address, tls: ssl.SSLContext | None) -> str:
            made = serving(handler, host=address.host, port=address.port, context=tls, limits=PUBLIC)
            return await stack.enter_async_context(made)

        shared = metrics if ports.metrics_with_health else None
        await serve(pages(alive=alive, ready=ready, metrics=shared), ports.health, None)
        if ports.metrics is not None and shared is None:
            handler = pages(metrics=metrics)
            if ports.secures_metrics:
                assert client is not None
                handler = for_token_holders(handler, TokenAccess(client, METRICS_URL))
            url = await serve(handler, ports.metrics, context if ports.secures_metrics else None)
            log.info("metrics served", address=url)
        if ports.web is not None:
            if ports.secures_web:
                assert client is not None
                handler = for_token_holders(dashboard, TokenAccess(client, DASHBOARD_URL), basic=True)
            else:
                handler = for_this_machine(dashboard)
            url = await serve(handler, ports.web, context if ports.secures_web else None)
            log.info("dashboard served", address=url)
        yield


@asynccontextmanager
async def _tls(files: tuple[Path, Path] | None) -> AsyncIterator[ssl.SSLContext]:
    if files is None:
        yield self_signed("forebay", ("localhost", "127.0.0.1", "forebay")).context
        return
    certificate = CertificateFiles(*files)
    reloads = asyncio.create_task(_reload(certificate), name="reload of the certificate")
    try:
        yield certificate.context
    finally:
        reloads.cancel()
        await asyncio.wait({reloads})


async def _reload(certificate: CertificateFiles) -> None:
    while True:
        await asyncio.sleep(_RELOAD_INTERVAL)
        try:
            if certificate.reload():
                log.info("certificate read again")
        except NoCertificate as error:
            # The old one serves on: whoever renews it may be in the middle of that.
            log.warning("certificate not read", error=str(error))
