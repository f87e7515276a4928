"""Inputs of `forebay plan` and `forebay offers`: a cluster, manifests, saved snapshots, tables of offers."""

import asyncio
import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from forebay.api.names import API_VERSION
from forebay.cli.cluster_reader import ClusterReader, operator_namespace
from forebay.cli.manifest_files import STDIN, TOO_DEEP, documents_in, named_files, read_data
from forebay.cli.parser import UserError
from forebay.cli.plan.manifest_documents import ManifestError
from forebay.cli.plan.manifests import snapshot_of
from forebay.engine.sources.secrets import ClusterSecrets
from forebay.engine.support_bundle import SNAPSHOT_FILE
from forebay.engine.survey import survey, with_offers
from forebay.kube.connection import connected_client
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.kube.types import NAMESPACES
from forebay.net import clock
from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import NeverSent, Request, Response
from forebay.planning.offer_table import Row, TableError, read_table
from forebay.providers.plugin import ProviderContext
from forebay.providers.secrets import UnusableSecret
from forebay.reconcile.saved_pods import NotASnapshot
from forebay.reconcile.saved_snapshot import is_snapshot, load_snapshot
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.cluster_view import cluster_now
from forebay.settings import Settings, SettingsError
from forebay.wiring.cluster import cluster_config
from forebay.wiring.logs import configure_logging
from forebay.wiring.run_settings import rules_of

_GZIP: Final = b"\x1f\x8b"
#: Bytes of a table or bundle after unpacking: a few times what the largest price lists have.
_MOST_UNPACKED: Final = 128 << 20


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot to plan for, and notes for the user about how it was read."""

    #: The cluster's address or the names of the files, for people.
    where: str
    snapshot: Snapshot
    notes: tuple[str, ...] = ()
    #: Read from a cluster just now: providers were asked.
    live: bool = False


def read_cluster(settings: Settings, redactor: Redactor | None = None) -> PlanInput:
    """Input from the cluster. `redactor` learns the secrets that are read on the way."""
    try:
        return asyncio.run(_cluster(settings, redactor))
    except SettingsError as error:
        raise UserError(str(error)) from error


async def _cluster(settings: Settings, redactor: Redactor | None = None) -> PlanInput:
    # What cannot be read is told in one sentence: what the watches say meanwhile would only repeat it.
    redactor = redactor or configure_logging(settings, level="error")
    config = cluster_config(settings, os.environ)
    rules = rules_of(settings)
    client = connected_client(config, redactor)
    try:
        served = await client.served(API_VERSION)
        needed = (GPU_NODE_CLASSES, GPU_NODE_POOLS, GPU_INSTANCES)
        missing = [each.kind for each in needed if each.plural not in served]
        if missing:
            raise UserError(
                f"{config.server} does not serve {', '.join(missing)}; run: forebay manifests crds | kubectl apply -f -"
                " (without a cluster: forebay plan -f FILE, forebay offers --from FILE)"
            )
        cluster = await client.get(NAMESPACES, "kube-system")
        # Secrets that are named without a namespace are in the operator's.
        namespace = operator_namespace(settings, config)
        leaders = await ClusterReader(client, config.namespace, namespace).leaders()
        ahead = cluster_now(leaders, started := clock.now()) - started
        context = ProviderContext(
            make_transport=lambda tls: AiohttpTransport(tls=tls or TlsOptions()),
            secrets=ClusterSecrets(client),
            namespace=namespace,
            cluster=cluster.uid,
            redactor=redactor,
            clock=lambda: clock.now() + ahead,
        )
        seen = await survey(client, config.server, context, rules)
    finally:
        await client.close()
    return PlanInput(where=config.server, snapshot=seen, live=True)


def read_files(names: Sequence[str], settings: Settings) -> PlanInput:
    """Input from one saved snapshot or any number of manifests; a folder stands for its YAML and JSON files."""
    files = [each for name in names for each in named_files(name)]
    texts = [(name, _unbundled(name, read_data(name))) for name in files]
    saved = [(name, data) for name, data in texts if is_snapshot(data)]
    where = ", ".join(name if name != STDIN else "standard input" for name in names)
    if saved:
        if len(texts) > 1:
            raise UserError(f"{saved[0][0]} is a saved snapshot: give no other file with it")
        name, data = saved[0]
        try:
            return PlanInput(where=where, snapshot=load_snapshot(data))
        except NotASnapshot as error:
            raise UserError(f"{name} cannot be read: {error}") from error
    try:
        rules = rules_of(settings)
        built = snapshot_of(
            ((origin, document) for name, data in texts for origin, document in documents_in(name, data)),
            datetime.now(UTC),
            rules,
        )
    except (ManifestError, SettingsError) as error:
        raise UserError(str(error)) from error
    except RecursionError:
        raise UserError(f"{where} {TOO_DEEP}") from None
    configure_logging(settings)
    context = ProviderContext(
        make_transport=lambda _tls: _Offline(),
        secrets=_NoSecrets(),
        namespace="",
        cluster="",
        redactor=Redactor(),
        clock=clock.now,
    )
    return PlanInput(where=where, snapshot=asyncio.run(with_offers(built.snapshot, context)), notes=built.notes)


def read_snapshot(name: str) -> Snapshot:
    """The snapshot in a file: a saved one, or the one of a support bundle."""
    data = _unbundled(name, read_data(name))
    try:
        return load_snapshot(data)
    except NotASnapshot as error:
        raise UserError(f"{name} cannot be read: {error}") from error


def _unbundled(name: str, data: bytes) -> bytes:
    """The snapshot of a support bundle; any other data as it is."""
    if not data.startswith(_GZIP):
        return data
    # Unpacked first, within the limit: the headers of an archive may be as large as its files.
    unpacked = _unpacked(name, data, "support bundle")
    try:
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as bundle:
            for member in bundle:
                if member.isfile() and member.name.rpartition("/")[2] == SNAPSHOT_FILE:
                    file = bundle.extractfile(member)
                    if file is None:
                        break
                    return file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"{name} is not a complete support bundle: {error}") from error
    raise UserError(f"{name} has no {SNAPSHOT_FILE}: it is no support bundle of Forebay")


def _unpacked(name: str, data: bytes, what: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(_MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{name} is not a complete gzip file: {error}") from error
    if len(unpacked) > _MOST_UNPACKED:
        raise UserError(f"{name} unpacks to more than {_MOST_UNPACKED >> 20} MiB: too large for a {what}")
    return unpacked


def read_offers(name: str) -> list[Row]:
    data = read_data(name)
    if data.startswith(_GZIP):
        data = _unpacked(name, data, "table of offers")
    try:
        return read_table(io.StringIO(data.decode("utf-8"), newline=""))
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not text: {error}") from error
    except TableError as error:
        raise UserError(f"{name}: {error}") from error


class _Offline:
    """Transport that refuses all requests: planning from files makes no network calls."""

    async def request(self, request: Request) -> Response:
        raise NeverSent("planning from files makes no network calls", request, lasting=True)

    async def close(self) -> None:
        pass


class _NoSecrets:
    async def get(self, namespace: str, name: str) -> dict[str, bytes]:
        # Without files of a cluster, nothing says where the operator would run.
        secret = f"{namespace}/{name}" if namespace else name
        raise UnusableSecret(f"Secret {secret} is not at hand when planning from files: give --offers")
