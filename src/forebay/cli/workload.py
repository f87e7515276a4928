"""`forebay workload`: pods that ask for GPUs and do nothing, at a constant rate, to try a cluster with."""

import argparse
import asyncio
import os
import secrets
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from forebay.api.values import NotADuration, duration
from forebay.cli.output import print_line
from forebay.cli.parser import Command, UserError
from forebay.model.quantities import NVIDIA_GPU, InvalidQuantity, Quantity
from forebay.reporting.accuracy import Load
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.kube.client import Client

#: More than a control plane should be asked for by accident.
MOST_PODS: Final = 100_000
#: Pods a second, from one an hour to more than any control plane takes.
_SLOWEST, _FASTEST = Fraction(1, 3600), Fraction(10_000)
#: Simulated kubelets (the embedded cluster's, KWOK with our stages) cannot run a command; they read how long it takes.
_RUN_TIME: Final = "embedded.forebay.dev/run-time"


def add_load_options(parser: argparse.ArgumentParser, *, count: int, rate: str, runtime: str) -> None:
    """Options of the pods, under the names that users of gwb-workload know."""
    parser.add_argument("-n", "--namespace", default="default", help="namespace of the pods (default: default)")
    parser.add_argument("--count", type=_count, default=count, help=f"number of pods (default: {count})")
    parser.add_argument("--rate", type=_rate, default=_rate(rate), help=f"pods a second (default: {rate})")
    parser.add_argument(
        "--runtime", type=span, default=span(runtime), help=f"how long each pod runs (default: {runtime})"
    )
    parser.add_argument("--gpus", type=_amount, default=_amount("1"), help="GPUs of each pod (default: 1)")
    parser.add_argument(
        "--gpu-resource",
        default=NVIDIA_GPU,
        help=f"the resource that counts as GPU; cpu on a cluster without (default: {NVIDIA_GPU})",
    )
    parser.add_argument("--image", default="busybox:1.36", help="image with a sleep command (default: busybox:1.36)")
    parser.add_argument("--prefix", default="bench-", help="start of the pods' names (default: bench-)")
    parser.add_argument("--label", default="app=bench", help="label of the pods, KEY=VALUE (default: app=bench)")


def load_of(arguments: argparse.Namespace) -> Load:
    return Load(arguments.count, arguments.rate, arguments.runtime, arguments.gpus, arguments.gpu_resource)


def labels_of(arguments: argparse.Namespace) -> dict[str, str]:
    key, separator, value = arguments.label.partition("=")
    if not separator or not key:
        raise UserError(f"--label is KEY=VALUE, such as app=bench, and not {arguments.label!r}")
    return {key: value}


def pod(load: Load, name: str, labels: dict[str, str], arguments: argparse.Namespace) -> dict[str, Any]:
    seconds = load.runtime.total_seconds()
    amounts = {load.resource: str(load.gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": arguments.namespace,
            "labels": labels,
            "annotations": {_RUN_TIME: f"{seconds:g}s"},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": arguments.image,
                    "command": ["sleep", f"{seconds:g}"],
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        },
    }


async def create_pods(client: "Client", run: str, labels: dict[str, str], arguments: argparse.Namespace) -> None:
    """Create every pod at its time. The first that is refused ends the rest, with its error."""
    from forebay.kube.pods import PODS

    load = load_of(arguments)
    loop = asyncio.get_running_loop()
    start = loop.time()
    # Each in a task of its own: a slow answer must not make the next pods late.
    creations: set[asyncio.Task[Any]] = set()
    try:
        for number in range(load.count):
            await asyncio.sleep(start + load.due(number) - loop.time())
            body = pod(load, f"{arguments.prefix}{run}-{number:04}", labels, arguments)
            creations.add(asyncio.ensure_future(client.create(PODS, body, namespace=arguments.namespace)))
            for ended in [each for each in creations if each.done()]:
                creations.discard(ended)
                ended.result()
        await asyncio.gather(*creations)
    finally:
        for each in creations:
            each.cancel()


async def work(arguments: argparse.Namespace, settings: Settings) -> None:
    from forebay.kube.connection import connected_client
    from forebay.wiring.cluster import cluster_config
    from forebay.wiring.logs import configure_logging

    client = connected_client(cluster_config(settings, os.environ), configure_logging(settings))
    try:
        await create_pods(client, new_run(), labels_of(arguments), arguments)
    finally:
        await client.close()


def new_run() -> str:
    """Part of the names of what a run creates, so that two runs do not meet."""
    return secrets.token_hex(3)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    labels_of(arguments)
    asyncio.run(work(arguments, settings))
    print_line(
        f"Created {arguments.count} pods in namespace {arguments.namespace}. To delete them: "
        f"kubectl -n {arguments.namespace} delete pods -l {arguments.label}"
    )
    return 0


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_PODS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_PODS}")
    return int(text)


def _rate(text: str) -> Fraction:
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if not _SLOWEST <= rate <= _FASTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of pods a second, such as 10 or 0.5")
    return rate


def span(text: str) -> timedelta:
    try:
        return duration(text)
    except NotADuration as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _amount(text: str) -> Quantity:
    try:
        amount = Quantity.parse(text)
    except InvalidQuantity as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if amount.nano <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not more than 0")
    return amount


def add_options(parser: argparse.ArgumentParser) -> None:
    add_load_options(parser, count=10, rate="1", runtime="60s")


COMMAND = Command(
    name="workload",
    summary="create pods that ask for GPUs and do nothing, to try a cluster with",
    description="Create pods that ask for GPUs, sleep and end, at a constant rate, in any cluster:\n\n"
    "  forebay workload --count 20 --rate 2 --runtime 2m\n"
    "  forebay workload --gpu-resource cpu --gpus 100m       # on a cluster without GPUs\n\n"
    "Exit codes: 0; 2 bad input, a pod that the API server refused, or no cluster.",
    options=add_options,
    run=run,
)
