"""Where the rooms meet: the only module that knows everything, and decides nothing.

Each function builds one working whole from settings and the environment. Imports of what is heavy wait inside them.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from forebay.kube.client import Client
from forebay.kube.config import Config, load
from forebay.kube.connection import connected_client
from forebay.kube.informer import Informer
from forebay.kube.nodes import NODES
from forebay.kube.pods import PODS, pod_indexes
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.settings import Settings


def cluster_config(settings: Settings, environment: Mapping[str, str]) -> Config:
    """The cluster kubectl would talk to with the same options."""
    path = Path(settings.kubeconfig) if settings.kubeconfig is not None else None
    return load(env=environment, path=path, context=settings.context)


class Views(msgspec.Struct, frozen=True):
    """What Forebay watches of a cluster, through one connection."""

    client: Client
    nodes: Informer[Node]
    pods: Informer[Pod]


@asynccontextmanager
async def watched_cluster(config: Config) -> AsyncIterator[Views]:
    """Informers that run while the block does. They start unsynced: nothing may be concluded before they are."""
    client = connected_client(config)
    nodes = Informer(client.transport, config.server, NODES)
    pods = Informer(client.transport, config.server, PODS, indexes=pod_indexes())
    try:
        async with nodes, pods:
            yield Views(client, nodes, pods)
    finally:
        await client.close()
