"""`forebay embedded`: serves the in-memory Kubernetes API on a loopback port."""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli.end_signals import on_end_signals
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.embedded.server import EmbeddedCluster

LARGEST_PORT = 65535


def port(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give 0 (any free port) to {LARGEST_PORT}")
    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=port, default=0, help="loopback port to serve on (default: any free port)")
    parser.add_argument(
        "--write-kubeconfig",
        type=Path,
        metavar="FILE",
        help="write the kubeconfig to this file; an existing file is overwritten only if this command wrote it "
        "(default: ./forebay-embedded.kubeconfig)",
    )


@asynccontextmanager
async def serving_cluster(cluster: "EmbeddedCluster", port_number: int, kubeconfig: Path) -> AsyncIterator[str]:
    """Serve the cluster while the block runs; yields its base URL. The file `kubeconfig` exists for as long."""
    from forebay.embedded.server import kubeconfig_for
    from forebay.embedded.tls import loopback_context
    from forebay.net.serve import serving

    refuse_foreign_kubeconfig(kubeconfig)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster)
        try:
            context, authority = loopback_context()
            url = await stack.enter_async_context(serving(cluster.guarded, port=port_number, context=context))
        except OSError as error:
            raise UserError(f"cannot serve on port {port_number}: {error.strerror}") from error
        stack.enter_context(written(kubeconfig, kubeconfig_for(url, cluster.token, authority)))
        yield url


def refuse_foreign_kubeconfig(kubeconfig: Path) -> None:
    """Raise `UserError` if the file exists and is not a kubeconfig of an embedded cluster.

    A kubeconfig is often the only access to a cluster, so a foreign one is never overwritten.
    """
    from forebay.embedded.server import is_embedded_kubeconfig

    if kubeconfig.exists() and not is_embedded_kubeconfig(kubeconfig.read_bytes()):
        raise UserError(f"{kubeconfig} is not overwritten: it is not of an embedded cluster; give another file")


@contextmanager
def written(path: Path, text: str) -> Iterator[None]:
    """A file with this text, which only its owner can read, while the block runs; deleted at the end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A new file: one that is here already may be readable by others, or be a link to another place.
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123 (with a mode)
            file.write(text)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


async def serve(port_number: int, kubeconfig: Path) -> None:
    from forebay.embedded.server import EmbeddedCluster

    # Before the kubeconfig is written, which must not outlive the command.
    stop = asyncio.Event()
    on_end_signals(stop.set)
    async with serving_cluster(EmbeddedCluster(), port_number, kubeconfig) as url:
        print(f"Serving an in-memory Kubernetes API on {url}. Its contents are lost when this command ends (Ctrl-C).")
        print(f"  export KUBECONFIG={kubeconfig}", flush=True)
        await stop.wait()


def run(arguments: argparse.Namespace, _settings: Settings) -> int:
    kubeconfig = arguments.write_kubeconfig or Path("forebay-embedded.kubeconfig")
    asyncio.run(serve(arguments.port, kubeconfig.absolute()))
    return 0


COMMAND = Command(
    name="embedded",
    summary="serve an in-memory Kubernetes API on a loopback port",
    description="Serve an in-memory Kubernetes API on a loopback port, with a scheduler, Job and ReplicaSet\n"
    "controllers, and a kubelet that simulates pods (nothing is executed):\n\n"
    "  forebay embedded --port 8001 --write-kubeconfig /tmp/embedded.yaml &\n"
    "  KUBECONFIG=/tmp/embedded.yaml kubectl get namespaces",
    options=add_options,
    run=run,
    uses_settings=False,
)
