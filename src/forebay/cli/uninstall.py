"""`forebay uninstall`: removes Forebay's finalizers, gates and policies, before its operator is deleted."""

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from forebay.cli.output import add_output_option, print_document, print_line, print_paragraph
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.install.uninstall import Uninstalled


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--leave-machines",
        action="store_true",
        help="continue although machines are running; they keep running, and you must power off or terminate them",
    )
    add_output_option(parser)


async def uninstall(settings: Settings, *, leave_machines: bool) -> "tuple[Uninstalled, list[str]]":
    """What was removed, and the namespaces of the operators."""
    from forebay.cli.cluster_reader import ClusterReader, operator_namespace
    from forebay.install.uninstall import MachinesRunning, Uninstaller, UninstallError
    from forebay.kube.connection import connected_client
    from forebay.wiring.cluster import cluster_config
    from forebay.wiring.logs import configure_logging

    redactor = configure_logging(settings)
    config = cluster_config(settings, os.environ)
    client = connected_client(config, redactor)
    try:
        if settings.namespace is not None:
            namespaces = [settings.namespace]
        else:
            # Only the chart's hook may not list Leases; its pod runs in the namespace of the operator.
            # Elsewhere every Lease counts, whoever wrote it: an operator that is not stopped would undo the removal.
            reader = ClusterReader(client, config.namespace, operator_namespace(settings, config))
            found = await reader.lease_namespaces()
            namespaces = [config.namespace] if found is None else found
        try:
            done = await Uninstaller(client, namespaces, progress=_print_step).run(leave_machines=leave_machines)
        except (MachinesRunning, UninstallError) as error:
            raise UserError(str(error)) from error
    finally:
        await client.close()
    return done, namespaces


def _print_step(sentence: str) -> None:
    print_line(sentence, error=True)


def show(done: "Uninstalled", namespaces: list[str]) -> None:
    print_paragraph("No pod, Job or GPUNodeClass waits for Forebay any more.")
    if done.machines:
        print_paragraph(
            f"Still running, to be powered off or terminated by you: {', '.join(done.machines)}. Their GPUInstances "
            "say what they are; to delete a GPUInstance, remove its finalizers."
        )
    print_paragraph("Next, within two minutes (after that, operators resume their work):")
    print_paragraph("helm uninstall RELEASE --no-hooks, or: forebay manifests install | kubectl delete -f -", indent=2)
    print_paragraph("Kept until you delete it:")
    for namespace in namespaces:
        print_paragraph(
            f"the ledgers of budgets: kubectl -n {namespace} delete configmaps -l forebay.dev/ledger",
            indent=2,
            hanging=2,
        )
    print_paragraph(
        "Forebay's CRDs, with all objects of these kinds: forebay manifests crds | kubectl delete -f -",
        indent=2,
        hanging=2,
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    done, namespaces = asyncio.run(uninstall(settings, leave_machines=arguments.leave_machines))
    if arguments.output != "text":
        print_document(msgspec.to_builtins(done), arguments.output)
    else:
        show(done, namespaces)
    return 0


COMMAND = Command(
    name="uninstall",
    summary="prepare the cluster for Forebay's removal: no finalizer, gate or policy stays",
    description="Prepare the cluster for Forebay's removal: halt the operators, delete the admission policies,\n"
    "remove Forebay's finalizers and scheduling gates from pods, resume the Jobs that budgets paused,\n"
    "delete the class and pool of machines that environment variables name and the virtual node of\n"
    "remote pods, and remove the finalizers of other GPUNodeClasses and of GPUInstances that are gone.\n"
    "Then print the remaining steps. While machines are running, nothing is changed: without Forebay,\n"
    "nothing would power them off or terminate them. The command can be repeated. The Helm chart runs\n"
    "it as its pre-delete hook.\n\n"
    "Exit codes: 0 nothing waits for Forebay any more; 2 machines are running, or no cluster.",
    options=add_options,
    run=run,
)
