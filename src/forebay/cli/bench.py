"""`forebay bench budgets`: how exactly the operator of a cluster counts, by pods whose usage is known."""

import argparse
import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forebay.cli.output import add_output_option, print_document, print_line
from forebay.cli.parser import Command, UserError
from forebay.cli.workload import add_load_options, create_pods, labels_of, load_of, new_run, span
from forebay.reporting.accuracy import Accuracy, reported_gpu_hours, summary
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.api.gpu_workload_budget import GPUWorkloadBudget
    from forebay.kube.client import Client

#: An operator that runs writes the status of a new budget much sooner.
_ANSWER_WITHIN_S: Final = 60
_LOOK_EVERY_S: Final = 0.5
#: Marks the pods of one run, so that pods of another are not counted.
_RUN_LABEL: Final = "forebay.dev/bench-run"


def budget(name: str, labels: dict[str, str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Large enough never to be used up: nothing is enforced, only counted."""
    from forebay.api.names import API_VERSION

    return {
        "apiVersion": API_VERSION,
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": name, "namespace": arguments.namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "gpuResourceName": arguments.gpu_resource,
            "quota": {"gpuHours": "1000000", "windowHours": 24},
            "enforcement": {"action": "AlertOnly"},
        },
    }


async def measure(arguments: argparse.Namespace, settings: Settings) -> "tuple[Accuracy, GPUWorkloadBudget]":
    from forebay.kube.connection import connected_client
    from forebay.kube.errors import NotFound
    from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
    from forebay.wiring.cluster import cluster_config
    from forebay.wiring.logs import configure_logging

    run = new_run()
    name, labels = f"{arguments.prefix}{run}", {**labels_of(arguments), _RUN_LABEL: run}
    client = connected_client(cluster_config(settings, os.environ), configure_logging(settings))
    try:
        try:
            await client.create(GPU_WORKLOAD_BUDGETS, budget(name, labels, arguments), namespace=arguments.namespace)
        except NotFound as error:
            raise UserError(
                f"there is no namespace {arguments.namespace}, or the cluster does not serve GPUWorkloadBudget; "
                "for the latter run: forebay manifests crds | kubectl apply -f -"
            ) from error
        await _counted(client, name, arguments.namespace)
        return await _read(client, name, run, labels, arguments)
    finally:
        try:
            await _remove(client, name, run, arguments.namespace)
        finally:
            await client.close()


async def _counted(client: "Client", name: str, namespace: str) -> None:
    """Returns when an operator counts the budget's pods."""
    from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS

    for _ in range(int(_ANSWER_WITHIN_S / _LOOK_EVERY_S)):
        found = await client.get(GPU_WORKLOAD_BUDGETS, name, namespace)
        if found.status is not None and found.status.consumed_gpu_hours is not None:
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    raise UserError(
        f"no operator has written the status of GPUWorkloadBudget {name} for {_ANSWER_WITHIN_S} s: is one running? "
        "To see: forebay status"
    )


async def _read(
    client: "Client", name: str, run: str, labels: dict[str, str], arguments: argparse.Namespace
) -> "tuple[Accuracy, GPUWorkloadBudget]":
    from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS

    loop = asyncio.get_running_loop()
    start = loop.time()
    creation = asyncio.ensure_future(create_pods(client, run, labels, arguments))
    # Ends early only where a pod was refused: it says why.
    observed = asyncio.ensure_future(asyncio.sleep(arguments.observe.total_seconds()))
    await asyncio.wait({creation, observed}, return_when=asyncio.FIRST_EXCEPTION)
    if creation.done():
        creation.result()
    found = await client.get(GPU_WORKLOAD_BUDGETS, name, arguments.namespace)
    elapsed = timedelta(seconds=loop.time() - start)
    creation.cancel()
    status = found.status
    reading = Accuracy(
        load=load_of(arguments),
        elapsed=elapsed,
        reported=reported_gpu_hours(status.consumed_gpu_hours if status else None),
        tracked_pods=(status.tracked_pods if status else None) or 0,
    )
    return reading, found


async def _remove(client: "Client", name: str, run: str, namespace: str) -> None:
    from forebay.kube.errors import NotFound
    from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
    from forebay.kube.pods import PODS

    for each in (await client.list_all(PODS, namespace, labels=f"{_RUN_LABEL}={run}")).items:
        try:
            await client.delete(PODS, each.key[1], namespace)
        except NotFound:
            continue
    try:
        await client.delete(GPU_WORKLOAD_BUDGETS, name, namespace)
    except NotFound:
        return


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    labels_of(arguments)
    reading, found = asyncio.run(measure(arguments, settings))
    document = reading.document()
    if arguments.out_dir is not None:
        directory: Path = arguments.out_dir
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "SUMMARY.md").write_text(summary(arguments.title, reading))
            (directory / "report.json").write_text(json.dumps(document, indent=2) + "\n")
            (directory / "status.json").write_bytes(msgspec.json.format(msgspec.json.encode(found.status)) + b"\n")
        except OSError as error:
            raise UserError(f"cannot write the report to {directory}: {error.strerror or error}") from error
    if arguments.output != "text":
        print_document(document, arguments.output)
    else:
        for line in summary(arguments.title, reading).splitlines():
            print_line(line)
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    add_load_options(parser, count=50, rate="10", runtime="30s")
    parser.add_argument(
        "--observe", type=span, default=span("45s"), help="time from the first pod to the reading (default: 45s)"
    )
    parser.add_argument("--title", default="", help="what the report calls this run")
    parser.add_argument("--out-dir", type=Path, help="write SUMMARY.md, report.json and status.json there")
    add_output_option(parser)


COMMAND = Command(
    name="bench",
    summary="measure the operator of a cluster",
    commands=(
        Command(
            name="budgets",
            summary="how exactly a budget counts pods whose usage is known",
            description="Create a GPUWorkloadBudget that enforces nothing and pods that sleep, wait, compare what the\n"
            "budget's status says with what the pods must have used, and delete both again:\n\n"
            "  forebay bench budgets --gpu-resource cpu --gpus 100m       # on a cluster without GPUs\n"
            "  forebay bench budgets --count 20 --runtime 2m --observe 150s --out-dir results\n\n"
            "Exit codes: 0; 2 bad input, no operator, or no cluster.",
            options=add_options,
            run=run,
        ),
    ),
)
