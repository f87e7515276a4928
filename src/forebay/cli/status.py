"""`forebay status`: the cluster, its pools and machines, what they cost, who leads, and which pods wait and why."""

import argparse
import asyncio
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from forebay.cli.output import add_output_option, print_json, print_table
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.cli.cluster_reader import ClusterReader
    from forebay.kube.informer import Informer
    from forebay.reporting.status import BillRow, ClusterStatus

#: A cluster that cannot be listed in this time is not going to be.
PATIENCE_S = 60.0


async def observe(settings: Settings) -> "ClusterStatus":
    from forebay.api.kinds import KINDS
    from forebay.api.names import API_VERSION
    from forebay.cli.budgets.waits import home
    from forebay.cli.cluster_reader import ClusterReader
    from forebay.kube.pods import PENDING_GPU
    from forebay.kube.types import NAMESPACES
    from forebay.reporting.cluster_view import present
    from forebay.reporting.status import ClusterStatus, ViewAge, figures
    from forebay.wiring import cluster_config, configure_logging, rules_of, watched_cluster

    redactor = configure_logging(settings)
    config = cluster_config(settings, os.environ)
    gpu_resources = rules_of(settings).gpu_resources
    async with watched_cluster(config, redactor) as views:
        reader = ClusterReader(views.client, config.namespace)
        cluster = await views.client.get(NAMESPACES, "kube-system")
        served = await views.client.served(API_VERSION)
        records, pools, leaders = await reader.records(), await reader.pools(), await reader.leaders()
        await synced(views.nodes)
        await synced(views.pods)
        waiting = list(views.pods.by(PENDING_GPU, True))
        said = await reader.said("Pod") if waiting else []
        now = present(leaders, datetime.now(UTC))
        return ClusterStatus(
            server=config.server,
            source=config.source,
            version=views.version.git_version,
            cluster_id=cluster.uid,
            kinds_installed=[kind.kind for kind in KINDS if kind.plural in served],
            kinds_missing=[kind.kind for kind in KINDS if kind.plural not in served],
            leaders=leaders,
            bill=await read_bill(reader, home(settings, leaders), now) if records is not None else [],
            views=[
                ViewAge(kind=each.resource.plural, objects=len(each), seconds=round(each.staleness, 3))
                for each in (views.nodes, views.pods)
            ],
            **figures(
                list(views.nodes.values()),
                list(views.pods.values()),
                waiting,
                records=records or [],
                pools=pools or [],
                said=said or [],
                gpu_resources=gpu_resources,
                now=now,
            ),
        )


async def read_bill(reader: "ClusterReader", namespace: str, now: datetime) -> "list[BillRow] | None":
    """From the ledgers in the operator's namespace; None where this user may not read them."""
    from forebay.engine.ledger.ledger_reader import LedgersNotReadable, read_ledgers
    from forebay.reporting.status import bill

    try:
        ledgers = await read_ledgers(reader.client, namespace, (), now)
    except LedgersNotReadable:
        return None
    return bill(ledgers.bill.costs(now))


async def synced(informer: "Informer[Any]") -> None:
    try:
        await asyncio.wait_for(informer.wait_synced(), PATIENCE_S)
    except TimeoutError:
        why = informer.last_error or "the server is answering, but slowly"
        raise UserError(f"could not list {informer.resource.plural} within {PATIENCE_S:.0f} s: {why}") from None


def show(status: "ClusterStatus", now: datetime) -> None:
    from forebay.model.quantities import Usd, UsdPerHour
    from forebay.model.spans import human
    from forebay.reporting.status import spent, told_leader, told_views

    kinds = f"{len(status.kinds_installed)} kinds installed"
    if status.kinds_missing:
        kinds = f"{', '.join(status.kinds_missing)} not installed; run: forebay manifests crds | kubectl apply -f -"
    print_table(
        ("Cluster", f"{status.server} ({status.source})"),
        [
            ("Version", f"Kubernetes {status.version}"),
            ("Identity", status.cluster_id),
            ("Forebay", kinds),
            ("Leader", told_leader(status.leaders, now)),
            ("Views", told_views(status.views)),
            ("Nodes", f"{status.nodes_ready} of {status.nodes} ready"),
            ("GPUs", f"{status.gpus_requested} of {status.gpus} requested by pods on nodes"),
            ("Pods", f"{status.pods}, of which {len(status.waiting)} wait for a GPU"),
            ("Spend", spent(status.spend)),
        ],
    )
    if status.pools:
        print()
        print_table(
            ("POOL", "CLASS", "NODES", "COST/H", "READY", "REASON"),
            [
                (each.pool, each.node_class, str(each.nodes), str(UsdPerHour(each.hourly)), each.ready, each.reason)
                for each in status.pools
            ],
        )
    if status.bill:
        print()
        print_table(
            ("SPENT IN 31 DAYS", "NOW", "PAID BY", "POOL", "CLASS"),
            [
                (
                    str(Usd.from_exact(each.spent_exact)),
                    str(UsdPerHour(each.hourly)),
                    each.namespace or "nobody",
                    each.pool or "-",
                    each.node_class or "-",
                )
                for each in status.bill
            ],
        )
    if status.machines:
        print()
        print_table(
            ("MACHINE", "STATE", "REASON", "SINCE", "GPUS", "PRICE", "NODE", "PODS"),
            [
                (
                    each.name,
                    each.state,
                    each.reason or "-",
                    human(now - each.since) if each.since is not None else "-",
                    str(each.gpus),
                    str(UsdPerHour(each.price_per_hour)),
                    each.node or "-",
                    ", ".join(each.pods) or "-",
                )
                for each in status.machines
            ],
        )
    if status.waiting:
        print()
        print_table(
            ("POD", "GPUS", "WAITING", "REASON"),
            [(each.pod, str(each.gpus), human(now - each.since), each.reason) for each in status.waiting],
        )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    from forebay.reporting.cluster_view import present

    status = asyncio.run(observe(settings))
    if arguments.output == "json":
        print_json(msgspec.to_builtins(status))
    else:
        show(status, present(status.leaders, datetime.now(UTC)))
    return 0


COMMAND = Command(
    name="status",
    summary="pools, machines, spend, leader, and which pods wait for a GPU and why",
    description="Show what Forebay sees of the cluster: pools, machines and what they cost, who leads, and which pods\n"
    "wait for a GPU and why. The total is that of the machines on record, which is kept for an hour after their end;\n"
    "what was spent in 31 days is in the ledgers, by who pays.",
    options=add_output_option,
    run=run,
)
