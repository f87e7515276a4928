"""`forebay status`: what Forebay sees of the cluster, and which pods wait for a GPU and why."""

import argparse
import asyncio
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.cli.output import add_output_option, print_json, print_table
from forebay.cli.parser import Command, UserError
from forebay.model.nodes import Node
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.kube.informer import Informer

#: A cluster that cannot be listed in this time is not going to be.
PATIENCE_S = 60.0


class Waiting(msgspec.Struct, frozen=True):
    """A pod that asks for GPUs and has no node."""

    pod: str
    gpus: int
    since: datetime
    reason: str


class ClusterStatus(msgspec.Struct, frozen=True):
    server: str
    source: str
    version: str
    #: The UID of kube-system: what Forebay marks its machines with.
    cluster_id: str
    kinds_installed: list[str]
    kinds_missing: list[str]
    nodes: int
    nodes_ready: int
    gpus: int
    gpus_requested: int
    pods: int
    waiting: list[Waiting]


def reason(pod: Pod) -> str:
    """Why the pod has no node, as far as the cluster has said."""
    if pod.shape.scheduling_gates:
        return f"SchedulingGated: held back by {', '.join(pod.shape.scheduling_gates)}"
    if pod.unschedulable_message is not None:
        return f"Unschedulable: {pod.unschedulable_message}"
    return f"NotScheduledYet: {pod.shape.scheduler_name} has not looked at it"


def summary(nodes: list[Node], pods: list[Pod], waiting: list[Pod]) -> dict[str, Any]:
    bound = [pod for pod in pods if pod.node is not None and not pod.phase.ended]
    return {
        "nodes": len(nodes),
        "nodes_ready": sum(node.ready for node in nodes),
        "gpus": sum(int(node.allocatable.gpus()) for node in nodes),
        "gpus_requested": sum(int(pod.shape.gpus()) for pod in bound),
        "pods": len(pods),
        "waiting": [
            Waiting("/".join(pod.key), int(pod.shape.gpus()), pod.unschedulable_since or pod.created, reason(pod))
            for pod in sorted(waiting, key=lambda pod: (pod.created, pod.key))
        ],
    }


async def observe(settings: Settings) -> ClusterStatus:
    from forebay.api.kinds import KINDS
    from forebay.api.names import API_VERSION
    from forebay.kube.pods import PENDING_GPU
    from forebay.kube.types import NAMESPACES
    from forebay.wiring import cluster_config, configure_logging, watched_cluster

    redactor = configure_logging(settings)
    config = cluster_config(settings, os.environ)
    async with watched_cluster(config, redactor) as views:
        cluster = await views.client.get(NAMESPACES, "kube-system")
        served = await views.client.served(API_VERSION)
        await synced(views.nodes)
        await synced(views.pods)
        return ClusterStatus(
            server=config.server,
            source=config.source,
            version=views.version.git_version,
            cluster_id=cluster.uid,
            kinds_installed=[kind.kind for kind in KINDS if kind.plural in served],
            kinds_missing=[kind.kind for kind in KINDS if kind.plural not in served],
            **summary(list(views.nodes.values()), list(views.pods.values()), list(views.pods.by(PENDING_GPU, True))),
        )


async def synced(informer: "Informer[Any]") -> None:
    try:
        await asyncio.wait_for(informer.wait_synced(), PATIENCE_S)
    except TimeoutError:
        why = informer.last_error or "the server is answering, but slowly"
        raise UserError(f"could not list {informer.resource.plural} within {PATIENCE_S:.0f} s: {why}") from None


def show(status: ClusterStatus, now: datetime) -> None:
    kinds = f"{len(status.kinds_installed)} kinds installed"
    if status.kinds_missing:
        kinds = f"{', '.join(status.kinds_missing)} not installed; run: forebay manifests crds | kubectl apply -f -"
    print_table(
        ("Cluster", f"{status.server} ({status.source})"),
        [
            ("Version", f"Kubernetes {status.version}"),
            ("Identity", status.cluster_id),
            ("Forebay", kinds),
            ("Nodes", f"{status.nodes_ready} of {status.nodes} ready"),
            ("GPUs", f"{status.gpus_requested} of {status.gpus} requested by pods on nodes"),
            ("Pods", f"{status.pods}, of which {len(status.waiting)} wait for a GPU"),
        ],
    )
    if status.waiting:
        print()
        print_table(
            ("POD", "GPUS", "WAITING", "REASON"),
            [(each.pod, str(each.gpus), human(now - each.since), each.reason) for each in status.waiting],
        )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    status = asyncio.run(observe(settings))
    if arguments.output == "json":
        print_json(msgspec.to_builtins(status))
    else:
        show(status, datetime.now(UTC))
    return 0


COMMAND = Command(
    name="status",
    summary="what Forebay sees of the cluster, and which pods wait for a GPU and why",
    description="Show what Forebay sees of the cluster, and which pods wait for a GPU and why.",
    options=add_output_option,
    run=run,
)
