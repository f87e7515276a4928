"""`forebay uninstall`: takes Forebay's marks off the cluster before the operator goes."""

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING

from forebay.cli.output import add_output_option, print_json, print_paragraph
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.install.uninstall import Uninstalled


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--leave-machines",
        action="store_true",
        help="also while machines are on: they stay on, and are yours to end",
    )
    add_output_option(parser)


async def uninstall(settings: Settings, *, leave_machines: bool) -> "tuple[Uninstalled, list[str]]":
    """What was done, and the namespaces of operators."""
    from forebay.cli.cluster_reader import ClusterReader
    from forebay.install.uninstall import MachinesRunning, Uninstaller, UninstallError
    from forebay.kube.connection import connected_client
    from forebay.wiring import cluster_config, configure_logging

    redactor = configure_logging(settings)
    config = cluster_config(settings, os.environ)
    client = connected_client(config, redactor)
    try:
        if settings.namespace is not None:
            homes = [settings.namespace]
        else:
            # Who may not list Leases is a pod of the chart, in the namespace of its operator.
            leaders = await ClusterReader(client, config.namespace).leaders()
            homes = [config.namespace] if leaders is None else [each.namespace for each in leaders]
        try:
            done = await Uninstaller(client, homes, progress=_progress).run(leave_machines=leave_machines)
        except (MachinesRunning, UninstallError) as error:
            raise UserError(str(error)) from error
    finally:
        await client.close()
    return done, homes


def _progress(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def show(done: "Uninstalled", homes: list[str]) -> None:
    print_paragraph("Nothing in the cluster waits for Forebay any more.")
    if done.machines:
        print_paragraph(
            f"Machines that are on and yours to end: {', '.join(done.machines)}. Their GPUInstances say what they are; "
            "delete these by taking their finalizers away."
        )
    print_paragraph("What is left to do, within two minutes, before operators take up their work again:")
    print_paragraph("helm uninstall RELEASE --no-hooks, or: forebay manifests install | kubectl delete -f -", indent=2)
    print_paragraph("What stays until you delete it:")
    for home in homes:
        print_paragraph(
            f"ledgers of budgets: kubectl -n {home} delete configmaps -l forebay.dev/ledger", indent=2, hanging=2
        )
    print_paragraph(
        "Forebay's kinds with all you wrote: forebay manifests crds | kubectl delete -f -", indent=2, hanging=2
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    done, homes = asyncio.run(uninstall(settings, leave_machines=arguments.leave_machines))
    if arguments.output == "json":
        print_json(msgspec.to_builtins(done))
    else:
        show(done, homes)
    return 0


COMMAND = Command(
    name="uninstall",
    summary="take Forebay's marks off the cluster, so that nothing waits for it when it is gone",
    description="Prepare the cluster for Forebay's removal: halt operators, delete the admission policies, then take\n"
    "finalizers and gates off pods, let Jobs go on that waited for a budget, and let classes and the records of\n"
    "machines that are gone be deleted. It says what is left to do. While machines are on nothing is touched: nobody\n"
    "would end them. It can be repeated. The chart runs it before it is uninstalled.\n\n"
    "Exit codes: 0 nothing waits for Forebay any more; 2 machines are on, or no cluster.",
    options=add_options,
    run=run,
)
