"""`forebay demo`: Forebay on this machine alone."""

import argparse
import asyncio
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli.embedded import port, served, until_interrupted
from forebay.cli.parser import Command
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.embedded.store import Json, Store


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=port, default=0, help="the loopback port to serve on (default: any free one)")


def furnish(store: "Store") -> None:
    """Two plain nodes, one with eight GPUs, our kinds, a Job that has room and one that has not."""
    from forebay.api.crd import custom_resource_definitions
    from forebay.embedded import kinds
    from forebay.embedded.controllers.nodes import register_node

    for definition in custom_resource_definitions():
        store.create(kinds.DEFINITIONS, definition)
    for name in ("plain-1", "plain-2"):
        register_node(store, name, allocatable={"cpu": "8", "memory": "32Gi"}, ready_after=1)
    register_node(
        store,
        "gpu-1",
        allocatable={"cpu": "96", "memory": "768Gi", "nvidia.com/gpu": 8},
        labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
        ready_after=3,
    )
    store.create(kinds.JOBS, job("fits", pods=4, gpus=1, run_time="2m"))
    store.create(kinds.JOBS, job("too-large", pods=1, gpus=16, run_time="1m"))


def job(name: str, *, pods: int, gpus: int, run_time: str) -> "Json":
    limits = {"nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": {"embedded.forebay.dev/run-time": run_time}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "train", "image": "example/train", "resources": {"limits": limits}}],
                },
            },
        },
    }


GREETING = """\
Forebay's embedded cluster is running on {url}: three nodes, eight GPUs, two Jobs.
In another terminal:

  export KUBECONFIG={kubeconfig}
  kubectl get nodes,jobs,pods                    # one Job runs, one waits
  kubectl describe job too-large                 # an ordinary cluster's answers
  {forebay} status               # which pods wait for a GPU, and why
  kubectl apply -f docs/examples/gpuworkloadbudget.yaml
  kubectl get gwb                                # Forebay's kinds are installed

The operator itself joins this demo in a coming release. Ctrl-C ends it; nothing is left behind."""


async def play(port_number: int) -> None:
    import sys

    from forebay.embedded.server import EmbeddedCluster

    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        cluster = EmbeddedCluster()
        async with served(cluster, port_number, kubeconfig) as url:
            furnish(cluster.store)
            forebay = shlex.quote(str(Path(sys.argv[0])))
            print(GREETING.format(url=url, kubeconfig=kubeconfig, forebay=forebay), flush=True)
            await until_interrupted()


def run(arguments: argparse.Namespace, _settings: Settings) -> int:
    asyncio.run(play(arguments.port))
    return 0


COMMAND = Command(
    name="demo",
    summary="everything on this machine: no cluster, no account",
    description="Start an embedded cluster with nodes and Jobs, and print what to try on it.",
    options=add_options,
    run=run,
    uses_settings=False,
)
