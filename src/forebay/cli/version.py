"""`forebay version`: of the command, of its Python, and of the cluster it would talk to."""

import argparse
import asyncio
import os
import platform

from forebay import __version__
from forebay.cli.output import add_output_option, print_document, print_line
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings


async def cluster_version(settings: Settings) -> tuple[str, str | None]:
    """The version of the cluster's API server, and what is wrong with that version, if something is."""
    from forebay.kube.connection import connected_client
    from forebay.kube.versions import unsupported_text
    from forebay.wiring.cluster import cluster_config
    from forebay.wiring.logs import configure_logging

    client = connected_client(cluster_config(settings, os.environ), configure_logging(settings))
    try:
        found = await client.version()
    finally:
        await client.close()
    return found.git_version, unsupported_text(found.git_version)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    from forebay.kube.errors import KubeError
    from forebay.net.transport import TransportError

    if arguments.output == "text":
        # Before the cluster is asked: also who has none wants to know it.
        print_line(f"Forebay      {__version__} (Python {platform.python_version()})")
    cluster: str | None = None
    problem: str | None = None
    failure: Exception | None = None
    if not arguments.client:
        try:
            cluster, problem = asyncio.run(cluster_version(settings))
        except (UserError, KubeError, TransportError) as error:
            failure, problem = error, str(error)
    if arguments.output != "text":
        print_document(
            {"forebay": __version__, "python": platform.python_version(), "kubernetes": cluster, "problem": problem},
            arguments.output,
        )
    if failure is not None:
        raise failure
    if arguments.output != "text":
        return 0
    if cluster is not None:
        print_line(f"Kubernetes   {cluster}")
    if problem:
        print_line(f"Problem      {problem}")
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--client", action="store_true", help="only the version of this command; ask no cluster")
    add_output_option(parser)


COMMAND = Command(
    name="version",
    summary="the version of this command and of the cluster",
    description="Show the version of this command, and the version of the cluster with a sentence if Forebay does not\n"
    "support it.\n\nExit codes: 0; 2 no cluster (with --client none is asked).",
    options=add_options,
    run=run,
)
