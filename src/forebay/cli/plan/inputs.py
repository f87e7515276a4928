"""Inputs of `forebay plan` and `forebay offers`: a cluster, manifests, saved snapshots, tables of offers."""

import asyncio
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from forebay.api.names import API_VERSION
from forebay.cli.cluster_reader import operator_namespace
from forebay.cli.parser import UserError
from forebay.cli.plan.manifest_documents import ManifestError
from forebay.cli.plan.manifests import snapshot_of
from forebay.engine.sources.secrets import ClusterSecrets
from forebay.engine.survey import SurveyError, survey, with_offers
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
from forebay.settings import Settings, SettingsError
from forebay.wiring import cluster_config, configure_logging, rules_of

STDIN: Final = "-"
_GZIP: Final = b"\x1f\x8b"
_ENDINGS: Final = (".yaml", ".yml", ".json")
#: Bytes of a table after unpacking: a few times what the largest price lists have.
_MOST_UNPACKED: Final = 128 << 20
#: Levels of a document. Manifests have fewer than 30.
_DEEPEST: Final = 200
_TOO_DEEP: Final = "is nested too deeply to be a manifest"
#: Values of a document whose aliases are written out.
_MOST_VALUES: Final = 20_000_000
_CSafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot to plan for, and notes for the user about how it was read."""

    #: The cluster's address or the names of the files, for people.
    where: str
    snapshot: Snapshot
    notes: tuple[str, ...] = ()


def read_cluster(settings: Settings) -> PlanInput:
    try:
        return asyncio.run(_cluster(settings))
    except (SurveyError, SettingsError) as error:
        raise UserError(str(error)) from error


async def _cluster(settings: Settings) -> PlanInput:
    redactor = configure_logging(settings)
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
                ", or plan from files with -f"
            )
        cluster = await client.get(NAMESPACES, "kube-system")
        context = ProviderContext(
            make_transport=lambda tls: AiohttpTransport(tls=tls or TlsOptions()),
            secrets=ClusterSecrets(client),
            # Secrets that are named without a namespace are in the operator's.
            namespace=operator_namespace(settings, config),
            cluster=cluster.uid,
            redactor=redactor,
            clock=clock.now,
        )
        seen = await survey(client, config.server, context, rules)
    finally:
        await client.close()
    return PlanInput(where=config.server, snapshot=seen)


def read_files(names: Sequence[str], settings: Settings) -> PlanInput:
    """Input from one saved snapshot or any number of manifests; a folder stands for its YAML and JSON files."""
    files = [each for name in names for each in _named(name)]
    texts = [(name, _read(name)) for name in files]
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
            ((origin, document) for name, data in texts for origin, document in _documents(name, data)),
            datetime.now(UTC),
            rules,
        )
    except (ManifestError, SettingsError) as error:
        raise UserError(str(error)) from error
    except RecursionError:
        raise UserError(f"{where} {_TOO_DEEP}") from None
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


def read_offers(name: str) -> list[Row]:
    data = _read(name)
    if data.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(_MOST_UNPACKED + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{name} is not a complete gzip file: {error}") from error
        if len(data) > _MOST_UNPACKED:
            raise UserError(f"{name} unpacks to more than {_MOST_UNPACKED >> 20} MiB: too large for a table of offers")
    try:
        return read_table(io.StringIO(data.decode("utf-8"), newline=""))
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not text: {error}") from error
    except TableError as error:
        raise UserError(f"{name}: {error}") from error


def _named(name: str) -> list[str]:
    if name == STDIN or not Path(name).is_dir():
        return [name]
    found = sorted(str(each) for each in Path(name).iterdir() if each.suffix in _ENDINGS and each.is_file())
    if not found:
        raise UserError(f"{name} has no files that end in {', '.join(_ENDINGS)}")
    return found


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}") from error


def _documents(name: str, data: bytes) -> Iterator[tuple[str, Any]]:
    origin = "standard input" if name == STDIN else name
    if data.lstrip().startswith(b"{"):
        # Reading thousands of pods (kubectl get pods -o json) with the YAML parser would take minutes.
        try:
            document = msgspec.json.decode(data)
        except msgspec.DecodeError:
            pass
        except RecursionError:
            raise UserError(f"{origin} {_TOO_DEEP}") from None
        else:
            if _is_too_deep(document):
                raise UserError(f"{origin} {_TOO_DEEP}")
            yield origin, document
            return
    try:
        _check_depth(data, origin)
        for number, document in enumerate(yaml.load_all(data, Loader=_CSafeLoader)):
            where = f"{origin}, document {number + 1}"
            if b"&" in data and _values(document, {}) > _MOST_VALUES:
                raise UserError(f"{where} has too many values once its aliases are written out")
            yield where, document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise UserError(f"{origin} is not YAML: {line}{error.problem}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{origin} is not YAML: {' '.join(str(error).split())}") from error
    except (ValueError, RecursionError) as error:
        # A date such as 2026-13-45, or brackets without end.
        raise UserError(f"{origin} is not YAML: {error}") from error


def _is_too_deep(document: Any) -> bool:
    """Whether JSON is nested more deeply than YAML may be. How deep the decoder itself reads depends on the stack."""
    level = [document]
    for _ in range(_DEEPEST + 1):
        parts = (each.values() if isinstance(each, dict) else each for each in level)
        level = [part for each in parts for part in each if isinstance(part, dict | list)]
        if not level:
            return False
    return True


def _check_depth(data: bytes, origin: str) -> None:
    """Raise `UserError` for YAML so deep that libyaml's loader, which recurses in C, would end the process.

    Each level takes a bracket, or a column of its line: most files need no second look.
    """
    brackets = data.count(b"[") + data.count(b"{")
    if brackets <= _DEEPEST and max(map(len, data.splitlines()), default=0) <= _DEEPEST:
        return
    depth = 0
    for event in yaml.parse(data, Loader=_CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise UserError(f"{origin} {_TOO_DEEP}")


def _values(value: Any, known: dict[int, int]) -> int:
    """How many values the document has with its aliases written out. An alias within its own anchor has no end."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = _MOST_VALUES + 1
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values(each, known) for each in parts)
    return known[id(value)]


class _Offline:
    """Transport that refuses all requests: planning from files makes no network calls."""

    async def request(self, request: Request) -> Response:
        raise NeverSent("planning from files makes no network calls", request, lasting=True)

    async def close(self) -> None:
        pass


class _NoSecrets:
    async def get(self, namespace: str, name: str) -> dict[str, bytes]:
        raise UnusableSecret(f"Secret {namespace}/{name} is not at hand when planning from files: give --offers")
