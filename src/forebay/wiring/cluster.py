"""Connections to the cluster, and what it lacks."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from forebay.kube.admission import gate_missing
from forebay.kube.client import Client, Version
from forebay.kube.config import Config, load_config
from forebay.kube.connection import connected_client
from forebay.kube.informer import Informer
from forebay.kube.nodes import NODES
from forebay.kube.pod_indexes import pod_indexes
from forebay.kube.pods import PODS, PodDecoder
from forebay.kube.types import NAMESPACES
from forebay.kube.versions import unsupported_text
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.net.redaction import Redactor
from forebay.settings import Settings


def cluster_config(settings: Settings, environment: Mapping[str, str]) -> Config:
    """Connection settings of the cluster that kubectl would use with the same options."""
    path = Path(settings.kubeconfig) if settings.kubeconfig is not None else None
    return load_config(env=environment, path=path, context=settings.context, interactive=sys.stdin.isatty())


class ClusterConnection(msgspec.Struct, frozen=True):
    """A client of a cluster, and informers for its nodes and pods."""

    client: Client
    version: Version
    #: UID of the kube-system namespace.
    cluster_id: str
    nodes: Informer[Node]
    pods: Informer[Pod]


@asynccontextmanager
async def watched_cluster(config: Config, redactor: Redactor) -> AsyncIterator[ClusterConnection]:
    """A connection whose informers run for the duration of the `async with` block. They start unsynced.

    Raises where the API server does not answer at first, or refuses; once it has answered, the informers retry forever.
    """
    client = connected_client(config, redactor)
    nodes = Informer(client.transport, config.server, NODES)
    pods = Informer(client.transport, config.server, PODS, decoder=PodDecoder(timed=()), indexes=pod_indexes())
    try:
        version = await client.version()
        cluster = await client.get(NAMESPACES, "kube-system")
        async with nodes, pods:
            yield ClusterConnection(client, version, cluster.uid, nodes, pods)
    finally:
        await client.close()


async def cluster_problems(client: Client, version: Version, *, budgets: bool = True) -> list[str]:
    """What the cluster lacks of what Forebay needs, besides its kinds: one sentence each."""
    found = (unsupported_text(version.git_version), await gate_missing(client) if budgets else None)
    return [each for each in found if each is not None]
