"""The operator of `forebay run`, with its connections, ports and signals."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import structlog

from forebay.api.kinds import KINDS
from forebay.api.names import API_VERSION
from forebay.engine.operator import Operator
from forebay.engine.shadow import ShadowOperator
from forebay.engine.virtual_node.port_access import PortAccess
from forebay.engine.virtual_node.remote_logs import RemoteLogs
from forebay.kube.client import Client
from forebay.kube.connection import Rate, connected_client, election_client
from forebay.kube.errors import KubeError
from forebay.kube.lease import Terms, unique_identity
from forebay.net import clock
from forebay.net.local_address import address_towards
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import Transport, TransportError
from forebay.providers.registry import EnvironmentConfig, read_environment
from forebay.reporting.status import missing_kinds_text
from forebay.settings import Settings, all_settings
from forebay.web.kubelet_port import kubelet_port
from forebay.wiring.cluster import cluster_config, cluster_problems
from forebay.wiring.run_settings import (
    check_settings,
    dry_run_time,
    listen_address,
    ports_of,
    rules_of,
    timing_of,
    unknown_variables,
)
from forebay.wiring.signals import handle_signals
from forebay.wiring.telemetry import start_telemetry

log = structlog.get_logger(__name__)

#: Seconds for the question which kinds are installed.
_KINDS_TIMEOUT = 5.0
#: Startup taints and tolerations must not wait behind a burst of other writes.
_STARTUP_RATE = Rate(qps=500, burst=500)
#: Reviews of tokens, which whoever can reach a port can cause.
_REVIEW_RATE = Rate(qps=10, burst=20)


def _log_configuration(settings: Settings, configured: EnvironmentConfig) -> None:
    """Says at start what was configured. GPUNodeClasses follow when this replica leads."""
    given = {each.name: getattr(settings, each.name) for each in all_settings() if each.command == "run"}
    log.info("settings", **{name: value for name, value in given.items() if value is not None})
    for machine in (machine for entry in configured.entries for machine in entry.machines):
        log.info("machine configured", machine=machine.name, gpus=machine.gpu_count, source="environment")


async def _log_missing_kinds(client: Client) -> None:
    """Says at start which of our kinds are not installed. The informers go on trying: installing them is enough."""
    # Where the API server does not answer, the informers say why, and nothing waits for it here.
    with suppress(KubeError, TransportError, TimeoutError):
        async with asyncio.timeout(_KINDS_TIMEOUT):
            served = await client.served(API_VERSION)
        missing = [kind.kind for kind in KINDS if kind.plural not in served]
        if missing:
            log.error("kinds not installed", error=missing_kinds_text(missing))


async def _log_cluster_problems(client: Client, *, budgets: bool) -> None:
    """Says at start whether the version is supported, and whether new pods of used-up budgets are held."""
    with suppress(KubeError, TransportError, TimeoutError):
        async with asyncio.timeout(_KINDS_TIMEOUT):
            version = await client.version()
            log.info("cluster", version=version.git_version)
            for each in await cluster_problems(client, version, budgets=budgets):
                log.warning("cluster lacks something", error=each)


class _KubeletServer:
    """Serves the port of the virtual node. Its address is the one that it listens on, or the one towards the API
    server.
    """

    def __init__(self, listen: tuple[str, int], server: str) -> None:
        self._host, self._port = listen
        self._server = server

    @property
    def address(self) -> str | None:
        try:
            any_address = ipaddress.ip_address(self._host).is_unspecified
        except ValueError:
            any_address = True
        return address_towards(self._server) if any_address else self._host

    @asynccontextmanager
    async def __call__(self, logs: RemoteLogs, access: PortAccess, context: ssl.SSLContext) -> AsyncIterator[int]:
        from forebay.net.serve import ServerLimits, serving  # noqa: PLC0415 (brings aiohttp's server)

        handler = kubelet_port(
            open_log=logs.open, refusal=access.refusal, unsupported=logs.unsupported, clock=clock.now
        )
        limits = ServerLimits(body=0, connections=1024, header_timeout=10.0)
        async with serving(handler, host=self._host, port=self._port, context=context, limits=limits) as base:
            yield int(base.rpartition(":")[2])


async def run_operator(
    settings: Settings,
    environment: Mapping[str, str],
    redactor: Redactor,
    terms: Terms = Terms(),  # noqa: B008 (immutable)
    make_transport: Callable[[TlsOptions | None], Transport] | None = None,
) -> None:
    """Runs the operator with its connections and HTTP pages until it is cancelled.

    `make_transport`: how providers and tailnets are reached. Default: over the network.
    """
    from forebay.engine.budget_metrics import BudgetCollector  # noqa: PLC0415 (brings prometheus_client)
    from forebay.engine.metrics import OperatorCollector  # noqa: PLC0415 (brings prometheus_client)
    from forebay.kube.metrics import InformerCollector  # noqa: PLC0415 (brings prometheus_client)
    from forebay.net.aiohttp_transport import AiohttpTransport  # noqa: PLC0415 (brings aiohttp)
    from forebay.web.dashboard import Dashboard  # noqa: PLC0415
    from forebay.web.metrics import metrics_page  # noqa: PLC0415
    from forebay.web.ports import serving_ports  # noqa: PLC0415 (brings aiohttp's server)

    check_settings(settings)
    ports = ports_of(settings)
    log_listen = None if settings.log_server_address == "0" else listen_address(settings.log_server_address)
    configured = read_environment(environment)
    for problem in configured.problems:
        log.error("machine variable invalid", error=problem)
    for problem in unknown_variables(environment):
        log.warning("variable ignored", error=problem)
    config = cluster_config(settings, environment)
    namespace = settings.namespace or config.namespace
    identity = unique_identity()
    async with AsyncExitStack() as stack:
        telemetry = start_telemetry(environment, redactor)
        stack.push_async_callback(asyncio.to_thread, telemetry.end)
        client, startup = (
            Client(telemetry.to_kubernetes(connected_client(config, redactor, rate).transport), config.server)
            for rate in (Rate(), _STARTUP_RATE)
        )
        election = election_client(config, redactor, terms)
        for each in (client, startup, election):
            stack.push_async_callback(each.close)
        assumed = dry_run_time(settings)
        make = Operator if assumed is None else partial(ShadowOperator, run_time=assumed)
        open_transport = make_transport or (lambda tls: AiohttpTransport(tls=tls or TlsOptions()))
        operator = make(
            client,
            election,
            config.server,
            namespace=namespace,
            identity=identity,
            clock=clock.now,
            make_transport=lambda tls: telemetry.to_providers(open_transport(tls)),
            traced=telemetry.tick,
            redactor=redactor,
            environment=configured,
            timing=timing_of(settings),
            rules=rules_of(settings),
            terms=terms,
            startup_client=startup,
            port_server=None if log_listen is None else _KubeletServer(log_listen, config.server),
        )
        await stack.enter_async_context(operator)
        metrics = metrics_page(
            InformerCollector(operator.informers),
            OperatorCollector(
                lambda: operator.views, operator.elector.still_leader, operator.counts, dry_run=assumed is not None
            ),
            BudgetCollector(lambda: operator.budget_accounting, clock.now),
        )
        await stack.enter_async_context(
            serving_ports(
                ports,
                alive=operator.fatal_error,
                ready=operator.error,
                metrics=metrics,
                dashboard=Dashboard(operator.observation, redactor).handle,
                review_client=lambda: connected_client(config, redactor, _REVIEW_RATE),
            )
        )
        handle_signals(operator, redactor, settings.log_level or "info")
        log.info("operator started", server=config.server, source=config.source, namespace=namespace, identity=identity)
        _log_configuration(settings, configured)
        await _log_missing_kinds(client)
        await _log_cluster_problems(client, budgets=settings.budgets == "on")
        try:
            await operator.run()
        finally:
            log.info("operator stopped", namespace=namespace, identity=identity)
