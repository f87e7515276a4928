"""`forebay status`: the cluster, its leader, pools, GPUInstances and their cost, and why pods wait."""

import argparse
import asyncio
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from forebay.cli.output import add_output_option, print_document, print_long_table, print_table
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.cli.cluster_reader import ClusterReader
    from forebay.kube.informer import Informer
    from forebay.model.nodes import Node
    from forebay.reporting.provisioner_views import ProvisionerView
    from forebay.reporting.status import BillRow, ClusterStatus

#: After this many seconds without a complete list, the command gives up.
SYNC_TIMEOUT_S: Final = 60.0
_IN_ONE_NAMESPACE: Final = (
    "with rights in one namespace there are forebay explain pod/NAME and forebay budgets -n NAMESPACE"
)


async def read_status(settings: Settings) -> "ClusterStatus":
    """Everything `forebay status` shows, read from the cluster."""
    from forebay.api.gpu_workload_budget import GPU_WORKLOAD_BUDGET
    from forebay.api.kinds import KINDS
    from forebay.api.names import API_VERSION, VIRTUAL_NODE
    from forebay.cli.cluster_reader import ClusterReader, operator_namespace
    from forebay.kube.pod_indexes import PENDING_GPU, TOLD_BUT_BOUND
    from forebay.reporting.cluster_view import cluster_now
    from forebay.reporting.status import ClusterStatus, ViewAge, status_fields
    from forebay.wiring.cluster import cluster_config, cluster_problems, watched_cluster
    from forebay.wiring.logs import configure_logging
    from forebay.wiring.run_settings import rules_of

    redactor = configure_logging(settings, level="error")
    config = cluster_config(settings, os.environ)
    gpu_resources = rules_of(settings).gpu_resources
    async with watched_cluster(config, redactor) as views:
        reader = ClusterReader(views.client, config.namespace, operator_namespace(settings, config))
        served = await views.client.served(API_VERSION)
        records, pools, leaders = await reader.records(), await reader.pools(), await reader.leaders()
        with_nodes = await may_list(views.nodes)
        await views.pods.wait_listed(SYNC_TIMEOUT_S)
        # Pods of the virtual node are bound, and some of them wait for their container.
        told = (pod for pod in views.pods.by(TOLD_BUT_BOUND, True) if pod.node == VIRTUAL_NODE)
        waiting = [*views.pods.by(PENDING_GPU, True), *told]
        events = await reader.events("Pod") if waiting else []
        now = cluster_now(leaders, datetime.now(UTC))
        return ClusterStatus(
            server=config.server,
            source=config.source,
            version=views.version.git_version,
            cluster_id=views.cluster_id,
            kinds_installed=[kind.kind for kind in KINDS if kind.plural in served],
            kinds_missing=[kind.kind for kind in KINDS if kind.plural not in served],
            problems=await cluster_problems(views.client, views.version, budgets=GPU_WORKLOAD_BUDGET.plural in served),
            operator_namespace=reader.operator_namespace,
            leaders=leaders,
            other_leases=[] if leaders else await reader.lease_namespaces() or [],
            provisioners=await read_provisioners(reader),
            bill=await read_bill(reader, now) if records is not None else [],
            views=[
                ViewAge(kind=each.resource.plural, objects=len(each), seconds=round(each.staleness, 3))
                for each in ((views.nodes, views.pods) if with_nodes else (views.pods,))
            ],
            **status_fields(
                list(views.nodes.values()) if with_nodes else None,
                list(views.pods.values()),
                waiting,
                records=records or [],
                pools=pools or [],
                events=events or [],
                gpu_resources=gpu_resources,
                now=now,
            ),
        )


async def may_list(informer: "Informer[Node]") -> bool:
    """Whether this user may list the objects, which then are listed."""
    from forebay.kube.errors import NotListed

    try:
        await informer.wait_listed(SYNC_TIMEOUT_S)
    except NotListed as error:
        if not error.forbidden:
            raise
        return False
    return True


async def read_provisioners(reader: "ClusterReader") -> "list[ProvisionerView] | None":
    """NodeProvisioners by name; None where this user may not list them."""
    from forebay.kube.errors import Forbidden
    from forebay.reporting.provisioner_views import provisioner_view

    try:
        found = await reader.provisioners() or []
    except Forbidden:
        return None
    return [provisioner_view(each) for each in sorted(found, key=lambda each: each.metadata.name)]


async def read_bill(reader: "ClusterReader", now: datetime) -> "list[BillRow] | None":
    """The bill by the ledgers in the operator's namespace; None where this user may not read them."""
    from forebay.engine.ledger.ledger_reader import LedgersNotReadable, read_ledgers
    from forebay.reporting.status import bill

    try:
        ledgers = await read_ledgers(reader.client, reader.operator_namespace, (), now)
    except LedgersNotReadable:
        return None
    return bill(ledgers.bill.costs(now))


def show(status: "ClusterStatus", now: datetime) -> None:
    from forebay.model.quantities import Usd, UsdPerHour
    from forebay.model.spans import human
    from forebay.reporting.status import leader_text, missing_kinds_text, spend_text, view_age_text

    kinds = f"{len(status.kinds_installed)} kinds installed"
    if status.kinds_missing:
        kinds = missing_kinds_text(status.kinds_missing)
    of_gpus = "" if status.gpus is None else f" of {status.gpus}"
    remote = f"; {status.gpus_remote} in remote containers" if status.gpus_remote else ""
    print_table(
        ("Cluster", f"{status.server} ({status.source})"),
        [
            ("Version", f"Kubernetes {status.version}"),
            *(("Lacks", each) for each in status.problems),
            ("Cluster ID", status.cluster_id),
            ("Forebay", kinds),
            ("Leader", leader_text(status.leaders, status.operator_namespace, status.other_leases, now)),
            ("Data age", view_age_text(status.views)),
            ("Nodes", unlisted("nodes") if status.nodes is None else f"{status.nodes_ready} of {status.nodes} Ready"),
            ("GPUs", f"{status.gpus_requested}{of_gpus} requested by bound pods{remote}"),
            ("Pods", f"{status.pods}, of which {len(status.waiting)} waiting for a GPU"),
            ("Cost", spend_text(status.spend, status.bill)),
            *([("Groups", unlisted("NodeProvisioners"))] if status.provisioners is None else ()),
        ],
        titles=False,
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
    if status.provisioners:
        print()
        print_table(
            ("NODEPROVISIONER", "NODES", "TARGET", "IN USE", "TAINTED", "READY", "REASON"),
            [
                (
                    each.name,
                    *("-" if figure is None else str(figure) for figure in _sizes(each)),
                    each.ready,
                    each.reason,
                )
                for each in status.provisioners
            ],
        )
    if status.bill:
        print()
        print_table(
            ("COST IN 31 DAYS", "COST/H NOW", "NAMESPACE", "POOL", "CLASS"),
            [
                (
                    str(Usd.from_exact(each.spent_exact)),
                    str(UsdPerHour(each.hourly)),
                    each.namespace or "none",
                    each.pool or "-",
                    each.node_class or "-",
                )
                for each in status.bill
            ],
        )
    if status.machines:
        print()
        print_long_table(
            ("INSTANCE", "STATE", "REASON", "IN STATE", "GPUS", "PRICE", "NODE", "PODS"),
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
            "instances",
        )
    if status.waiting:
        print()
        print_long_table(
            ("WAITING POD", "GPUS", "FOR", "REASON"),
            [(each.pod, str(each.gpus), human(now - each.since), each.reason) for each in status.waiting],
            "waiting pods",
        )


def unlisted(what: str) -> str:
    return f"unknown: this user may not list {what}"


def _sizes(each: "ProvisionerView") -> "tuple[int | None, ...]":
    return each.size, each.target, each.in_use, each.tainted


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    from forebay.kube.errors import Forbidden, NotListed
    from forebay.reporting.cluster_view import cluster_now

    try:
        status = asyncio.run(read_status(settings))
    except (Forbidden, NotListed) as error:
        if isinstance(error, NotListed) and not error.forbidden:
            raise
        raise UserError(f"{error}; {_IN_ONE_NAMESPACE}") from None
    if arguments.output != "text":
        print_document(msgspec.to_builtins(status), arguments.output)
    else:
        show(status, cluster_now(status.leaders, datetime.now(UTC)))
    return 0


COMMAND = Command(
    name="status",
    summary="show pools, instance groups, instances, cost, leader, and which pods wait for a GPU and why",
    description="Show what Forebay knows about the cluster: leader, pools, GPUInstances and their cost, and which\n"
    "pods wait for a GPU and why. The cost of the last 31 days comes from the ledgers, by the namespace\n"
    'it is charged to; where this user may not read them, "Cost" is the sum over the GPUInstances shown,\n'
    "which are kept for an hour after termination.",
    options=add_output_option,
    run=run,
    watchable=True,
)
