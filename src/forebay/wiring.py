"""Where the rooms meet: the only module that knows everything, and decides nothing.

Each function builds one working whole from settings and the environment. Imports of what is heavy wait inside them.
"""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import structlog
from structlog.typing import Processor

from forebay.api.values import NotADuration, duration
from forebay.engine.operator import Operator
from forebay.kube.client import Client, Version
from forebay.kube.config import Config, load_config
from forebay.kube.connection import Rate, connected_client, election_client
from forebay.kube.informer import Informer
from forebay.kube.lease import Terms, unique_identity
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS, PodDecoder, pod_indexes
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.net import clock
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.providers.webhook.groups import read_groups
from forebay.reconcile.snapshot import OperatorRules
from forebay.settings import Settings, SettingsError
from forebay.web.pages import pages

log = structlog.get_logger(__name__)

#: What tells the scheduler which pods go where should not wait behind a burst of records.
_OPENING = Rate(qps=500, burst=500)


def configure_logging(settings: Settings, *, level: str = "warning") -> Redactor:
    """Log lines go to standard error; standard output belongs to the command's answer.

    They are scrubbed by the redactor that is returned: whoever reads a secret registers it there. `level` is the
    command's own, where the user has not chosen one.
    """
    redactor = Redactor()
    plain = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if plain else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redactor,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level or level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    return redactor


def cluster_config(settings: Settings, environment: Mapping[str, str]) -> Config:
    """The cluster kubectl would talk to with the same options."""
    path = Path(settings.kubeconfig) if settings.kubeconfig is not None else None
    return load_config(env=environment, path=path, context=settings.context, interactive=sys.stdin.isatty())


class Seen(msgspec.Struct, frozen=True):
    """What Forebay watches of a cluster, through one connection."""

    client: Client
    version: Version
    nodes: Informer[Node]
    pods: Informer[Pod]


@asynccontextmanager
async def watched_cluster(config: Config, redactor: Redactor) -> AsyncIterator[Seen]:
    """Informers that run while the block does. They start unsynced: nothing may be concluded before they are.

    A server that does not answer at all is an error here, for someone waits for it; once it has, the informers never
    give up.
    """
    client = connected_client(config, redactor)
    nodes = Informer(client.transport, config.server, NODES)
    pods = Informer(client.transport, config.server, PODS, decoder=PodDecoder(timed=()), indexes=pod_indexes())
    try:
        version = await client.version()
        async with nodes, pods:
            yield Seen(client, version, nodes, pods)
    finally:
        await client.close()


def listen_address(text: str) -> tuple[str, int]:
    """`host:port`; `:port` is every interface, as in Go."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        raise SettingsError(f"{text!r} is not an address to listen on; give host:port or :port")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 (a pod's probes come from outside)


def rules_of(settings: Settings) -> OperatorRules:
    """Raises `SettingsError` for what cannot be understood."""
    resources = (settings.gpu_resources or "").replace(",", " ").split()
    return OperatorRules(
        gpu_resources=frozenset(resources) or None,
        idle_delay=_duration("idle_delay", settings.idle_delay),
        scale_down_interval=_duration("scale_down_interval", settings.scale_down_interval),
    )


def _duration(setting: str, text: str) -> timedelta:
    try:
        return duration(text)
    except NotADuration as error:
        raise SettingsError(f"--{setting.replace('_', '-')}: {error}") from error


async def run_operator(
    settings: Settings,
    environment: Mapping[str, str],
    redactor: Redactor,
    terms: Terms = Terms(),  # noqa: B008 (immutable)
) -> None:
    """The operator with its connections and its pages, until it is cancelled."""
    from forebay.engine.budget_metrics import BudgetCollector  # noqa: PLC0415 (brings prometheus_client)
    from forebay.engine.metrics import OperatorCollector  # noqa: PLC0415 (brings prometheus_client)
    from forebay.kube.metrics import InformerCollector  # noqa: PLC0415 (brings prometheus_client)
    from forebay.net.aiohttp_transport import AiohttpTransport  # noqa: PLC0415 (brings aiohttp)
    from forebay.net.serve import serving  # noqa: PLC0415 (brings aiohttp's server)
    from forebay.web.metrics import metrics_page  # noqa: PLC0415

    host, port = listen_address(settings.health_server_address)
    groups = read_groups(environment)
    for problem in groups.problems:
        log.error("a machine is left out", why=problem)
    config = cluster_config(settings, environment)
    namespace = settings.namespace or config.namespace
    identity = unique_identity()
    async with AsyncExitStack() as stack:
        client, opening = connected_client(config, redactor), connected_client(config, redactor, _OPENING)
        election = election_client(config, redactor, terms)
        for each in (client, opening, election):
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
            machines=groups.machines,
            rules=rules_of(settings),
            terms=terms,
            opening=opening,
        )
        await stack.enter_async_context(operator)
        metrics = metrics_page(
            InformerCollector(operator.informers),
            OperatorCollector(lambda: operator.views, operator.elector.still_leader, operator.counts),
            BudgetCollector(lambda: operator.budget_accounting, clock.now),
        )
        handler = pages(alive=operator.broken, ready=operator.error, metrics=metrics)
        await stack.enter_async_context(serving(handler, host=host, port=port))
        log.info("started", server=config.server, source=config.source, namespace=namespace, identity=identity)
        await operator.run()
