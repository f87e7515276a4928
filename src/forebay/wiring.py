"""Assembles the rooms: the only module that knows all of them. It makes no decisions.

Each function builds one working whole from settings and the environment. Heavy modules are imported inside functions.
"""

import asyncio
import ipaddress
import itertools
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from forebay.api.kinds import KINDS
from forebay.api.names import API_VERSION, OPERATOR_NAMESPACE
from forebay.api.values import NotADuration, duration
from forebay.engine.loop import LoopTiming
from forebay.engine.operator import Operator
from forebay.engine.support_bundle import dump
from forebay.engine.virtual_node.port_access import PortAccess
from forebay.engine.virtual_node.remote_logs import RemoteLogs
from forebay.kube.admission import gate_missing
from forebay.kube.client import Client, Version
from forebay.kube.config import Config, load_config
from forebay.kube.connection import Rate, connected_client, election_client
from forebay.kube.errors import KubeError
from forebay.kube.informer import Informer
from forebay.kube.lease import Terms, unique_identity
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS, PodDecoder, pod_indexes
from forebay.kube.versions import unsupported_text
from forebay.model.nodes import Node
from forebay.model.quantities import UsdPerHour
from forebay.model.workloads import Pod
from forebay.net import clock
from forebay.net.local_address import address_towards
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import TransportError
from forebay.offload.departure import OffloadRules
from forebay.providers.registry import EnvironmentConfig, read_environment
from forebay.reconcile.snapshot import OperatorRules
from forebay.reporting.observation import Standby
from forebay.reporting.printable import printable
from forebay.reporting.status import missing_kinds_text
from forebay.settings import Settings, SettingsError, all_settings

if TYPE_CHECKING:
    from forebay.web.ports import Ports
from forebay.web.kubelet_port import kubelet_port

log = structlog.get_logger(__name__)

_MOST_DIGITS = 9
_SHORTEST_INTERVAL = timedelta(seconds=1)
_LARGEST_PORT = 65535
#: Seconds for the question which kinds are installed.
_KINDS_TIMEOUT = 5.0
#: Startup taints and tolerations must not wait behind a burst of other writes.
_STARTUP_RATE = Rate(qps=500, burst=500)
#: Reviews of tokens, which whoever can reach a port can cause.
_REVIEW_RATE = Rate(qps=10, burst=20)


def configure_logging(settings: Settings, *, level: str = "warning") -> Redactor:
    """Sends log lines to standard error, and returns the redactor that removes secrets from them.

    Code that reads a secret registers it with that redactor. `level` applies where the user has not set `log_level`.
    """
    redactor = Redactor()
    plain = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    renderers: tuple[Processor, ...] = (
        (_printable_values, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
        if plain
        else (structlog.processors.JSONRenderer(),)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redactor,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level or level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    return redactor


def _printable_values(_logger: object, _name: str, event: EventDict) -> EventDict:
    """Makes what others wrote safe on a terminal. Only for text: JSON escapes controls itself."""
    return {key: _printable_value(value) for key, value in event.items()}


def _printable_value(value: object) -> object:
    return "\n".join(printable(line) for line in value.split("\n")) if isinstance(value, str) else value


def cluster_config(settings: Settings, environment: Mapping[str, str]) -> Config:
    """Connection settings of the cluster that kubectl would use with the same options."""
    path = Path(settings.kubeconfig) if settings.kubeconfig is not None else None
    return load_config(env=environment, path=path, context=settings.context, interactive=sys.stdin.isatty())


class ClusterConnection(msgspec.Struct, frozen=True):
    """A client of a cluster, and informers for its nodes and pods."""

    client: Client
    version: Version
    nodes: Informer[Node]
    pods: Informer[Pod]


@asynccontextmanager
async def watched_cluster(config: Config, redactor: Redactor) -> AsyncIterator[ClusterConnection]:
    """A connection whose informers run for the duration of the `async with` block. They start unsynced.

    Raises where the API server does not answer at first; once it has, the informers retry forever.
    """
    client = connected_client(config, redactor)
    nodes = Informer(client.transport, config.server, NODES)
    pods = Informer(client.transport, config.server, PODS, decoder=PodDecoder(timed=()), indexes=pod_indexes())
    try:
        version = await client.version()
        async with nodes, pods:
            yield ClusterConnection(client, version, nodes, pods)
    finally:
        await client.close()


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; `:port` means every interface, as in Go."""
    host, colon, port = text.rpartition(":")
    if not colon or not _is_host(host) or not (port.isascii() and port.isdecimal() and int(port) <= _LARGEST_PORT):
        raise SettingsError(f"{text!r} is not an address to listen on; give host:port or :port")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 (a pod's probes come from outside)


def _is_host(text: str) -> bool:
    if text.startswith("[") and text.endswith("]"):
        return True
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return not set(text) & set("[]:/@ ")


def check_settings(settings: Settings) -> None:
    """Raises one `SettingsError` that lists everything that is wrong with the settings of `run`."""
    durations = ("idle_delay", "adoption_grace", "power_on_interval", "scale_down_interval", "max_pending_time")
    addresses = ("health_server_address", "metrics_bind_address", "web_address", "log_server_address")
    checks: tuple[Callable[[], object], ...] = (
        *(partial(_duration, name, getattr(settings, name)) for name in durations),
        partial(_count, "pending_job_threshold", settings.pending_job_threshold),
        partial(_price, "max_gpu_price", settings.max_gpu_price),
        partial(timing_of, settings),
        *(partial(listen_address, text) for name in addresses if (text := getattr(settings, name)) != "0"),
    )
    problems = []
    for check in checks:
        try:
            check()
        except SettingsError as error:
            problems.append(str(error))
    if problems:
        raise SettingsError("; ".join(problems))


def ports_of(settings: Settings) -> "Ports":
    """The ports that settings state. Raises `SettingsError` for an address that cannot be parsed."""
    from forebay.web.ports import Address, Ports  # noqa: PLC0415 (brings aiohttp's server)

    def address(text: str) -> Address | None:
        return None if text == "0" else Address(*listen_address(text))

    directory = settings.metrics_cert_path
    names = (settings.metrics_cert_name, settings.metrics_cert_key)
    return Ports(
        health=Address(*listen_address(settings.health_server_address)),
        metrics=address(settings.metrics_bind_address),
        metrics_secure={"auto": None, "true": True, "false": False}[settings.metrics_secure],
        web=address(settings.web_address),
        certificate=None if directory is None else (Path(directory) / names[0], Path(directory) / names[1]),
    )


def rules_of(settings: Settings) -> OperatorRules:
    """The rules that settings state. Raises `SettingsError` for a value that cannot be parsed."""
    resources = (settings.gpu_resources or "").replace(",", " ").split()
    return OperatorRules(
        namespace=settings.namespace or OPERATOR_NAMESPACE,
        gpu_resources=frozenset(resources) or None,
        budgets=settings.budgets == "on",
        idle_delay=_duration("idle_delay", settings.idle_delay),
        adoption_grace=_duration("adoption_grace", settings.adoption_grace),
        power_on_interval=_duration("power_on_interval", settings.power_on_interval),
        scale_down_interval=_duration("scale_down_interval", settings.scale_down_interval),
        offload=OffloadRules(
            max_pending=_duration("max_pending_time", settings.max_pending_time),
            pending_threshold=_count("pending_job_threshold", settings.pending_job_threshold),
            max_gpu_price=_price("max_gpu_price", settings.max_gpu_price),
        ),
    )


def timing_of(settings: Settings) -> LoopTiming:
    """The intervals that settings state. Raises `SettingsError` for a value that cannot be parsed."""
    interval = _duration("reconcile_interval", settings.reconcile_interval)
    if interval < _SHORTEST_INTERVAL:
        raise SettingsError(f"--reconcile-interval: {settings.reconcile_interval!r} is less than a second")
    return LoopTiming(resync=interval.total_seconds())


def _duration(setting: str, text: str) -> timedelta:
    try:
        return duration(text)
    except NotADuration as error:
        raise SettingsError(f"--{setting.replace('_', '-')}: {error}") from error


def _count(setting: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise SettingsError(f"--{setting.replace('_', '-')}: {text!r} is not a whole number")
    return int(text)


def _price(setting: str, text: str) -> UsdPerHour:
    try:
        price = UsdPerHour(text)
    except ValueError as error:
        raise SettingsError(f"--{setting.replace('_', '-')}: {error}") from error
    if price <= UsdPerHour.zero():
        raise SettingsError(f"--{setting.replace('_', '-')}: {text!r} is not more than 0")
    return price


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


async def cluster_problems(client: Client, version: Version, *, budgets: bool = True) -> list[str]:
    """What the cluster lacks of what Forebay needs, besides its kinds: one sentence each."""
    found = (unsupported_text(version.git_version), await gate_missing(client) if budgets else None)
    return [each for each in found if each is not None]


async def _log_cluster_problems(client: Client, *, budgets: bool) -> None:
    """Says at start whether the version is supported, and whether new pods of used-up budgets are held."""
    with suppress(KubeError, TransportError, TimeoutError):
        async with asyncio.timeout(_KINDS_TIMEOUT):
            version = await client.version()
            log.info("cluster", version=version.git_version)
            for each in await cluster_problems(client, version, budgets=budgets):
                log.warning("cluster lacks something", error=each)


def handle_signals(operator: Operator, redactor: Redactor, level: str) -> None:
    """On SIGUSR1 the last snapshot is saved; on SIGUSR2 the log level changes to debug, and back again."""
    loop = asyncio.get_running_loop()
    saves: set[asyncio.Task[None]] = set()
    levels = itertools.cycle(("debug", level))

    async def save() -> None:
        seen = operator.observation()
        if isinstance(seen, Standby):
            log.warning("snapshot not saved", error="this replica does not lead, or has not reconciled yet")
            return
        try:
            path = await asyncio.to_thread(dump, seen.snapshot, redactor)
        except OSError as error:
            log.warning("snapshot not saved", error=str(error))
        else:
            log.info("snapshot saved", path=str(path))

    def start_save() -> None:
        task = loop.create_task(save(), name="save of the snapshot")
        saves.add(task)
        task.add_done_callback(saves.discard)

    def change_level() -> None:
        chosen = next(levels)
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(chosen))
        log.warning("log level changed", level=chosen)

    loop.add_signal_handler(signal.SIGUSR1, start_save)
    loop.add_signal_handler(signal.SIGUSR2, change_level)


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
) -> None:
    """Runs the operator with its connections and HTTP pages until it is cancelled."""
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
        log.error("machine skipped", error=problem)
    config = cluster_config(settings, environment)
    namespace = settings.namespace or config.namespace
    identity = unique_identity()
    async with AsyncExitStack() as stack:
        client = connected_client(config, redactor)
        startup = connected_client(config, redactor, _STARTUP_RATE)
        election = election_client(config, redactor, terms)
        for each in (client, startup, election):
            stack.push_async_callback(each.close)
        operator = Operator(
            client,
            election,
            config.server,
            namespace=namespace,
            identity=identity,
            clock=clock.now,
            make_transport=lambda tls: AiohttpTransport(tls=tls or TlsOptions()),
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
            OperatorCollector(lambda: operator.views, operator.elector.still_leader, operator.counts),
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
        await operator.run()
